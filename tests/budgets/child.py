"""The process that is killed: it runs an agent with budgets until its planned end."""

from __future__ import annotations

from typing import Any

from holdfast import connect
from holdfast.testing.faults import Die, FaultyStore
from tests.harness.crash.nursery import serve

from .scene import served
from .test_kills import BUDGETS, TTL


async def live(told: dict[str, Any]) -> dict[str, Any]:
    plan = [Die(method="append", call=told["call"], after=told["after"])]
    async with connect(told["url"]) as store:
        faulty = FaultyStore(store, plan)
        async with served(faulty, *BUDGETS, tenant=told["tenant"], ttl=TTL) as harness:
            session = await harness.get_or_create("s", user="ann")
            await session.send("Look", key="look")
            await session.send("Hi", key="hi")
        return {"appends": faulty.calls["append"]}


if __name__ == "__main__":
    serve(live)
