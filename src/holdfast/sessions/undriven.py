"""Finds runs that are due, but that no process drives: there may be no process that serves their
agent, or none with the version of the agent that started them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import Struct

from ..environment import wall_clock
from ..log.catalog import Query, Row, is_due
from ..log.codec import LIMITS
from ..log.events import ids
from ..stores.pages import every_row
from ..stores.port import Store
from .rewind import folded

MOST = 100  # runs that are listed


class UndrivenRun(Struct, frozen=True, kw_only=True):
    """A run that waits for a process that drives it. `version` is the version of the agent that
    started it, if it is known, and `last` the time (ms) of the latest event of its driver."""

    session: str
    thread: str
    agent: str
    run: str | None
    version: str | None
    last: int


async def undriven(store: Store, tenant: str, most: int = MOST) -> list[UndrivenRun]:
    """Return up to `most` runs of a tenant that are due and that no process drives."""
    now = wall_clock()
    due = {row.key: row async for row in _open(store, tenant) if row.agent and is_due(row, now)}
    agents = sorted({row.agent for row in due.values() if row.agent})
    free = await store.runnable(tenant, agents=agents, limit=LIMITS.page) if agents else []
    found = []
    for row in [due[key] for key in free if key in due][:most]:
        state = await folded(store, row)
        if (run := state.active) is not None and row.agent:
            found.append(
                UndrivenRun(
                    session=row.session,
                    thread=row.thread,
                    agent=row.agent,
                    run=run.id,
                    version=run.version,
                    last=state.driven,
                )
            )
    return found


async def _open(store: Store, tenant: str) -> AsyncIterator[Row]:
    """Yield the rows of all logs that may have an open run, sub-agents included."""
    for status in ("running", "waiting"):
        async for row in every_row(store, Query(tenant=tenant, run=status)):
            yield row
            if any(map(ids.is_child, row.pending)):
                async for thread in every_row(store, Query(tenant=tenant, session=row.session)):
                    if thread.thread != row.thread:
                        yield thread
