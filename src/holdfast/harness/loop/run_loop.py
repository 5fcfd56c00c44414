"""The run loop: decide the next step, perform it, and repeat until nothing is left to do. It runs
under a lease, so that only one process drives a log at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, NoReturn

from ...cancellation import cancellable
from ...errors import HoldfastError, InvalidValue, LeaseHeld, LeaseLost, LogDamaged, LogReplaced
from ...log.events import Key
from ...stores.port import Lease
from ..agents.config import Config
from ..agents.meter import BudgetCheck
from ..agents.runtime import HarnessRuntime
from ..faults import classify
from ..live.log import Live
from .budgets import bounds_with, charge_again, charge_start, read_usage
from .decide import decide
from .driver import Driving, budget_check
from .hooks import catch_up, run_hooks
from .lease import acquire
from .nested_calls import invoke
from .perform import hand_over, perform, take_turns, take_up
from .run_start import FirstMessage, StartedRun, start_driving, start_run
from .steps import BESIDE, Finish, Idle
from .tool_call import check_tools

PINNED = -1  # the run waits for a process with the version of the agent that started it


async def drive(
    runtime: HarnessRuntime,
    config: Config,
    live: Live,
    shared: Live,
    drives: dict[Key, Driving],
    first: FirstMessage | None = None,
) -> int:
    """Drive a log until it waits or is done. Returns 0, or, if another driver holds the lease, how
    long that lease still lasts (ms), or `PINNED` if another version of the agent must resume the
    run. With `first`, write this message and start its run in one
    step; if that is not possible, do nothing."""
    log = config.log.bind(session=live.key.session, thread=live.key.thread)
    check = budget_check(runtime, live, shared)
    charge_again(check, config, live)
    await read_usage(check, config, live, log)
    started = None if first is None else await start_run(config, live, log, first, check)
    if first is not None and started is None:
        return 0
    if started is None and _left_to_others(config, live, check):
        return PINNED
    try:
        lease = await acquire(config, live, log) if started is None else started.lease
    except LeaseHeld as held:
        return max(1, held.left)
    if lease.log != live.log:
        await _refuse(live, lease)
    driving = drives[live.key] = Driving(runtime, config, live, shared, lease, log, invoke)
    try:
        async with driving.holding():
            if started is not None:
                await _continue(driving, started)
            await _steps(driving)
    except LeaseLost as error:
        driving.log.warning("lease_lost", category="run", error=error)
    except BaseException:
        with contextlib.suppress(HoldfastError):  # so that another driver can try at once
            await driving.hold.release()
        raise
    return PINNED if driving.left else 0


def _left_to_others(config: Config, live: Live, check: BudgetCheck | None) -> bool:
    """Return whether the next step belongs to another version of the agent. Then this process does
    not even take the lease, so that it is free for those that have this version."""
    if not config.pinned(live.state):
        return False
    now = config.clock(live.key)
    return not isinstance(decide(live.state, bounds_with(check, config, now), now), BESIDE)


async def _continue(driving: Driving, started: StartedRun) -> None:
    """Call the model for a run that was started together with its first message."""
    start_driving(driving, started.run)
    charge_start(driving)
    run = driving.state.active
    if run is not None and run.id == started.run and driving.state.abort is None:
        await _performed(take_turns(driving), driving)
        await _keep_snapshot(driving)


async def _refuse(live: Live, lease: Lease) -> NoReturn:
    """Release the lease and raise an error, because the log was deleted and created again after
    `live` was opened, so the state of `live` is outdated."""
    with contextlib.suppress(HoldfastError):
        await live.store.release(lease)
    key = live.key
    raise LogReplaced(
        tenant=key.tenant,
        session=key.session,
        thread=key.thread,
        known=live.log,
        log=lease.log,
    )


async def _steps(driving: Driving) -> None:
    await catch_up(driving)
    await run_hooks(driving)
    while not (driving.stopping or driving.hold.released):
        _must_be_understood(driving)
        await read_usage(driving.check, driving.config, driving.live, driving.log)
        step = decide(driving.state, driving.bounds, driving.now())
        if isinstance(step, Idle):
            if await driving.hold.release_if_idle():
                return
        elif not isinstance(step, BESIDE) and not driving.mine:
            if driving.config.pinned(driving.state):  # since the lease was acquired
                driving.left = True
                break
            check_tools(driving)
            await take_up(driving)
        else:
            driving.ready()
            await _performed(perform(step, driving), driving)
            await run_hooks(driving)
            await _keep_snapshot(driving)
    if not driving.hold.released:
        await hand_over(driving)
    with contextlib.suppress(HoldfastError):
        await driving.hold.release()


async def _performed(work: Coroutine[Any, Any, None], driving: Driving) -> None:
    """Perform a step. An error in Holdfast's own code or in a plug-in ends the run, not the driver.
    Errors of the store and of the session are raised to the caller."""
    try:
        with cancellable():
            await work
    except Exception as error:
        # Invalid data come from Holdfast, a model or a tool, and end the run.
        if isinstance(error, HoldfastError) and not isinstance(error, InvalidValue):
            raise
        fault = classify(error, source="runtime", policy=driving.config.policy)
        driving.log.error("step_failed", category="run", error=fault)
        if driving.state.active is None:
            raise
        driving.live.failed(driving.run.id, error)
        await perform(Finish("failed", fault.code), driving)


def _must_be_understood(driving: Driving) -> None:
    """Raise `LogDamaged` if a newer version of Holdfast wrote to the log: this version can show the
    log but not drive it."""
    if (seq := driving.state.too_new) is not None:
        key = driving.live.key
        raise LogDamaged(
            problem=f"event {seq} was written by a newer version: upgrade holdfast to continue",
            tenant=key.tenant,
            session=key.session,
            thread=key.thread,
            seq=seq,
        )


async def _keep_snapshot(driving: Driving) -> None:
    live = driving.live
    if (snapshot := live.snapshots.due(live.log, live.state)) is not None:
        with contextlib.suppress(HoldfastError, asyncio.TimeoutError):
            fence = None if driving.hold.released else driving.hold.lease
            await live.store.save_snapshot(live.key, snapshot, fence=fence)
