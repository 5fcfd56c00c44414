"""Eviction of idle live sessions. Evicted sessions stay stored and can be opened again."""

from __future__ import annotations

import asyncio

from ..log.events import Key
from .open_sessions import OpenSessions


async def evict(opened: OpenSessions, idle: float) -> tuple[str, ...]:
    """Close the live sessions that have no driver in this process, no waiters and no subscribers,
    and that were not used for `idle` seconds. Returns their ids. In sessions that stay open, idle
    threads of finished sub-agents are closed."""
    found, since = [], asyncio.get_running_loop().time() - idle
    for id in dict.fromkeys(where.session for where in opened.sessions):
        mine = [where for where in opened.logs if where.session == id]
        used = opened.changing(id) or any(_used(opened, where, since) for where in mine)
        if not used and await opened.close(id, grace=0.0):
            found.append(id)
    for where in opened.logs:
        if _reported(opened, where) and not _used(opened, where, since):
            await opened.forget(where)
    return tuple(sorted(found))


def _used(opened: OpenSessions, where: Key, since: float) -> bool:
    session, live = opened.sessions.get(where), opened.logs.get(where)
    if (session is not None and session.used > since) or opened.changing(where.session):
        return True
    return opened.drivers.drives(where) or (live is not None and live.wanted)


def _reported(opened: OpenSessions, where: Key) -> bool:
    """Return whether this is the thread of a sub-agent that has finished."""
    live = opened.logs.get(where)
    sub = live.state.sub if live is not None else None
    return sub is not None and sub.reported and live is not None and live.state.active is None
