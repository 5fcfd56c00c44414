"""Starts runs: creates the events that start a run, and writes a message and the start of its run
in one append."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from ...errors import HeadMoved, LeaseHeld
from ...log import events as ev
from ...log.events import NewEvent, new_id
from ...log.state import State, fold
from ...stores.port import Acquire, Lease
from ..agents.config import Config
from ..agents.meter import BudgetCheck
from ..live.log import Live
from ..live.log_loader import payload_of
from ..telemetry.logs import BoundLog
from .budgets import bounds_with
from .decide import decide
from .detached import is_delegated
from .driver import Driving
from .lease import while_unavailable
from .steps import Start


class AcceptedMessage(NamedTuple):
    """A message that was written to the log: its number, and whether it is new."""

    seq: int
    fresh: bool


class FirstMessage:
    """A message that is written together with the start of its run. `done` is a future with the
    result: None if the message must be written separately. `accepted` is called with the message's
    number before the run continues."""

    def __init__(self, event: NewEvent, accepted: Callable[[int], None]) -> None:
        self.event, self._accepted = event, accepted
        self.done: asyncio.Future[AcceptedMessage | None] = (
            asyncio.get_running_loop().create_future()
        )

    def settle(self, result: AcceptedMessage | None) -> None:
        """Set the result for the sender. Has no effect if the sender no longer waits for it."""
        if not self.done.done():
            if result is not None:
                self._accepted(result.seq)
            self.done.set_result(result)


class StartedRun(NamedTuple):
    """A run that was started together with its first message, and the lease that was acquired."""

    run: str | None
    lease: Lease


def start_events(
    config: Config, state: State, step: Start, message: ev.MessageReceived
) -> list[NewEvent]:
    """Return the events that start a run with `message`, which is the first message in the
    queue."""
    run, before = new_id(), state.run
    sent = any(q.seq == step.input and q.run is not None for q in state.queue)
    limits = dict(message.limits)
    mode = config.mode(state)
    if mode.steps is not None:
        limits.setdefault("steps", mode.steps)
    started = ev.RunStarted(
        driver=config.owner,
        inputs=[step.input],
        model=message.model,
        limits=limits,
        output=step.input if message.output is not None else None,
        chain=before.chain + 1 if sent and before is not None else 0,
        version=config.agent.version,
    )
    events = [NewEvent.of("run.started", started, run=run, id=run)]
    if not step.full:
        ref = config.model_ref(state, message.model)
        called = ev.ModelCalled(model=ref or "none", step=1)
        events.append(NewEvent.of("model.called", called, run=run))
    return events


async def start_run(
    config: Config,
    live: Live,
    log: BoundLog,
    first: FirstMessage,
    check: BudgetCheck | None = None,
) -> StartedRun | None:
    """Write a message and start its run in one append, which also acquires the lease. Returns None
    if that is not possible: then nothing was written, or the message is in the log already."""
    events, head = _candidate(config, live, first.event, check), live.state.head
    if events is None:
        return None
    acquire = Acquire(config.owner, config.ttl)
    try:
        done = await while_unavailable(
            config,
            live,
            log,
            lambda: live.store.append(
                live.key, events, expected=head, log=live.log, acquire=acquire
            ),
        )
    except (HeadMoved, LeaseHeld):
        return None
    await live.reach(done.head)
    first.settle(AcceptedMessage(done.seqs[0], bool(done.fresh) or done.lease is not None))
    return None if done.lease is None else StartedRun(events[1].run, done.lease)


def start_driving(driving: Driving, run: str | None) -> None:
    """Record that a driver has started a run."""
    driving.take(run)
    driving.log.info("run_started", category="run", run=run)


def _candidate(
    config: Config, live: Live, event: NewEvent, check: BudgetCheck | None
) -> list[NewEvent] | None:
    """Return the events of a message and of the run that it starts. Return None if the run cannot
    start at once. This is decided as if the message were already in the log."""
    state, now = live.state, config.clock(live.key)
    if config.agent.hooks or state.too_new is not None or is_delegated(live.key):
        return None
    arrived = event.numbered(state.head + 1, now)
    after = fold((arrived,), state)
    step = decide(after, bounds_with(check, config, now), now)
    if not isinstance(step, Start) or step.full or step.input != arrived.seq:
        return None
    message = payload_of(arrived, ev.MessageReceived)
    assert message is not None
    return [event, *start_events(config, after, step, message)]
