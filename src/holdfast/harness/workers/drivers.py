"""The drivers of one process: one task for each log that has work to do, and a periodic search for
due logs that have no driver."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from ...cancellation import cancellable, completed, ended
from ...environment import wall_clock
from ...errors import HarnessClosed, HoldfastError, LogReplaced, RunFailed, SessionNotFound
from ...log.codec import typed
from ...log.events import Event, Key, NewEvent, RunWaiting
from ...log.state import State
from ...values.watch import asks_within
from ..agents.runtime import HarnessRuntime
from ..agents.subagents import family
from ..live.log import Live
from ..live.open_logs import OpenLogs
from ..loop.driver import Driving
from ..loop.run_loop import PINNED, drive
from ..loop.run_start import AcceptedMessage, FirstMessage
from .recovery import DueLogs
from .slots import Slots

LATE = 10.0  # seconds that a driver gets to end after it was halted
SOON, TRIES = (
    0.05,
    40,
)  # seconds between, and number of, attempts to get a lease that is being released
AWHILE = 0.2  # seconds in which the writer of an event may start to drive the log


class Drivers:
    """The drivers of one harness. `kept` returns whether a log stays open after it was driven.
    `leaving` returns whether a log is being closed; no driver is started for it then. Several
    harnesses may share `slots`."""

    def __init__(
        self,
        runtime: HarnessRuntime,
        tenant: str,
        logs: OpenLogs,
        kept: Callable[[Key], bool],
        leaving: Callable[[Key], bool] = lambda key: False,
        slots: Slots | None = None,
    ) -> None:
        config = runtime.config
        self._runtime, self._config, self._tenant = runtime, config, tenant
        self._logs, self._kept = logs, kept
        self._leaving = leaving
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._again: set[Key] = set()
        self._drives: dict[Key, Driving] = {}
        self._slots = slots or Slots(config.recovering)
        self._work = DueLogs(runtime.store, tenant, [*family(config.agent)], self._slots)
        self._hurry = asyncio.Event()  # more logs are due than the last search took up
        self._nudges: set[asyncio.Task[None]] = set()
        self._alarms = Alarms(self._due)
        self._held: dict[Key, int] = {}  # leases of other drivers: ms left
        self._looker: asyncio.Task[None] | None = None
        self._closed = False

    def wake(self, live: Live) -> None:
        """Ensure that a driver checks this log."""
        if self._leaving(live.key):
            return  # unfinished work stays due, and the next search finds it
        if self._closed or live.key in self._tasks:
            self._again.add(live.key)
            return
        self._begin(live)

    def _begin(self, live: Live, first: FirstMessage | None = None) -> None:
        task = asyncio.create_task(self._drive(live, first), name=f"drive {live.key.session}")
        self._tasks[live.key] = task
        task.add_done_callback(lambda _: self._driven(live))

    async def start_run(
        self, live: Live, event: NewEvent, accepted: Callable[[int], None]
    ) -> AcceptedMessage | None:
        """Write a message and start its run in one step. A task of the harness does this, and
        continues if the caller is cancelled. Returns None if the message must be written
        separately. `accepted` is called with its number before the run continues."""
        if not self._runtime.store.info().lease_with_append:
            return None
        driving = self._drives.get(live.key)
        if driving is not None and driving.hold.released:  # this driver has nothing left to do
            await asyncio.wait([self._tasks[live.key]])
        if self._closed or self._leaving(live.key) or live.key in self._tasks:
            return None
        first = FirstMessage(event, accepted)
        self._begin(live, first)
        return await asyncio.shield(first.done)

    def noticed(self, live: Live) -> None:
        """Schedule a check of a log after an event that needs a driver. The process that wrote the
        event drives the log itself if it serves the agent. If it only recorded a decision, this
        process finds the log still due after a short delay, and drives it."""
        if self._looker is not None and not self._closed and live.key not in self._tasks:
            self._alarms.set(live, AWHILE)

    def drives(self, where: Key) -> bool:
        """Return whether this process drives the log, or is about to."""
        return where in self._tasks

    def busy(self, session: str) -> bool:
        """Return whether this process drives any log of a session."""
        return any(where.session == session for where in self._tasks)

    def nudge(self, where: Key) -> None:
        """Like `wake`, but opens the log in this process first if necessary."""
        if not self._closed:
            task = asyncio.create_task(self._nudged(where), name=f"nudge {where.session}")
            self._nudges.add(task)
            task.add_done_callback(self._nudges.discard)

    async def _nudged(self, where: Key) -> None:
        try:
            self.wake(await self._logs.open(where))
        except HoldfastError as error:  # the next search finds it
            self._config.log.warning("open_failed", category="storage", error=error)

    async def start(self) -> None:
        """Recover unfinished runs, and start the periodic search for due logs."""
        self._looker = asyncio.create_task(self._looking(), name="look for work")
        await self.look()

    async def look(self) -> None:
        """Start drivers for all due logs of this agent and its sub-agents that have no driver. The
        number of concurrent drivers is limited; the other logs follow as soon as slots are free."""
        self._work.begin()
        self._free_waiting()
        await self.sweep()

    async def sweep(self) -> None:
        """Start drivers for as many logs as there are free slots. If there may be more logs, search
        again as soon as slots are free."""
        async with self._slots.one:
            more = True
            if room := self._slots.deal(self._tenant):
                more = blocked = False
                try:
                    logs, more, blocked = await self._work.due(room, self._tasks.keys())
                    for where in logs:
                        await self._take_up(where)
                finally:
                    self._slots.settle(self._tenant, more=more, blocked=blocked)
        if more:
            self._hurry.set()

    async def _take_up(self, where: Key) -> None:
        try:
            live = await self._logs.open(where)
        except HoldfastError as error:
            self._work.failed(where)
            self._config.log.warning("open_failed", category="storage", error=error)
            return
        self.wake(live)
        if where in self._tasks:
            self._slots.take(where, (live.row and live.row.agent) or "")

    async def stop(self, wheres: Iterable[Key], grace: float) -> None:
        """Let drivers reach a safe point; after `grace` seconds, halt them. Other drivers can then
        resume the unfinished runs."""
        wheres = [where for where in wheres if where in self._tasks]
        tasks = [self._tasks[where] for where in wheres]
        for where, task in zip(wheres, tasks, strict=True):
            self._again.discard(where)
            while where not in self._drives and not task.done():  # noqa: ASYNC110 - no event yet
                await asyncio.sleep(0.001)  # it is about to acquire the lease
            if (driving := self._drives.get(where)) is not None:
                driving.stop()
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=grace)
        for where in wheres:
            if (driving := self._drives.get(where)) is not None:
                driving.halt()
        if late:
            _, late = await asyncio.wait(late, timeout=LATE)
        await ended(*late)

    def forget(self, where: Key) -> None:
        """Drop the timer and the lease information of a log that was closed in this process."""
        self._alarms.clear(where)
        self._held.pop(where, None)

    async def aclose(self, grace: float) -> None:
        """Accept no more work, and stop all drivers."""
        self._closed = True
        self._alarms.close()
        if self._looker is not None:
            await ended(self._looker)
        await completed(*self._nudges)
        await self.stop([*self._tasks], grace)

    async def _drive(self, live: Live, first: FirstMessage | None) -> None:
        key = live.key
        try:
            main = Key(key.tenant, key.session, "main")
            shared = live if key == main else await self._logs.open(main)
            for _ in range(TRIES):
                config = self._config.of(key, live.state)
                self._held[key] = await drive(
                    self._runtime, config, live, shared, self._drives, first
                )
                if not self._held[key]:
                    break
                if self._held[key] == PINNED:
                    self._leave(live)
                    return
                if self._closed or not _left(live.state):
                    break
                await asyncio.sleep(SOON)  # the previous driver is about to release the lease
            self._work.driven(key)
        except (SessionNotFound, LogReplaced, HarnessClosed):
            pass  # deleted, created again, or closed in the meantime
        except Exception as error:  # an error in one session must not affect the others
            self._work.failed(key)
            self._held[key] = int(self._config.ttl * 500)  # not before the next search
            stuck = not getattr(error, "retryable", False)
            if stuck:
                self._work.stuck(key, live.log, live.state.head)
            live.trouble(_waiter_error(error, key), stuck=stuck)
            log = self._config.log.bind(session=key.session, thread=key.thread)
            log.error("drive_failed", category="run", error=error)
        finally:
            if first is not None:
                first.settle(None)

    def _leave(self, live: Live) -> None:
        """Leave a run to processes with the version of the agent that started it, until the log
        grows. Callers continue to wait for it."""
        key, run = live.key, live.state.run
        self._held.pop(key)
        if not self._work.is_stuck(key, live.log, live.state.head):
            self._work.stuck(key, live.log, live.state.head)
            log = self._config.log.bind(session=key.session, thread=key.thread)
            log.warning("run_pinned", category="run", version=run.version if run else None)

    def _driven(self, live: Live) -> None:
        self._tasks.pop(live.key, None)
        self._drives.pop(live.key, None)
        self._slots.give(live.key)
        if live.key in self._again:
            self._again.discard(live.key)
            if not self._closed and live.failure is None:
                self.wake(live)
        elif not self._closed and self._kept(live.key):
            self._plan(live)
        elif not self._closed:
            self._held.pop(live.key, None)
            if not any(where.session == live.key.session for where in self._tasks):
                for where in self._logs:  # a driven thread needs `main`
                    if where.session == live.key.session:
                        self._logs.leave(where)

    def _plan(self, live: Live) -> None:
        """Schedule the next check of an open log: when it is due, or when another driver's lease
        expires."""
        held, due = self._held.pop(live.key, 0), live.state.due
        if held:
            self._alarms.set(live, held / 1000)
        elif due is not None:
            left = (due - wall_clock()) / 1000
            self._alarms.set(live, left if left > 0 else AWHILE)
        else:
            self._alarms.clear(live.key)

    def _due(self, live: Live) -> None:
        if self._closed or live.failure is not None or live.key in self._tasks:
            return  # an active driver schedules the next check when it ends
        if not self._work.is_stuck(live.key, live.log, live.state.head) and needs_driver(
            live.state
        ):
            self.wake(live)

    async def _room(self) -> None:
        """Wait for free slots."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config.ttl / 2):
                    await self._slots.wait_for_some(self._tenant)
                    return
            self._free_waiting()

    def _free_waiting(self) -> None:
        """Free the slots of logs in which a call waits for user input, possibly for days."""
        known = [self._logs.get(where) for where in self._slots]
        self._slots.give(*(live.key for live in known if live and asks_within(live.state)))

    async def _looking(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._config.ttl / 2):
                    await self._hurry.wait()
            except TimeoutError:
                self._work.begin()
            self._hurry.clear()
            await self._room()
            try:
                with cancellable():
                    await self.sweep()
            except Exception as error:  # log any error, and search again
                self._config.log.warning("look_failed", category="storage", error=error)


