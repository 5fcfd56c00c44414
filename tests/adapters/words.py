"""The few words in which the adapter's tests are written: keys and entries of the SDK."""

from __future__ import annotations

from typing import Any, cast

from claude_agent_sdk import SessionKey, SessionStoreEntry

from holdfast.adapters.claude import ClaudeSessionStore


def key(session_id: str = "s", *, project: str = "p", sub: str | None = None) -> SessionKey:
    made: SessionKey = {"project_key": project, "session_id": session_id}
    if sub is not None:
        made["subpath"] = sub
    return made


def entry(uuid: str | None = None, **fields: Any) -> SessionStoreEntry:
    made: Any = {"type": "user", **fields}
    if uuid is not None:
        made["uuid"] = uuid
    return cast(SessionStoreEntry, made)


def title(text: str, uuid: str | None = None) -> SessionStoreEntry:
    """An entry that changes what a summary says."""
    return entry(uuid, customTitle=text)


async def mtime(sessions: ClaudeSessionStore, session_id: str = "s") -> int:
    listed = await sessions.list_sessions("p")
    return next(item["mtime"] for item in listed if item["session_id"] == session_id)


async def summary(sessions: ClaudeSessionStore, session_id: str = "s") -> Any:
    listed = await sessions.list_session_summaries("p")
    return next(item["data"] for item in listed if item["session_id"] == session_id)
