"""The sessions that are live in one process: each thread is opened once, however many ask, and
closed once; and what their logs say is passed on."""

from __future__ import annotations

import asyncio
import contextlib
from weakref import WeakSet

from ..errors import HarnessClosed, HeadMoved, InvalidValue, SessionNotFound
from ..log import events as ev
from ..log.catalog import Row
from ..log.codec import typed
from ..log.events import Event, Key, NewEvent, key
from ..stores.port import Store
from ..values.records import Receipt
from .agents.config import Config
from .agents.runtime import HarnessRuntime
from .agents.subagents import family
from .faults import FAULT_CODES
from .listeners import Listeners
from .live.log import Hearer, Live
from .live.open_logs import Lives
from .sandbox.port import Reason
from .session.base import SessionCore
from .session.session import Session
from .session.threads import check_deletable, end_run
from .workers.drivers import Drivers, handed_over

GRACE = 10.0  # seconds that runs get to reach a safe point when the harness closes


class OpenSessions:
    """The live sessions of one tenant, their logs, and who drives them. It is what each of
    these sessions asks of its harness."""

    def __init__(self, config: Config, store: Store, tenant: str, notices: Listeners) -> None:
        self.config, self.store, self.tenant = config, store, tenant
        self.runtime = HarnessRuntime(config, store, self._nudge)
        self.lives = Lives(store, self._happened)
        self._leaving: dict[str, asyncio.Future[None]] = {}  # sessions that are being closed
        self.drivers = Drivers(
            self.runtime, tenant, self.lives, self._kept, lambda key: key.session in self._leaving
        )
        self._notices = notices
        self.sessions: dict[Key, SessionCore[Session]] = {}
        self._opening: dict[Key, asyncio.Task[SessionCore[Session]]] = {}
        self._closing: set[asyncio.Task[bool]] = set()
        self._subscribed: WeakSet[Hearer] = WeakSet()
        self._closed = self._ended = self._left = False

    def subscribed(self, hearer: Hearer) -> None:
        """One more reads on and on; it ends at once if no more is to be read here."""
        self._subscribed.add(hearer)
        if self._left:
            hearer.end()

    def end_subscriptions(self) -> None:
        """End all that read on and on, and whoever subscribes later; runs go on."""
        self._left = True
        for hearer in [*self._subscribed]:
            hearer.end()

    def wake(self, live: Live) -> None:
        """See to it that somebody looks at this log."""
        self.drivers.wake(live)

    def _nudge(self, where: Key) -> None:
        self.drivers.nudge(where)

    # Opening

    async def open(self, id: str, thread: str = "main") -> SessionCore[Session]:
        """The live session of a thread that is there; `SessionNotFound` where it is not."""
        return await self.get_or_create(key(id, thread, self.tenant), None)

    async def get_or_create(
        self, where: Key, created: ev.SessionCreated | None
    ) -> SessionCore[Session]:
        """The live session of a thread; where it is not there yet, it is begun with `created`."""
        _check(not self._closed)
        while (leaving := self._leaving.get(where.session)) is not None:
            await asyncio.wait({leaving})
        known = self.sessions.get(where)
        if known is not None and known.live.failure is None:
            known.touch()
            return known
        opening = self._opening.get(where)
        mine = opening is None
        if opening is None:
            opening = self._opening[where] = asyncio.create_task(self._open(where, created))
            opening.add_done_callback(lambda _: self._opening.pop(where, None))
        try:
            return await asyncio.shield(opening)
        except SessionNotFound:
            if created is None or mine:
                raise
        # It was opened for somebody who did not want it begun.
        return await self.get_or_create(where, created)

    async def _open(self, where: Key, created: ev.SessionCreated | None) -> SessionCore[Session]:
        agent = self.config.agent.key
        main = key(where.session, "main", self.tenant)
        row = await self.store.row(main)
        if created is None and await self.store.row(where) is None:
            raise SessionNotFound(tenant=self.tenant, session=where.session, thread=where.thread)
        if row is None:
            await self._begin(main, created or ev.SessionCreated(agent=agent))
            self._notices.tell("session.created", where.session)
        else:
            self.check_agent(row)
        if where != main and await self.store.row(where) is None:
            await self._begin(where, ev.ThreadCreated(agent=agent, parent="main"))
        shared = await self.lives.open(main)
        live = await self.lives.open(where)
        core = self.sessions[where] = SessionCore(self, live, shared, Session)
        self._notices.tell("session.opened", where.session)
        if live.state.queue or live.state.active is not None:
            self.wake(live)
        return core

    def check_agent(self, row: Row) -> None:
        """Refuse a session that is another agent's."""
        agent = self.config.agent.key
        if row.agent not in (None, agent):
            raise InvalidValue(
                field="id",
                problem=f"session {row.session!r} is agent {row.agent!r}'s",
                remedy=f"serve it with that agent, or take another id for {agent!r}",
            )

    async def _begin(self, where: Key, created: ev.Payload) -> None:
        kind = "session.created" if isinstance(created, ev.SessionCreated) else "thread.created"
        events = [NewEvent.of(kind, created)]
        if kind == "session.created" and (start := self.config.agent.initial_state()):
            events.append(NewEvent.of("state.changed", ev.StateChanged(set=start)))
        with contextlib.suppress(HeadMoved):  # another process was first
            await self.store.append(where, events, expected=0, create=True)

    # Closing

    async def close(self, id: str, *, grace: float = GRACE, reason: Reason = "close") -> bool:
        """Forget a live session; its run is handed over at a safe point, at the latest after
        `grace` seconds. False if it was not live."""
        _check(not self._ended)
        while (leaving := self._leaving.get(id)) is not None:
            await asyncio.wait({leaving})
        leaving = self._leaving[id] = asyncio.get_running_loop().create_future()
        try:
            return await self._close(id, grace, reason)
        finally:
            del self._leaving[id]
            leaving.set_result(None)

    async def _close(self, id: str, grace: float, reason: Reason) -> bool:
        if opening := [task for where, task in self._opening.items() if where.session == id]:
            await asyncio.wait(opening)
        found: list[bool] = []
        while True:
            mine = [where for where in self.lives if where.session == id]
            await self.drivers.stop(mine, grace)
            found += [await self.forget(where) for where in mine]
            await self.runtime.close_place(key(id, "main", self.tenant), reason)
            # A sub-agent may have begun while the others came to their end.
            if not any(where.session == id for where in self.lives):
                return any(found)

    def changing(self, id: str) -> bool:
        """Whether a session is being opened or closed."""
        return id in self._leaving or any(where.session == id for where in self._opening)

    async def forget(self, where: Key) -> bool:
        """Close one thread; whether it was a live session of its own."""
        if (session := self.sessions.pop(where, None)) is not None:
            session.close()
        self.drivers.forget(where)
        await self.lives.close(where)
        return session is not None

    async def close_all(self) -> None:
        """Forget all live sessions; others may be opened."""
        _check(not self._ended)
        for id in {where.session for where in self.lives}:
            await self.close(id)
        self._notices.tell("sessions.closed", None)

    async def delete_thread(self, id: str, thread: str, *, grace: float = GRACE) -> Receipt:
        """Remove one thread; its forks stay whole. A run that is going there, whichever process
        drives it, is aborted first, and waited for `grace` seconds at most."""
        _check(not self._closed)
        where = key(id, thread, self.tenant)
        await check_deletable(self.store, where, family(self.config.agent))
        live = await self.lives.open(where)
        await end_run(live, self.wake, grace)
        await self.drivers.stop([where], 0.0)
        receipt = await self.store.delete(where)
        await self.forget(where)
        if not receipt.removed.get("logs"):
            raise SessionNotFound(tenant=self.tenant, session=id, thread=thread)
        self._notices.tell("thread.deleted", id, thread)
        return receipt

    async def aclose(self, grace: float) -> None:
        """Open nothing more, hand over what is going, and close all. Nothing is written
        afterwards."""
        self._closed = True
        await self.drivers.aclose(grace)
        await self.close_all()
        await asyncio.gather(*self._closing, return_exceptions=True)
        await self.lives.aclose()
        self._ended = True

    # What the logs say

    def _kept(self, where: Key) -> bool:
        """Whether a log stays open once it is driven: as long as its session is open here."""
        if where in self.sessions:
            return True
        return any(known.session == where.session for known in (*self.sessions, *self._opening))

    def _happened(self, where: Key, event: Event) -> None:
        if self._notices:
            self._notices.tell("session.event", where.session, event)
        live = self.lives.get(where)
        if live is not None and not live.driven and handed_over(event):
            self.wake(live)
        elif live is not None and live.state.due == event.at:
            self.drivers.noticed(live)
        if self.config.policy.close_session_on_fatal and _fatal(event):
            task = asyncio.create_task(self.close(where.session))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def _check(usable: bool) -> None:
    if not usable:
        raise HarnessClosed(what="the harness")


def _fatal(event: Event) -> bool:
    """Whether a run ended with something that will not pass."""
    ended = typed(event) if event.kind == "run.finished" else None
    if not isinstance(ended, ev.RunFinished) or ended.status != "failed":
        return False
    kind = FAULT_CODES.get(ended.code or "run_failed")
    return kind is not None and kind.severity in ("error", "fatal")
