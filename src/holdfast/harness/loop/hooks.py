"""Calls the hooks of an agent with the events of a log while this process drives it."""

from __future__ import annotations

import asyncio
import contextlib

from ...cancellation import cancellable
from ...log.events import Event
from ..agents.agent import settled
from .driver import Driving
from .tool_context import Acting

PATIENCE = 30.0  # seconds that a hook may take, since the run waits for it
DEPTH = 25  # times in a row that events of hooks may call further hooks


async def catch_up(driving: Driving) -> None:
    """Collect the events that were written while no driver was active, so that hooks are called for
    them: the events after the last event of a run."""
    if not driving.config.agent.hooks:
        return
    live, missed = driving.live, list[Event]()
    read = live.store.read(live.key, after=live.hooked, reverse=True, log=live.log)
    async with contextlib.aclosing(read) as events:
        async for event in events:
            if event.run is not None:
                break
            missed.insert(0, event)
            if event.kind == "thread.forked":
                break
    newest = missed[-1].seq if missed else 0  # the same events may also arrive live
    driving.unhooked = [*missed, *(e for e in driving.unhooked if e.seq > newest)]


async def run_hooks(driving: Driving) -> None:
    """Call the hooks for all new events, in order. Their exceptions are logged. Events that hooks
    write trigger hooks too, up to a limit."""
    hooks = driving.config.agent.hooks
    for round in range(DEPTH + 1):
        events = [e for e in driving.unhooked if e.seq > driving.live.hooked]
        driving.unhooked = []
        if events:
            driving.live.hooked = events[-1].seq
        wanted = [(item, event) for event in events for item in hooks if item.kind == event.kind]
        if not wanted:
            return
        if round == DEPTH:
            driving.log.error("hooks_too_deep", category="agent", kind=wanted[0][1].kind)
            return
        for item, event in wanted:
            await _call(driving, item.function, event)


async def _call(driving: Driving, function: object, event: Event) -> None:
    acting = Acting(driving, event.id, getattr(function, "__name__", "hook"))

    async def run() -> None:
        async with asyncio.timeout(PATIENCE):
            await settled(function(acting, event))  # type: ignore[operator]

    try:
        with cancellable():
            if driving.state.active is not None and driving.state.abort is None:
                await driving.watch(run())  # so that the hook ends with the run
            else:
                await run()
    except Exception as error:  # an application's hook may raise anything
        driving.log.error("hook_failed", category="agent", error=error, kind=event.kind)
