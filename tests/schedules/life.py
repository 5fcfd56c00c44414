"""What a process does that is to be killed while it fires a schedule: it serves the session until
the schedule waits for its next time."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from msgspec import Struct

from holdfast import Harness, Store, connect, key
from holdfast.environment import wall_clock
from holdfast.testing.faults import Die, FaultyStore
from tests.harness.crash.nursery import serve
from tests.harness.kernel.scene import helper, script

SESSION = "s"
LOOK = 0.02
TTL = 0.5  # seconds: what the next driver waits for


class Told(Struct):
    """The store and the tenant; and where to die: at the `call`-th append, before or after it."""

    url: str
    tenant: str
    call: int = 0
    after: bool = False


async def live(told: Told) -> dict[str, Any]:
    """Serve until nothing is left to do; how many appends that took."""
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    plan = [Die(method="append", call=told.call, after=told.after)] if told.call else []
    async with connect(told.url) as inner:
        store = FaultyStore(inner, plan)
        harness = Harness(
            helper(), default_model=script("done"), store=store, tenant=told.tenant, ttl=TTL
        )
        async with harness:
            while not await over(inner, told.tenant):  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(LOOK)
        return {"appends": store.calls["append"]}


async def over(store: Store, tenant: str) -> bool:
    """Whether the session waits for the next time of its schedule."""
    row = await store.row(key(SESSION, tenant=tenant))
    return row is not None and row.run == "done" and (row.due or 0) > wall_clock()


if __name__ == "__main__":
    serve(lambda told: live(Told(**told)))
