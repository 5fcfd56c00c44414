"""The sub-agents of one thread, both working and finished, and their pending items."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from ...cancellation import ended
from ...errors import InvalidValue, NotPending, SessionNotFound
from ...log import events as ev
from ...log.catalog import Row
from ...log.events import Key, NewEvent, ids
from ...stores.measure import threads_of
from ...stores.port import Store
from ...values.pending import Ask
from ...values.result import Result
from ...values.watch import delegates
from ..live.decisions import was
from ..live.log import Live
from ..loop.delegation import child_of, chosen, subagent_model_key
from ..loop.detached import working
from .base import SessionCore

Asks: TypeAlias = list[Ask]


class SubagentSession(Protocol):
    """The methods of a sub-agent's session that this module uses."""

    async def pending(self) -> list[Ask]: ...

    async def wait(self) -> Result: ...


S = TypeVar("S", bound=SubagentSession)


class SubagentStatus(Struct, frozen=True):
    """A sub-agent that works or has worked for a thread. `status` is the status of its run, `calls`
    the number of its tool calls."""

    thread: str
    agent: str
    title: str
    status: str
    usage: dict[str, int]
    calls: int = 0
    pending: int = 0


class Subagents(Generic[S]):
    """The sub-agents that work for one thread."""

    def __init__(self, core: SessionCore[S]) -> None:
        self._core, self._live = core, core.live

    @property
    def working(self) -> list[str]:
        """The threads of the sub-agents that this thread waits for."""
        found = (child_of(id) for id in self._live.state.pending)
        return [thread for thread in found if thread is not None]

    async def list(self) -> list[SubagentStatus]:
        """Return all sub-agents that this thread started, oldest first."""
        mine = self._live.key.thread
        rows = [
            row
            for row in await threads_of(self._live.store, self._live.key.scope)
            if row.thread.startswith("sub/")
        ]
        return [_child(row) for row in rows if row.parent is not None and row.parent.thread == mine]

    async def open(self, thread: str) -> S:
        """Return the session of a sub-agent, with its events, transcript and stream. Raises
        `SessionNotFound` if its thread does not exist."""
        return (await self._core.host.open(self._core.key.session, thread)).session

    def model(self, name: str | None = None) -> str | None:
        """Return the model that this session sets for one sub-agent, or for all, or None."""
        return chosen(self._core.shared.state, name)

    async def set_model(self, ref: str | None, name: str | None = None) -> None:
        """Set the model of one sub-agent, or of all sub-agents without their own setting, from
        their next task on, in all threads of the session. None removes the setting."""
        core, setting = self._core, subagent_model_key(name)
        if name is not None and name not in [item.name for item in core.config.agent.subagents]:
            raise InvalidValue(
                field="name",
                problem=f"{name!r} is not a sub-agent of this agent",
                remedy="pass the name of a sub-agent, or omit it to set all sub-agents",
            )
        if ref is not None:
            core.config.models.check(ref)
        payload = ev.MetadataChanged(
            set={} if ref is None else {setting: ref}, drop=[setting] if ref is None else []
        )
        await core.append(NewEvent.of("metadata.changed", payload), live=core.shared)

    async def detached(self) -> builtins.list[str]:
        """Return the threads of the detached sub-agents of this thread that have not finished."""
        rows = working(await threads_of(self._live.store, self._live.key.scope))
        mine = self._live.key.thread
        return [row.thread for row in rows if row.parent is not None and row.parent.thread == mine]

    async def asks(self) -> Asks:
        """Return the pending items of the working sub-agents, including their own sub-agents."""
        found: Asks = []
        may_detach = any(item.detached for item in self._core.config.agent.subagents)
        for thread in [*self.working, *(await self.detached() if may_detach else ())]:
            with contextlib.suppress(SessionNotFound):
                found.extend(await (await self.open(thread)).pending())
        return found

    async def gone(self, item: str) -> bool:
        """Return whether the sub-agent thread that this item waits for was deleted. In that case
        only a user can answer the item."""
        key, thread = self._live.key, child_of(item)
        where = Key(key.tenant, key.session, thread or "")
        return thread is None or await self._live.store.row(where) is None

    async def asked(self) -> bool:
        """Wait while this thread waits only for sub-agents. Returns True as soon as one of them
        waits for user input, and False when the thread continues."""
        while delegates(self._live.state):
            before = self.working
            tasks = [asyncio.create_task(self._asks(thread)) for thread in before]
            other = asyncio.create_task(self._live.until(lambda: self.working != before))  # noqa: B023
            try:
                await asyncio.wait([*tasks, other], return_when=asyncio.FIRST_COMPLETED)
                if any(task.result() for task in tasks if task.done()):
                    return True
                if other.done():
                    other.result()  # raises if the log was closed or deleted
            finally:
                await ended(*tasks, other)
        return False

    async def until_asked(self) -> None:
        """Wait until a sub-agent of this thread waits for user input."""
        while not await self.asked():
            await self._live.until(lambda: delegates(self._live.state))

    async def _asks(self, thread: str) -> bool:
        """Return whether a sub-agent waits for user input. If it has ended, wait until its answer
        has arrived in this thread."""
        try:
            result = await (await self.open(thread)).wait()
        except SessionNotFound:
            return True
        if result.status == "waiting":
            return True
        await self._live.until(lambda: thread not in self.working)
        return False


def _child(row: Row) -> SubagentStatus:
    return SubagentStatus(
        thread=row.thread,
        agent=(row.agent or "").rpartition("/")[2],
        title=row.title or "",
        status=row.run or "queued",
        usage=dict(row.usage),
        calls=row.counts.get("calls", 0),
        pending=len(row.pending),
    )


async def used(live: Live) -> dict[str, int]:
    """Return the total usage of all threads of a session."""
    total: dict[str, int] = {}
    for row in await threads_of(live.store, live.key.scope):
        for name, count in row.usage.items():
            total[name] = total.get(name, 0) + count
    return total


async def thread_of_item(store: Store, key: Key, item: str | None) -> tuple[Key, str | None]:
    """Return the thread in which an item is pending, and the id of the item. The search covers the
    thread `key` and its sub-agents. If `item` is None, the only pending item is used. Raises
    `NotPending` unless there is exactly one."""
    rows = await _down(store, key)
    if item is None or not any(item in row.pending for row in rows):
        rows += await _detached(store, key, {row.thread for row in rows})
    open = [(row.key, id) for row in rows for id in row.pending if not ids.is_child(id)]
    if item is None:
        if len(open) == 1:
            return open[0]
        raise NotPending(session=key.session, item=None, pending=[id for _, id in open])
    for row in rows:
        if item in row.pending:
            return row.key, item
    for row in rows[1:]:
        if await was(store, row.key, item):
            return row.key, item
    return key, item


async def _detached(store: Store, key: Key, threads: set[str]) -> list[Row]:
    """Return the rows of the detached sub-agents that work for these threads, and of their
    sub-agents."""
    found: list[Row] = []
    for row in working(await threads_of(store, key.scope)):
        if row.parent is not None and row.parent.thread in threads:
            found.extend(await _down(store, row.key))
    return found


async def _down(store: Store, key: Key) -> list[Row]:
    row = await store.row(key)
    found: list[Row] = [] if row is None else [row]
    children: list[Any] = [] if row is None else [child_of(id) for id in row.pending]
    for thread in filter(None, children):
        found.extend(await _down(store, Key(key.tenant, key.session, thread)))
    return found
