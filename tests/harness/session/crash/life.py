"""What a process does that is to be killed: it serves the scene's agent, and attends to the session
until all is done, or it dies. The next one says first what it found."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

from msgspec import Struct

from holdfast import connect
from holdfast.harness.session.session import Session

from ...crash.scene import SESSION, Effects, illegal, said
from .scene import Stage
from .witness import Witness, view

LONGEST = 60.0


class Told(Struct):
    """The store, whose session, the files for effects and for the view; and at which write to
    die, before or after it."""

    url: str
    tenant: str
    effects: str
    seen: str
    ttl: float = 0.5
    call: int = 0
    after: bool = True


async def live(given: dict[str, Any]) -> dict[str, Any]:
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    told = Told(**given)
    stage = Stage(Effects(Path(told.effects)))
    async with connect(told.url) as inner, asyncio.timeout(LONGEST):
        store = Witness(inner, SESSION, told.call, told.after, Path(told.seen))
        async with stage.harness(store, told.tenant, told.ttl) as harness:
            store.harness = harness
            session = await harness.get_or_create(SESSION)
            found = await view(session)
            store.driving.set()
            await stage.attend(session)
            return {"found": found, "writes": store.writes, "end": await _end(session)}


async def _end(session: Session) -> dict[str, Any]:
    """What must be so in the end, whoever died: without ids and times."""
    await session.wait()
    display, events = session.display.get(), await session.events()
    [child] = await session.subagents.list()
    return {
        "said": said(events),
        "illegal": illegal(events),
        "child": [child.agent, child.status, child.usage],
        "shown": [display.phase, display.mode, display.model, display.queued, display.error],
        "pending": [*display.pending, *await session.pending()],
        "tasks": [task.status for task in display.tasks],
        "state": session.state.get(),
        "settings": session.thread.settings.all(),
        "usage": session.usage.get(),
        "models": await session.usage.by_model(),
        "all": await session.usage_all(),
        "runs": [
            event.json().get("status", "done") for event in events if event.kind == "run.finished"
        ],
    }
