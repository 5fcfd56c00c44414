"""The SDK's sessions without the values of the variables that a client gave its process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...redact import Redactor


def tree(redactor: Redactor, found: Any) -> Any:
    """JSON, however deep, with all texts in it masked."""
    if isinstance(found, str):
        return redactor.text(found)
    if isinstance(found, Mapping):
        return {redactor.text(str(k)): tree(redactor, value) for k, value in found.items()}
    if isinstance(found, list):
        return [tree(redactor, value) for value in found]
    return found


class MaskedSessions:
    """A store of the SDK's sessions whose entries are masked as they are written."""

    def __init__(self, sessions: Any, redactor: Redactor) -> None:
        self._sessions, self._redactor = sessions, redactor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sessions, name)

    async def append(self, key: Any, entries: Iterable[Any]) -> None:
        await self._sessions.append(key, [tree(self._redactor, entry) for entry in entries])

    async def load(self, key: Any) -> Any:
        return await self._sessions.load(key)
