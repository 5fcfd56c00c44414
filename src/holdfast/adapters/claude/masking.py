"""Masks the values of a client's environment variables in the SDK's sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...redact import Redactor

FRAME = ("type", "role", "uuid", "parentUuid", "sessionId", "timestamp")
FRAMED = ("message", "content")  # fields of an entry whose values have structural fields too


def tree(redactor: Redactor, found: Any, *, framed: bool = True) -> Any:
    """Return an entry with secrets masked in all strings and numbers, except in the structural
    fields that the SDK needs: those of the entry, of its message and of the blocks of the
    message."""
    if isinstance(found, str):
        return redactor.text(found)
    if isinstance(found, Mapping):
        return {
            redactor.text(str(name)): value
            if framed and name in FRAME and isinstance(value, str)
            else tree(redactor, value, framed=framed and name in FRAMED)
            for name, value in found.items()
        }
    if isinstance(found, list):
        return [tree(redactor, value, framed=framed) for value in found]
    return found if isinstance(found, bool) else redactor.number(found)


class MaskedSessions:
    """Wraps a store of the SDK's sessions, and masks entries before they are written."""

    def __init__(self, sessions: Any, redactor: Redactor) -> None:
        self._sessions, self._redactor = sessions, redactor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sessions, name)

    async def append(self, key: Any, entries: Iterable[Any]) -> None:
        await self._sessions.append(key, [tree(self._redactor, entry) for entry in entries])

    async def load(self, key: Any) -> Any:
        return await self._sessions.load(key)
