"""One driver of one log: the state that it reads, its fenced writes, and the run that it drives."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from msgspec.structs import replace

from ...errors import HeadMoved
from ...log import events as ev
from ...log.events import Event, NewEvent
from ...log.state import Run, State, fold
from ...stores.port import Lease
from ...values.budgets import counted, source_of
from ...values.delta import Growing
from ..agents.config import Config
from ..agents.limits import RunBounds
from ..agents.meter import BudgetCheck
from ..agents.runtime import HarnessRuntime
from ..live.log import Live
from ..telemetry.logs import BoundLog
from ..telemetry.spans import RunSpan
from .cancellation import Stoppable
from .decide import deadline, decide
from .lease import Hold
from .steps import CallModel, Idle, Step

T = TypeVar("T")


class Flight:
    """A message that is being streamed: the id that its event will have, and the text so far."""

    def __init__(self, message: str, model: str) -> None:
        self.message, self.model = message, model
        self.said = Growing()

    @property
    def text(self) -> str:
        return self.said.text


class Driving(Stoppable):
    """A driver that holds the lease of a log. All its writes are fenced: they fail once another
    driver has taken over the lease."""

    def __init__(
        self,
        runtime: HarnessRuntime,
        config: Config,
        live: Live,
        shared: Live,
        lease: Lease,
        log: BoundLog,
        invoke: Callable[..., Awaitable[Any]],
    ) -> None:
        super().__init__()
        self.runtime, self.config, self.live, self.log = runtime, config, live, log
        self.shared = (
            shared  # the log of thread `main`, which holds the data that all threads share
        )
        self.hold = Hold(config, live, lease, log, self.lost)
        self.invoke = invoke  # calls one tool from another
        self.took: str | None = None  # the run that is driven here
        self.left = False  # whether the run is left to another version of the agent
        self.uncut: str | None = None  # the run that cannot be compacted any further
        self.judged: set[str] = set()  # calls that this driver has checked
        self.blobs: dict[str, bytes] = {}
        self.flight: Flight | None = None
        self.unhooked: list[Event] = []
        self.turn = asyncio.Lock()  # nested calls start one at a time
        self._gave_way = False  # the last write yielded to incoming messages
        self.check = budget_check(runtime, live, shared)
        self.warned: set[tuple[str, str]] = set()  # limits about which the run has warned
        self._span = RunSpan(config.tracing, live.key, config.agent.key)

    @property
    def state(self) -> State:
        return self.live.state

    @property
    def run(self) -> Run:
        run = self.live.state.run
        assert run is not None, "this step needs an active run"
        return run

    @property
    def bounds(self) -> RunBounds:
        """The limits for the next decision. If the conversation cannot be compacted any further,
        the prompt has no limit; the model itself then rejects a prompt that is too long."""
        bounds, run = self.config.bounds, self.state.active
        if self.check is not None and (stop := self.check.stop(self.now())) is not None:
            bounds = replace(bounds, budget=stop)
        if run is None or self.uncut is None or run.id != self.uncut:
            return bounds
        return replace(bounds, tokens=sys.maxsize, turns=sys.maxsize)

    @property
    def mine(self) -> bool:
        """Whether this driver drives the active run. Also true if no run is active."""
        run = self.state.active
        return run is None or (run.status == "running" and run.id == self.took)

    def use(self, config: Config) -> None:
        """Replace the configuration that this driver uses."""
        self.config = config

    def now(self) -> int:
        return self.config.clock(self.live.key)

    def still(self, step: Step) -> bool:
        """Return whether `step` is still the next step, after the events that have arrived since it
        was decided."""
        return decide(self.state, self.bounds, self.now()) == step

    def take(self, run: str | None) -> None:
        """Record that this driver has started or resumed a run."""
        self.warned.clear()
        self._span.end(self.state.run)
        self.took, self.log = run, self.log.bind(run=run)
        self._span.begin(run or "")

    def ready(self) -> None:
        """Clear an earlier halt before the next step, unless an abort was requested."""
        if self.state.abort is None:
            self.reset()

    def event(self, kind: str, payload: Any = None, **rest: Any) -> NewEvent:
        """Create an event, by default of the active run."""
        rest.setdefault("run", self.run.id if self.state.active else None)
        return NewEvent.of(kind, payload, **rest)

    async def write(
        self, *events: NewEvent, expected: int | None = None, last: bool = False
    ) -> bool:
        """Append, and wait until the local state includes the events. Returns False, and writes
        nothing, if the log has grown: the caller must then decide again. Messages that are being
        sent are written first. With `last`, the same step releases the lease, if nothing is left to
        do after these events."""
        if expected is not None and self.live.posting and not self._gave_way:
            self._gave_way = True
            await self.live.posted()
            if self.state.head != expected:
                return False
        self._gave_way = False
        try:
            release = last and isinstance(step_after(self, *events), Idle)
            head = await self.hold.append(events, expected, release=release)
        except HeadMoved as moved:
            await self.live.reach(moved.head)
            return False
        await self.live.reach(head)
        return True

    async def write_shared(self, *events: NewEvent, expected: int | None = None) -> bool:
        """Append to the log of thread `main`, which all threads share; otherwise like `write`."""
        if self.shared is self.live:
            return await self.write(*events, expected=expected)
        shared = self.shared
        try:
            done = await shared.store.append(shared.key, events, expected=expected, log=shared.log)
        except HeadMoved as moved:
            await shared.reach(moved.head)
            return False
        await shared.reach(done.head)
        return True

    async def watch(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of `work`, or None if it was stopped by an abort, a deadline or the
        shutdown of the harness. Raises if the lease is lost."""
        until = deadline(self.run, self.config.bounds) if self.state.active else None
        # By the clock that `decide` reads: a timer may run faster than this clock.
        left = None if until is None else lambda: (until - self.now() + 2) / 1000
        return await self.within(left, work)

    def look(self, event: Event) -> None:
        """Handle an event that has arrived: count what it has used, queue it for hooks, and halt
        the work if an abort was requested."""
        if self.check is not None and (usage := counted(event)) is not None:
            self.check.charge(source_of(event), event.at, usage)
        if self.config.agent.hooks:
            self.unhooked.append(event)
        if self.live.state.abort is not None:
            self.halt()

    @contextlib.asynccontextmanager
    async def holding(self) -> AsyncIterator[None]:
        """Context manager that drives the log and renews the lease in the background."""
        async with self.hold.kept():
            with self.live.driven_by(self.look, self.lost):
                try:
                    yield
                finally:
                    self._span.end(self.state.run)


def budget_check(runtime: HarnessRuntime, live: Live, shared: Live) -> BudgetCheck | None:
    """Return the check of the budgets that apply to a log, or None if there are none. Threads,
    including those of sub-agents, count for the user of the session."""
    if runtime.meter is None:
        return None
    user = None if shared.row is None else shared.row.user
    return runtime.meter.check_for(live.key.session, user)


def step_after(driving: Driving, *events: NewEvent) -> Step | None:
    """Return the step that follows these events, as if they were already in the log, so that one
    append can write both. Return None if the agent has hooks, if this driver is stopping, or if the
    store cannot change a lease together with an append."""
    whole = driving.live.store.info().lease_with_append
    if driving.config.agent.hooks or driving.stopping or not whole:
        return None
    now, head = driving.now(), driving.state.head
    numbered = [event.numbered(head + n, now) for n, event in enumerate(events, 1)]
    return decide(fold(numbered, driving.state), driving.bounds, now)


def model_called(driving: Driving, step: CallModel) -> NewEvent:
    """Create the event that records the intent to call the model again."""
    ref = driving.config.model_ref(driving.state, driving.run.model)
    payload = ev.ModelCalled(model=ref or "none", step=step.step, inputs=list(step.inputs))
    return driving.event("model.called", payload)
