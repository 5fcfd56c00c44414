"""One driver of one log: its lease, its way to write, and what makes it stop."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from msgspec.structs import replace

from ..errors import HeadMoved, LeaseLost, LogReplaced, SessionNotFound, StoreUnavailable
from ..events import Event, NewEvent
from ..state import Run, State
from ..store import Lease, wall_clock
from .config import Config
from .decide import deadline
from .later import Later
from .live import Growing, Live
from .logs import Log
from .spans import Span
from .steps import Bounds

T = TypeVar("T")
GRACE = 1.0  # seconds that work gets to end after it was told to stop


class Flight:
    """A message in flight: the id that its event will have, and the text so far."""

    def __init__(self, message: str, model: str) -> None:
        self.message, self.model = message, model
        self.said = Growing()

    @property
    def text(self) -> str:
        return self.said.text


class Driving:
    """The right to drive a log, while it lasts. Everything written here is fenced."""

    def __init__(self, config: Config, live: Live, shared: Live, lease: Lease, log: Log) -> None:
        self.config, self.live, self.lease, self.log = config, live, lease, log
        self.shared = shared  # the log of thread `main`, which has what all threads share
        self.invoke: Callable[..., Awaitable[Any]]  # how a tool calls another; the loop sets it
        self.took: str | None = None  # the run that is driven here
        self.uncut: str | None = None  # the run of which nothing more can be put away
        self._spans = contextlib.ExitStack()
        self._span: Span | None = None
        self.judged: set[str] = set()  # calls whose judgement this driver wrote down
        self.blobs: dict[str, bytes] = {}
        self.flight: Flight | None = None
        self.stopping = False  # at the next safe point
        self._halted = asyncio.get_running_loop().create_future()
        self._renewal = Later(lease.ttl / 3000, self._renew)
        self.failure: BaseException | None = None
        self.aborted = asyncio.Event()  # as tools see it
        self.unhooked: list[Event] = []

    @property
    def state(self) -> State:
        return self.live.state

    @property
    def run(self) -> Run:
        run = self.live.state.run
        assert run is not None, "a step of a run is performed when there is one"
        return run

    @property
    def bounds(self) -> Bounds:
        """The bounds of what is decided next. Where nothing can be put away, the window has
        none: what is too much for a model is for the model to say."""
        bounds, run = self.config.bounds, self.state.active
        if run is None or self.uncut is None or run.id != self.uncut:
            return bounds
        return replace(bounds, tokens=sys.maxsize, turns=sys.maxsize)

    @property
    def mine(self) -> bool:
        """Whether there is no run, or this driver has taken it up."""
        run = self.state.active
        return run is None or (run.status == "running" and run.id == self.took)

    @property
    def user_state(self) -> dict[str, Any]:
        """The state of the whole session: what the agent starts with, and what was changed."""
        return self.shared.state.data

    def now(self) -> int:
        return wall_clock()

    def take(self, run: str | None) -> None:
        """This driver has begun a run, or taken it up."""
        self.end_span()
        self.took = run
        key, agent = self.live.key, self.config.agent.key
        span = self.config.tracing.run(key.session, agent, run or "", key.thread)
        self._span = self._spans.enter_context(span)

    def end_span(self) -> None:
        """The run is not driven here any more."""
        run = self.state.run
        if self._span is not None and run is not None and run.status == "failed":
            self._span.fail(run.code or "run_failed")
        self._span = None
        self._spans.close()

    def ready(self) -> None:
        """Forget an earlier stop, before the next step."""
        if self.state.abort is None and not self.stopping and self.failure is None:
            if self._halted.done():
                self._halted = asyncio.get_running_loop().create_future()
            if self.aborted.is_set():
                self.aborted = asyncio.Event()

    def event(self, kind: str, payload: Any = None, **rest: Any) -> NewEvent:
        """An event of the run that is going."""
        rest.setdefault("run", self.run.id if self.state.active else None)
        return NewEvent.of(kind, payload, **rest)

    async def write(self, *events: NewEvent, expected: int | None = None) -> bool:
        """Append, and wait until it is folded here. False: the log grew meanwhile, and nothing
        was written; decide again."""
        try:
            head = await self._append(events, expected)
        except HeadMoved as moved:
            await self.live.reach(moved.head)
            return False
        await self.live.reach(head)
        return True

    async def write_shared(self, *events: NewEvent, expected: int | None = None) -> bool:
        """Append to what all threads share; like `write`."""
        if self.shared is self.live:
            return await self.write(*events, expected=expected)
        shared, store = self.shared, self.config.store
        try:
            done = await store.append(shared.key, events, expected=expected, log=shared.log)
        except HeadMoved as moved:
            await shared.reach(moved.head)
            return False
        await shared.reach(done.head)
        return True

    async def _append(self, events: tuple[NewEvent, ...], expected: int | None) -> int:
        """The same events again while the store is away: their ids make that safe."""
        store, live, attempts = self.config.store, self.live, self.config.policy.retry.storage
        for n in range(1, attempts.times + 1):
            try:
                done = await store.append(
                    live.key, events, expected=expected, fence=self.lease, log=live.log
                )
            except StoreUnavailable as error:
                live.trouble(error)
                self.log.error("append_failed", category="storage", error=error, attempt=n)
                if n == attempts.times:
                    raise
                await asyncio.sleep(attempts.delay(n))
            except LeaseLost as error:
                self.lost(error)  # whatever else is being done here ends with it
                raise
            else:
                return done.head
        raise AssertionError("unreachable")

    async def watch(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What `work` returns, or None if it was stopped: by an abort, by the end of its time,
        by the end of the harness. Raises when the lease is lost."""
        task = asyncio.create_task(work)
        until = deadline(self.run, self.config.bounds) if self.state.active else None
        left = None if until is None else max(0.0, (until - self.now() + 2) / 1000)
        try:
            either = {task, self._halted}
            await asyncio.wait(either, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if stopped := not task.done():
                await self._stop(task)
        except asyncio.CancelledError:
            await self._stop(task)
            raise
        if self.failure is not None:
            raise self.failure
        if task.cancelled() and not stopped:
            raise RuntimeError("the work was cancelled, and nobody here asked for that")
        return task.result() if task.done() and not task.cancelled() else None

    async def _stop(self, task: asyncio.Task[Any]) -> None:
        self.aborted.set()
        task.cancel()
        await asyncio.wait({task}, timeout=4 * GRACE)

    def look(self, event: Event) -> None:
        """Called with each event as it arrives."""
        if self.config.agent.hooks:
            self.unhooked.append(event)
        if self.live.state.abort is not None:
            self.halt()

    def halt(self) -> None:
        """Stop what is being done now."""
        if not self._halted.done():
            self._halted.set_result(None)

    def lost(self, error: BaseException) -> None:
        self.failure = error
        self.halt()

    @contextlib.asynccontextmanager
    async def holding(self) -> AsyncIterator[None]:
        """Keep the lease alive, whatever the work does."""
        self._renewal.ask()
        self.live.driven = True
        self.live.watchers.append(self.look)
        self.live.endings.append(self.lost)
        try:
            yield
        finally:
            self.end_span()
            self.live.watchers.remove(self.look)
            self.live.endings.remove(self.lost)
            self.live.driven = False
            await self._renewal.end(cut=True)

    async def _renew(self) -> None:
        try:
            self.lease = await self.config.store.renew(self.lease)
        except StoreUnavailable as error:
            self.log.warning("renew_failed", category="storage", error=error)
        except (LeaseLost, SessionNotFound, LogReplaced) as error:
            self.lost(error)
            return
        self._renewal.ask()

    async def let_go(self) -> bool:
        """Give the lease back, unless something came that is to be decided first."""
        try:
            await self.config.store.release(self.lease, head=self.state.head)
        except HeadMoved as moved:
            await self.live.reach(moved.head)
            return False
        return True
