"""Who drives what in one process: a task for each log that has something to do, and a look, every
now and then, for logs that nobody drives."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from ...cancellation import cancellable, ended
from ...errors import HarnessClosed, HoldfastError, RunFailed, SessionNotFound
from ...log.codec import typed
from ...log.events import Event, Key, RunWaiting
from ...log.state import State
from ...stores.port import wall_clock
from ...values.watch import asks_within
from ..agents.runtime import HarnessRuntime
from ..agents.subagents import family
from ..live.log import Live
from ..live.open_logs import Lives
from ..loop.driver import Driving
from ..loop.run_loop import drive
from .recovery import DueLogs, Slots

LATE = 10.0  # seconds that a driver gets to end after it was halted
SOON, TRIES = 0.05, 40  # seconds between two looks at a lease that is about to be given back
AWHILE = 0.2  # seconds in which whoever wrote something may begin to drive it


class Drivers:
    """The drivers of one harness. `kept` says whether a log stays open when it is driven,
    `leaving` whether it is being closed: then nobody begins to drive it here."""

    def __init__(
        self,
        runtime: HarnessRuntime,
        tenant: str,
        lives: Lives,
        kept: Callable[[Key], bool],
        leaving: Callable[[Key], bool] = lambda key: False,
    ) -> None:
        config = runtime.config
        self._runtime, self._config, self._tenant = runtime, config, tenant
        self._lives, self._kept = lives, kept
        self._leaving = leaving
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._again: set[Key] = set()
        self._drives: dict[Key, Driving] = {}
        self._work = DueLogs(runtime.store, tenant, [*family(config.agent)])
        self._slots = Slots(config.recovering)
        self._hurry = asyncio.Event()  # there is more than the last look took up
        self._one = asyncio.Lock()  # look at a time
        self._nudges: set[asyncio.Task[None]] = set()
        self._alarms = Alarms(self._due)
        self._held: dict[Key, int] = {}  # by somebody else, for so many ms
        self._looker: asyncio.Task[None] | None = None
        self._closed = False

    def wake(self, live: Live) -> None:
        """See to it that somebody looks at this log."""
        if self._leaving(live.key):
            return  # what is left is due, and is found at the next look
        if self._closed or live.key in self._tasks:
            self._again.add(live.key)
            return
        task = asyncio.create_task(self._drive(live), name=f"drive {live.key.session}")
        self._tasks[live.key] = task
        task.add_done_callback(lambda _: self._driven(live))

    def noticed(self, live: Live) -> None:
        """Something came that wants a driver. Whoever wrote it drives, if that one serves the
        agent; one who only answers does not, so see after a while that somebody does."""
        if self._looker is not None and not self._closed and live.key not in self._tasks:
            self._alarms.set(live, AWHILE)

    def drives(self, where: Key) -> bool:
        """Whether somebody here drives this log, or is about to."""
        return where in self._tasks

    def busy(self, session: str) -> bool:
        """Whether somebody here drives any log of a session."""
        return any(where.session == session for where in self._tasks)

    def nudge(self, where: Key) -> None:
        """The same as `wake` for a log that may not be open here."""
        if not self._closed:
            task = asyncio.create_task(self._nudged(where), name=f"nudge {where.session}")
            self._nudges.add(task)
            task.add_done_callback(self._nudges.discard)

    async def _nudged(self, where: Key) -> None:
        try:
            self.wake(await self._lives.open(where))
        except HoldfastError as error:  # who looks for work finds it later
            self._config.log.warning("open_failed", category="storage", error=error)

    async def start(self) -> None:
        """Take up what was left undone, and go on looking for it."""
        self._looker = asyncio.create_task(self._looking(), name="look for work")
        await self.look()

    async def look(self) -> None:
        """Drive the logs of this agent, and of those that work for it, that nobody drives and
        that have something to do: as many at once as the harness may take up, the rest as soon
        as these are done."""
        self._work.begin()
        await self._sweep()

    async def _sweep(self) -> None:
        """Take up as many logs as there is room for; where there may be more, see to it that the
        next look comes as soon as there is room again."""
        async with self._one:
            more = True
            if room := self._slots.free:
                found, more = await self._work.due(room, self._tasks.keys())
                for where in found:
                    await self._take_up(where)
        if more:
            self._hurry.set()

    async def _take_up(self, where: Key) -> None:
        try:
            live = await self._lives.open(where)
        except HoldfastError as error:
            self._work.failed(where)
            self._config.log.warning("open_failed", category="storage", error=error)
            return
        self.wake(live)
        if where in self._tasks:
            self._slots.take(where)

    async def stop(self, wheres: Iterable[Key], grace: float) -> None:
        """Let drivers reach a safe point; after `grace` seconds stop what they do. What is left
        is handed over."""
        wheres = [where for where in wheres if where in self._tasks]
        tasks = [self._tasks[where] for where in wheres]
        for where, task in zip(wheres, tasks, strict=True):
            self._again.discard(where)
            while where not in self._drives and not task.done():  # noqa: ASYNC110 - no event yet
                await asyncio.sleep(0.001)  # it is about to take the lease
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
        """A log is closed here: nothing of it is kept for later."""
        self._alarms.clear(where)
        self._held.pop(where, None)

    async def aclose(self, grace: float) -> None:
        """Take no more work, and stop."""
        self._closed = True
        self._alarms.close()
        if self._looker is not None:
            await ended(self._looker)
        await asyncio.gather(*self._nudges)
        await self.stop([*self._tasks], grace)

    async def _drive(self, live: Live) -> None:
        key = live.key
        try:
            main = Key(key.tenant, key.session, "main")
            shared = live if key == main else await self._lives.open(main)
            for _ in range(TRIES):
                config = self._config.of(key, live.state)
                self._held[key] = await drive(self._runtime, config, live, shared, self._drives)
                if not self._held[key]:
                    break
                if self._closed or not _left(live.state):
                    break
                await asyncio.sleep(SOON)  # who hands it over is about to let go
            self._work.driven(key)
        except (SessionNotFound, HarnessClosed):
            pass  # deleted or closed meanwhile
        except Exception as error:  # nothing of one session may hurt the others
            self._work.failed(key)
            self._held[key] = int(self._config.ttl * 500)  # no sooner than the next look
            stuck = not getattr(error, "retryable", False)
            if stuck:
                self._work.stuck(key, live.state.head)
            live.trouble(_told(error, key), stuck=stuck)
            log = self._config.log.bind(session=key.session, thread=key.thread)
            log.error("drive_failed", category="run", error=error)

    def _driven(self, live: Live) -> None:
        self._tasks.pop(live.key, None)
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
                for where in self._lives:  # a thread that is driven needs `main`
                    if where.session == live.key.session:
                        self._lives.leave(where)

    def _plan(self, live: Live) -> None:
        """Look at a log that is open here when its clock says so, or when its driver's lease has
        lapsed, not only at the next look."""
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
            return  # a driver that is there plans the next look when it ends
        if not self._work.vain(live.key, live.state.head) and wanting(live.state):
            self.wake(live)

    async def _room(self) -> None:
        """Wait until more logs may be taken up. Those that wait for a person within a call, which
        may last for days, leave their room to others."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._config.ttl / 2):
                    await self._slots.some()
                    return
            known = [self._lives.get(where) for where in self._slots]
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
                    await self._sweep()
            except Exception as error:  # whatever it is, look again
                self._config.log.warning("look_failed", category="storage", error=error)


class Alarms:
    """When logs are to be looked at again: one time each, the last that was set."""

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


def wanting(state: State) -> bool:
    """Whether a log wants a driver, now or at some time."""
    return state.due is not None or (state.active is not None and state.active.status == "running")


def handed_over(event: Event) -> bool:
    """Whether a driver that ends leaves its run to the others with this event."""
    payload = typed(event) if event.kind == "run.waiting" else None
    return isinstance(payload, RunWaiting) and payload.reason == "handover"


def _left(state: State) -> bool:
    run = state.active
    due = state.due is not None and state.due <= wall_clock()
    return run is not None and run.status == "waiting" and due


def _told(error: Exception, key: Key) -> HoldfastError:
    """What those who wait are told. The words of an error that is not ours may hold anything."""
    if isinstance(error, HoldfastError):
        return error
    problem = f"the driver failed ({type(error).__name__}); the log of this program says more"
    return RunFailed(
        session=key.session, run="", status="failed", reason="runtime_failed", problem=problem
    )
