"""Masks known secrets in text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Iterable

from .redactor import Redactor

SHORTEST_VALUE = 6  # minimum length of a masked value; shorter ones may be ordinary words
HELD = 1 << 12  # characters held back at most, unless secrets are long


def values_only(values: Iterable[str]) -> Redactor:
    """Return a redactor that masks only these values; values that are too short are ignored.

    See [redaction](../redaction.md).
    """
    known = {form for value in values for form in (value, value.strip())}
    known = {value for value in known if len(value.strip()) >= SHORTEST_VALUE}
    return Redactor(keys=(), values=sorted(known), shapes=False)


class StreamRedactor:
    """Masks text that arrives in pieces. The possible beginning of a known secret is held back
    until more text arrives.

    See [redaction](../redaction.md).
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor, self._held = redactor, ""
        self._most = max(HELD, 2 * redactor.longest)

    def feed(self, text: str) -> str:
        """Add a piece, and return the text that can be shown."""
        whole = self._held + text
        place = self._redactor.cut(whole)
        if len(whole) - place > self._most:
            place = len(whole)
        self._held = whole[place:]
        return self._redactor.text(whole[:place])

    def flush(self) -> str:
        """Return the text that is still held back, at the end."""
        held, self._held = self._held, ""
        return self._redactor.text(held)
