"""The sessions that are live in one process. Each thread is opened once, regardless of the number
of callers, and closed once. Events of their logs are passed on to listeners."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from weakref import WeakSet

from ..cancellation import forget, outcomes
from ..errors import HarnessClosed, HeadMoved, InvalidValue, SessionNotFound
from ..log import events as ev
from ..log.catalog import Row
from ..log.codec import typed
from ..log.events import Event, Key, NewEvent, key
from ..sessions.budgets import has_usage_logs
from ..stores.port import Store
from ..values.records import Receipt
from .agents.config import Config
from .agents.meter import Meter
from .agents.runtime import HarnessRuntime
from .agents.subagents import family
from .faults import FAULT_CODES
from .listeners import Listeners
from .live.log import Live, Subscriber
from .live.open_logs import OpenLogs
from .sandbox.port import Reason
from .session.base import SessionCore
from .session.session import Session
from .session.threads import check_deletable, end_run
from .workers.drivers import Drivers, handed_over
from .workers.slots import Slots

GRACE = 10.0  # seconds that runs get to reach a safe point when the harness closes


class OpenSessions:
    """The live sessions of one tenant, their logs and their drivers. It is the `SessionHost` of
    these sessions."""

    def __init__(
        self,
        config: Config,
        store: Store,
        tenant: str,
        notices: Listeners,
        slots: Slots | None = None,
    ) -> None:
        self.config, self.store, self.tenant = config, store, tenant
        self.meter = (
            Meter(config.budgets, store, tenant, config.log)
            if config.budgets and has_usage_logs(tenant)
            else None
        )
        self.runtime = HarnessRuntime(config, store, self._nudge, self.meter)
        self.logs = OpenLogs(store, self._happened)
        self._leaving: dict[str, asyncio.Future[None]] = {}  # sessions that are being closed
        self.drivers = Drivers(
            self.runtime,
            tenant,
            self.logs,
            self._kept,
            lambda key: key.session in self._leaving,
            slots,
        )
        self._notices = notices
        self.sessions: dict[Key, SessionCore[Session]] = {}
        self._opening: dict[Key, asyncio.Task[SessionCore[Session]]] = {}
        self._closing: set[asyncio.Task[bool]] = set()
        self._subscribed: WeakSet[Subscriber] = WeakSet()
        self._closed = self._ended = self._left = False

    def subscribed(self, subscriber: Subscriber) -> None:
        """Register a subscription. It ends immediately if `end_subscriptions` was called before."""
        self._subscribed.add(subscriber)
        if self._left:
            subscriber.end()

    def end_subscriptions(self) -> None:
        """End all current and later subscriptions; runs continue."""
        self._left = True
        for subscriber in [*self._subscribed]:
            subscriber.end()

    def wake(self, live: Live) -> None:
        """Ensure that a driver checks this log."""
        self.drivers.wake(live)

    async def start_run(
        self, live: Live, event: NewEvent, accepted: Callable[[int], None]
    ) -> tuple[int, bool] | None:
        """Write a message and start its run in one step; see `Drivers.start_run`."""
        return await self.drivers.start_run(live, event, accepted)

    def _nudge(self, where: Key) -> None:
        self.drivers.nudge(where)

    # Opening

    async def open(self, id: str, thread: str = "main") -> SessionCore[Session]:
        """Return the live session of an existing thread. Raises `SessionNotFound` if the thread
        does not exist."""
        return await self.get_or_create(key(id, thread, self.tenant), None)

    async def get_or_create(
        self, where: Key, created: ev.SessionCreated | None
    ) -> SessionCore[Session]:
        """Return the live session of a thread. If the thread does not exist, it is created;
        `created` is the first event of a new session."""
        _check(not self._closed)
        while (leaving := self._leaving.get(where.session)) is not None:
            await asyncio.wait({leaving})
        known = self.sessions.get(where)
        if known is not None and known.live.failure is None:
            known.touch()
            return known
        opening = self._opening.get(where)
        mine = opening is None or opening.done()
        if opening is None or opening.done():  # one that has just failed is not joined
            opening = self._opening[where] = asyncio.create_task(self._open(where, created))
            opening.add_done_callback(lambda task: self._opened(where, task))
        try:
            return await asyncio.shield(opening)
        except SessionNotFound:
            if created is None or mine:
                raise
        # A concurrent `open` found no session: create it now.
        return await self.get_or_create(where, created)

    def _opened(self, where: Key, opening: asyncio.Task[SessionCore[Session]]) -> None:
        forget(opening)  # all callers may be cancelled
        if self._opening.get(where) is opening:
            del self._opening[where]

    async def _open(self, where: Key, created: ev.SessionCreated | None) -> SessionCore[Session]:
        agent = self.config.agent.key
        main = key(where.session, "main", self.tenant)
        row = await self.store.row(main)
        if created is None and await self.store.row(where) is None:
            raise SessionNotFound(tenant=self.tenant, session=where.session, thread=where.thread)
        if row is None:
            await self._begin(main, created or ev.SessionCreated(agent=agent))
            self._notices.notify("session.created", where.session)
        else:
            self.check_agent(row)
        if where != main and await self.store.row(where) is None:
            await self._begin(where, ev.ThreadCreated(agent=agent, parent="main"))
        shared = await self.logs.open(main)
        live = await self.logs.open(where)
        core = self.sessions[where] = SessionCore(self, live, shared, Session)
        self._notices.notify("session.opened", where.session)
        if live.state.queue or live.state.active is not None:
            self.wake(live)
        return core

    def check_agent(self, row: Row) -> None:
        """Reject a session that belongs to another agent."""
        agent = self.config.agent.key
        if row.agent in (None, agent):
            return
        if row.agent in ev.ADAPTER_NAMESPACES:
            problem = f"session {row.session!r} was written by the adapter {row.agent!r}"
            remedy = f"to continue it with {agent!r}, call `harness.adopt({row.session!r})` first"
        else:
            problem = f"session {row.session!r} belongs to agent {row.agent!r}"
            remedy = f"serve it with that agent, or use another id for {agent!r}"
        raise InvalidValue(field="id", problem=problem, remedy=remedy)

    async def _begin(self, where: Key, created: ev.Payload) -> None:
        kind = "session.created" if isinstance(created, ev.SessionCreated) else "thread.created"
        events = [NewEvent.of(kind, created)]
        if kind == "session.created" and (start := self.config.agent.initial_state()):
            events.append(NewEvent.of("state.changed", ev.StateChanged(set=start)))
        with contextlib.suppress(HeadMoved):  # another process created it first
            await self.store.append(where, events, expected=0, create=True)

    # Closing

    async def close(self, id: str, *, grace: float = GRACE, reason: Reason = "close") -> bool:
        """Close a live session. Its run stops at a safe point, after `grace` seconds at the latest,
        and can be resumed by another process. Returns False if the session was not live."""
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
            mine = [where for where in self.logs if where.session == id]
            await self.drivers.stop(mine, grace)
            found += [await self.forget(where) for where in mine]
            await self.runtime.close_place(key(id, "main", self.tenant), reason)
            # A sub-agent may have started while the others were stopping.
            if not any(where.session == id for where in self.logs):
                return any(found)

    def changing(self, id: str) -> bool:
        """Return whether a session is being opened or closed."""
        return id in self._leaving or any(where.session == id for where in self._opening)

    async def forget(self, where: Key) -> bool:
        """Close the log of one thread. Returns whether the thread was a live session."""
        if (session := self.sessions.pop(where, None)) is not None:
            session.close()
        self.drivers.forget(where)
        await self.logs.close(where)
        return session is not None

    async def close_all(self) -> None:
        """Close all live sessions; others can still be opened."""
        _check(not self._ended)
        for id in dict.fromkeys(where.session for where in self.logs):
            await self.close(id)
        self._notices.notify("sessions.closed", None)

    async def delete_thread(self, id: str, thread: str, *, grace: float = GRACE) -> Receipt:
        """Delete one thread; its forks keep the shared events. An active run, in any process, is
        aborted first; the call waits at most `grace` seconds for it to end."""
        _check(not self._closed)
        where = key(id, thread, self.tenant)
        await check_deletable(self.store, where, family(self.config.agent))
        live = await self.logs.open(where)
        await end_run(live, self.wake, grace)
        await self.drivers.stop([where], 0.0)
        receipt = await self.store.delete(where)
        await self.forget(where)
        if not receipt.removed.get("logs"):
            raise SessionNotFound(tenant=self.tenant, session=id, thread=thread)
        self._notices.notify("thread.deleted", id, thread)
        return receipt

    async def aclose(self, grace: float) -> None:
        """Open no more sessions, stop active runs at a safe point, and close all sessions. Nothing
        is written afterwards."""
        self._closed = True
        await self.drivers.aclose(grace)
        if self.meter is not None:
            await self.meter.aclose()
        await self.close_all()
        await outcomes(*self._closing)
        await self.logs.aclose()
        self._ended = True

    # Events of the logs

    def _kept(self, where: Key) -> bool:
        """Return whether a log stays open after it was driven, which is the case while its session
        is open in this process."""
        if where in self.sessions:
            return True
        return any(known.session == where.session for known in (*self.sessions, *self._opening))

    def _happened(self, where: Key, event: Event) -> None:
        if self._notices:
            self._notices.notify("session.event", where.session, event)
        live = self.logs.get(where)
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
    """Return whether a run failed with severity error or fatal."""
    ended = typed(event) if event.kind == "run.finished" else None
    if not isinstance(ended, ev.RunFinished) or ended.status != "failed":
        return False
    kind = FAULT_CODES.get(ended.code or "run_failed")
    return kind is not None and kind.severity in ("error", "fatal")
