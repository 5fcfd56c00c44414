"""Wrappers for any `SessionStore` of the SDK, and session ids in the format that the SDK needs.

The SDK checks whether a store has an optional method. A wrapper has the same optional methods as
the store that it wraps.
"""

from __future__ import annotations

import uuid
import warnings
from typing import TYPE_CHECKING, Any

from ...errors import InvalidValue

if TYPE_CHECKING:
    from claude_agent_sdk.types import SessionKey, SessionStore, SessionStoreEntry

NAMESPACE = uuid.UUID("f8d9cb1a-3e7e-4d8d-9aa4-1d3f8d7b6c2e")
KEYED = ("delete", "list_subkeys", "size")  # optional methods that take a key


def session_uuid(id: str) -> str:
    """Return a UUID for any session id. The same id always yields the same UUID.

    See [Claude Agent SDK](../claude.md).
    """
    return str(uuid.uuid5(NAMESPACE, id))


def optional(store: Any, name: str) -> Any:
    """Return an attribute of a store. Raises `AttributeError` if the store does not have it, or has
    only the SDK's default, which stands for a missing method."""
    default = getattr(type(store), name, None)
    if getattr(default, "__module__", None) == "claude_agent_sdk.types":
        raise AttributeError(f"{type(store).__name__!r} has no {name!r}")
    return getattr(store, name)


def _wrapped(kind: type, store: SessionStore | None, inner: SessionStore | None) -> SessionStore:
    """Return the store to wrap. The parameter `store` was named `inner` before version 0.2."""
    name = kind.__name__
    if inner is not None:
        words = f"{name}(inner=…) is now {name}(store=…)"
        warnings.warn(words, DeprecationWarning, stacklevel=3)
    found = store if store is not None else inner
    if found is None:
        raise InvalidValue(field="store", problem="is missing", remedy=f"pass {name}(store=…)")
    return found


class ValidatingSessionStore:
    """Wraps a store, and drops everything that is not an entry (an object with a non-empty `type`)
    when a transcript is read. `dropped` counts the dropped items. Writes are not changed.

    See [Claude Agent SDK](../claude.md).
    """

    def __init__(
        self, store: SessionStore | None = None, *, inner: SessionStore | None = None
    ) -> None:
        self._inner = _wrapped(type(self), store, inner)
        self.dropped = 0

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        await self._inner.append(key, entries)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        entries = await self._inner.load(key)
        if entries is None:
            return None
        valid = [entry for entry in entries if _is_entry(entry)]
        self.dropped += len(entries) - len(valid)
        return valid

    def __getattr__(self, name: str) -> Any:
        return optional(self._inner, name)


def _is_entry(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str) and value["type"] != ""


class PinnedSessionStore:
    """Wraps a store, and uses one session id for all reads and writes. Project and subpath are not
    changed.

    See [Claude Agent SDK](../claude.md).
    """

    def __init__(
        self,
        store: SessionStore | None = None,
        session_id: str = "",
        *,
        inner: SessionStore | None = None,
    ) -> None:
        self._inner = _wrapped(type(self), store, inner)
        if not session_id:
            raise InvalidValue(field="session_id", problem="is missing", remedy="pass a UUID")
        self._session_id = session_id

    def _pinned(self, key: Any) -> Any:
        return {**key, "session_id": self._session_id}

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        await self._inner.append(self._pinned(key), entries)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        return await self._inner.load(self._pinned(key))

    def __getattr__(self, name: str) -> Any:
        method = optional(self._inner, name)
        if name not in KEYED:
            return method

        async def pinned(key: Any) -> Any:
            return await method(self._pinned(key))

        return pinned