class Alarms:
    """Timers for the next check of logs. Each log has at most one timer; setting it again replaces
    it."""

    def __init__(self, due: Callable[[Live], None]) -> None:
        self._due = due
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    def set(self, live: Live, seconds: float) -> None:
        self.clear(live.key)
        loop = asyncio.get_running_loop()
        self._timers[live.key] = loop.call_later(seconds, self._ring, live)

    def clear(self, where: Key) -> None:
        if (old := self._timers.pop(where, None)) is not None:
            old.cancel()

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    def _ring(self, live: Live) -> None:
        self._timers.pop(live.key, None)
        self._due(live)


def needs_driver(state: State) -> bool:
    """Return whether a log needs a driver, now or later."""
    return state.due is not None or (state.active is not None and state.active.status == "running")


def handed_over(event: Event) -> bool:
    """Return whether a driver handed its run over with this event."""
    payload = typed(event) if event.kind == "run.waiting" else None
    return isinstance(payload, RunWaiting) and payload.reason == "handover"


def _left(state: State) -> bool:
    run = state.active
    due = state.due is not None and state.due <= wall_clock()
    return run is not None and run.status == "waiting" and due


def _waiter_error(error: Exception, key: Key) -> HoldfastError:
    """Return the error to raise in coroutines that wait for a run whose driver failed. It omits the
    message of a foreign exception, which may contain secrets."""
    if isinstance(error, HoldfastError):
        return error
    problem = f"the driver failed ({type(error).__name__}); see the program's log for details"
    return RunFailed(
        session=key.session, run="", status="failed", reason="runtime_failed", problem=problem
    )
