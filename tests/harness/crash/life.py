"""What a process does that is to be killed: it serves the scene's agent, sends the message, and
stays until the run has ended."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

from msgspec import Struct

from holdfast import Harness, connect
from holdfast.testing.faults import Die, FaultyStore

from .scene import ASKED, ENDED, SESSION, Effects, agent, model, place

LOOK = 0.02


class Told(Struct):
    """The store, whose conversation, and where to die: at the `call`-th call of `method`, before
    or after it. `send`: the message too; without it, only serve what is there."""

    url: str
    tenant: str
    effects: str
    ttl: float = 1.0
    send: bool = True
    method: str = ""
    call: int = 0
    after: bool = False
    delay: float = 0.0


async def live(told: Told) -> dict[str, Any]:
    """Serve until the run has ended; how often each method of the store was called."""
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    plan = [Die(method=told.method, call=told.call, after=told.after)] if told.method else []
    async with connect(told.url) as inner:
        store = FaultyStore(inner, plan)
        harness = Harness(
            agent(Effects(Path(told.effects))),
            default_model=model(told.delay),
            store=store,
            tenant=told.tenant,
            ttl=told.ttl,
        )
        async with harness:
            if told.send:
                session = await harness.get_or_create(SESSION)
                await session.post(ASKED, key="the one")
            at = place(told.tenant)
            while (row := await inner.row(at)) is None or row.run not in ENDED:  # noqa: ASYNC110
                await asyncio.sleep(LOOK)
        return {"calls": dict(store.calls), "run": row.run}
