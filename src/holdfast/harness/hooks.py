"""Hooks: an agent's own functions, called with the events of a log while this process drives."""

from __future__ import annotations

from ..events import Event
from .acting import Acting
from .agent import settled
from .driving import Driving

DEPTH = 25  # rounds of hooks that answer events of hooks


async def run_hooks(driving: Driving) -> None:
    """Call the hooks for all events that came since the last time, in order. What they raise
    is logged. Events that they emit are hooked as well, to a limit."""
    hooks = driving.config.agent.hooks
    for round in range(DEPTH + 1):
        events, driving.unhooked = driving.unhooked, []
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
    try:
        await settled(function(acting, event))  # type: ignore[operator]
    except Exception as error:  # a hook of the program's own may raise anything
        driving.log.error("hook_failed", category="agent", error=error, kind=event.kind)
