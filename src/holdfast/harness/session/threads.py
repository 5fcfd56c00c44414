"""The threads of a session: other conversations that share its user state and its rules.

Each thread has its own log, and each open thread is a live session object. `switch` therefore
returns another object; a run in the previous thread continues.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from ...errors import HeadMoved, InvalidValue, SessionExists, SessionNotFound
from ...log import events as ev
from ...log.catalog import Page, Query, Row
from ...log.codec import LIMITS
from ...log.events import Key, NewEvent, key, new_id
from ...log.transcript import Message
from ...sessions.changes import check_held
from ...sessions.rewind import rewind
from ...sessions.threads import threads_of
from ...stores.conversation import messages_of
from ...stores.pages import existing_row
from ...stores.port import Store
from ..live.log import Live
from .base import S, SessionCore, SessionPart
from .forks import Forks
from .views import ModelView

MAIN = "main"
Messages: TypeAlias = list[Message]


class ThreadSettings(SessionPart):
    """The metadata of one thread: small named values, by which lists of threads can be filtered.
    Each value is written separately, so concurrent writers lose nothing. A clone starts with the
    values of its parent. The values of thread `main` are the session's metadata."""

    def all(self) -> dict[str, Any]:
        """Return a copy of all values."""
        copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self._state.settings))
        return copied

    def get(self, name: str, default: Any = None) -> Any:
        return self.all().get(name, default)

    async def set(self, changes: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Set some values, and keep the others. Raises `InvalidValue` if the values would be too
        many or too large."""
        changes = {**(changes or {}), **more}
        if changes:
            await self._append(ev.MetadataChanged(set=changes))

    async def delete(self, *names: str) -> None:
        if names:
            await self._append(ev.MetadataChanged(drop=[*names]))


class Threads(Forks[S]):
    """The threads of a session, including this thread."""

    def __init__(self, core: SessionCore[S]) -> None:
        super().__init__(core)
        self.settings = ThreadSettings(core)

    async def create(self, title: str | None = None, *, id: str | None = None) -> S:
        """Create an empty thread with the mode and model of this thread. Raises `SessionExists` if
        the name is already used."""
        core, state = self._core, self._state
        where = self._key(new_id() if id is None else id)
        created = ev.ThreadCreated(agent=core.config.agent.key, title=title, parent=MAIN)
        events = [NewEvent.of("thread.created", created)]
        if state.mode is not None:
            changed = ev.ModeChanged(mode=core.config.mode(state).name)
            events.append(NewEvent.of("mode.changed", changed))
        if (chosen := ModelView(core).chosen) is not None:
            events.append(NewEvent.of("model.changed", ev.ModelChanged(model=chosen)))
        core.check()
        try:
            await core.host.store.append(where, events, expected=0, create=True)
        except HeadMoved:
            raise SessionExists(
                tenant=where.tenant, session=where.session, thread=where.thread
            ) from None
        return (await core.host.open(where.session, where.thread)).session

    async def switch(self, thread: str) -> S:
        """Return the live session of another thread. A run in this thread continues, and callers
        that wait for it get its result. Raises `SessionNotFound` if the other thread does not
        exist."""
        return (await self._open(thread)).session

    async def delete(self, thread: str | None = None) -> None:
        """Delete a thread (default: this one); its forks keep the shared events. An active run is
        aborted first. Raises `InvalidValue` for thread `main`, `SessionNotFound` if the thread does
        not exist, and `DeletionRefused` if the session is under legal hold."""
        self._core.check()
        await self._core.host.delete_thread(self._core.key.session, self._key(thread).thread)

    async def rename(self, title: str, thread: str | None = None) -> None:
        """Change the title of a thread (default: this one)."""
        if not isinstance(title, str) or not title.strip():
            raise InvalidValue(
                field="title", problem=f"must not be empty, got {title!r}", remedy="pass a title"
            )
        core, where = self._core, self._key(thread)
        core.check()
        event = NewEvent.of("thread.renamed", ev.ThreadRenamed(title=title))
        if where == core.key:
            await core.append(event)
            return
        row = await existing_row(core.host.store, where)
        await core.host.store.append(where, [event], log=row.log)

    async def list(
        self,
        *,
        title: str | None = None,
        label: str | None = None,
        settings: Mapping[str, Any] | None = None,
        parent: str | None = None,
        forks: bool | None = None,
        subagents: bool = False,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Row]:
        """Return the threads that match all filters, most recently active first. `title` matches a
        part of the title, ignoring case; `forks` selects only forks, or no forks; `settings` must
        be equal. `subagents` includes the threads of sub-agents. A page may have fewer than `limit`
        items; only the last page has no cursor."""
        self._core.check_open()
        return await threads_of(
            self._core.host.store,
            self._core.key,
            self._core.config.agent.key,
            title=title,
            label=label,
            settings=settings,
            parent=parent,
            forks=forks,
            subagents=subagents,
            cursor=cursor,
            limit=limit,
        )

    async def get(self, thread: str | None = None) -> Row | None:
        """Return the row of a thread, as `list` does, or None if the thread does not exist."""
        self._core.check_open()
        return await self._core.host.store.row(self._key(thread))

    async def messages(self, limit: int | None = None, *, thread: str | None = None) -> Messages:
        """Return the newest `limit` messages of a thread, oldest first; without a limit, all."""
        self._core.check_open()
        return await messages_of(self._core.host.store, self._key(thread), limit)

    async def first_user_messages(self, threads: Iterable[str] | None = None) -> dict[str, str]:
        """Return the beginning of the first user message of each thread that has one, without
        reading any log. A fork without messages of its own shows the message of its parent."""
        self._core.check_open()
        wanted = None if threads is None else set(threads)
        rows: dict[str, Row] = {}
        key, cursor = self._core.key, None
        query = Query(tenant=key.tenant, session=key.session)
        while wanted is None or wanted:
            page = await self._core.host.store.find(query, cursor=cursor, limit=LIMITS.page)
            rows.update({row.thread: row for row in page.items})
            if (cursor := page.cursor) is None:
                break
        firsts = {name: _first(rows, name) for name in rows if wanted is None or name in wanted}
        return {name: text for name, text in firsts.items() if text is not None}


def _first(rows: Mapping[str, Row], name: str) -> str | None:
    """Return the first message of a thread; for a fork without messages, the first message of its
    parent."""
    while (row := rows.get(name)) is not None:
        if row.first_message is not None or row.parent is None or row.parent.at == 0:
            return row.first_message
        name = row.parent.thread
    return None


async def check_deletable(store: Store, where: Key, agents: Iterable[str]) -> None:
    """Reject the deletion of thread `main`, of a thread that does not exist or belongs to another
    agent, and of a thread under legal hold."""
    if where.thread == MAIN:
        raise InvalidValue(
            field="thread",
            problem="cannot be 'main', which contains the session's own data",
            remedy="delete the session instead",
        )
    row = await existing_row(store, where)
    if row.agent not in (None, *agents):
        raise SessionNotFound(tenant=where.tenant, session=where.session, thread=where.thread)
    main = await store.row(key(where.session, MAIN, where.tenant))
    if main is not None:
        check_held(main)


async def end_run(live: Live, wake: Callable[[Live], None], patience: float) -> None:
    """Abort the active run, in any process, and clear the queue of the thread. Wait, up to
    `patience` seconds, until the run has ended and a parent that waits for it has its result."""
    if (run := live.state.active) is None:
        return
    waiting = [item.seq for item in live.state.queue]
    events = [
        NewEvent.of("queue.changed", ev.QueueChanged(remove=waiting)),
        NewEvent.of("abort.requested", ev.AbortRequested(run=run.id, reason="deleted")),
    ]
    await live.store.append(live.key, events, log=live.log)
    wake(live)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience):
            await live.until(lambda: live.state.active is None and not live.state.owes)


async def rewind_thread(
    core: SessionCore[Any], to: int, *, actor: str | None = None, key: str | None = None
) -> int:
    """Rewind the conversation of a thread to event `to`, and wake a driver. Returns the number of
    the rewind event once the local state includes it."""
    core.check()
    live = core.live
    where, reach = live.key, lambda row: live.reach(row.head)
    seq = await rewind(live.store, where, to, actor=actor, key=key, state_at=reach)
    await live.reach(seq)
    core.host.wake(live)
    return seq
