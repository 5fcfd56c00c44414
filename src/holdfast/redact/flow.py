"""Known secrets in a text that comes in pieces."""

from __future__ import annotations

from collections.abc import Iterable

from .funnel import Redactor

TOLD_APART = 6  # characters of a value that is masked; a shorter one may be any word


def values_only(values: Iterable[str]) -> Redactor:
    """Masks these values and nothing else; those that are too short stay."""
    return Redactor(
        keys=(),
        values=[value for value in values if len(value.strip()) >= TOLD_APART],
        shapes=False,
    )


class Flow:
    """A text that comes in pieces. What may be the beginning of a known secret is held back until
    more of it is there."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor, self._held = redactor, ""

    def more(self, text: str) -> str:
        """What can be shown of it now."""
        whole = self._redactor.text(self._held + text)
        place = len(whole) - self._redactor.begun(whole)
        self._held = whole[place:]
        return whole[:place]

    def rest(self) -> str:
        """What was held back, at the end."""
        held, self._held = self._held, ""
        return held
