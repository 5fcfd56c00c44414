"""What a process does that serves one version of an agent: it sends a message if it is told to, and
serves the session until nothing is left to do, or until it is killed."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from holdfast import connect
from holdfast.testing.faults import Die, FaultyStore
from tests.harness.crash.nursery import serve

from .scene import SESSION, row_when, served


class Told(Struct):
    """Which agent to serve, with which policy; and where to die: at the `call`-th append, before or
    after it."""

    url: str
    tenant: str
    agent: str
    versions: str
    text: str = ""
    call: int = 0
    after: bool = False


async def live(told: Told) -> dict[str, Any]:
    plan = [Die(method="append", call=told.call, after=told.after)] if told.call else []
    async with connect(told.url) as inner:
        store = FaultyStore(inner, plan)
        async with served(told.agent, store, tenant=told.tenant, versions=told.versions) as harness:
            if told.text:
                session = await harness.get_or_create(SESSION)
                await session.send(told.text, key="first")
            await row_when(inner, told.tenant, lambda row: row.run == "done" and row.due is None)
        return {"appends": store.calls["append"]}


if __name__ == "__main__":
    serve(lambda told: live(Told(**told)))
