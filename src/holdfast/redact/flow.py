"""Known secrets in a text that comes in pieces."""

from __future__ import annotations

from collections.abc import Iterable

from .funnel import Redactor

TOLD_APART = 6  # characters of a value that is masked; a shorter one may be any word
HELD = 1 << 12  # characters that are held back at most: one that repeats itself has no end


def values_only(values: Iterable[str]) -> Redactor:
    """Masks these values and nothing else; those that are too short stay."""
    known = {form for value in values for form in (value, value.strip())}
    known = {value for value in known if len(value.strip()) >= TOLD_APART}
    return Redactor(keys=(), values=sorted(known), shapes=False)


class Flow:
    """A text that comes in pieces. What may be the beginning of a known secret is held back until
    more of it is there."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor, self._held = redactor, ""
        self._most = max(HELD, 2 * redactor.longest)

    def more(self, text: str) -> str:
        """What can be shown of it now."""
        whole = self._held + text
        place = self._redactor.cut(whole)
        if len(whole) - place > self._most:
            place = len(whole)
        self._held = whole[place:]
        return self._redactor.text(whole[:place])

    def rest(self) -> str:
        """What was held back, at the end."""
        held, self._held = self._held, ""
        return self._redactor.text(held)
