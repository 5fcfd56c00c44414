"""Usage that is counted again from the logs is what was counted while the runs were driven."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import Budget, Scope, Store, connect
from holdfast import environment as env
from holdfast.log.catalog import Query
from holdfast.sessions.budgets import Rebuilt, rebuild
from holdfast.stores.pages import every_row

from .scene import Clock, counted, served, tokens_in_logs

BUDGETS = [
    Budget(scope="session", tokens=10**9),
    Budget(scope="session", tokens=10**9, per="month"),
    Budget(scope="user", tokens=10**9, per="day"),
    Budget(scope="tenant", cost=10**5, per="month"),
    Budget(scope="tenant", runs=10**5),
]
DAY = 86_400
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "look", "free", "fork", "restart", "later"]),
        st.sampled_from(["one", "two"]),
        st.integers(0, 40),
    ),
    min_size=1,
    max_size=8,
)


def price(ref: str, usage: Any) -> float | None:
    return 0.000_000_12 * usage["output_tokens"] if usage else None


async def play(store: Store, clock: Clock, actions: list[tuple[str, str, int]]) -> None:
    harness = served(store, *BUDGETS, price=price)
    await harness.start()
    for n, (action, id, number) in enumerate(actions):
        session = await harness.get_or_create(id, user="ann" if id == "one" else None)
        if action == "fork":
            fork = await session.threads.fork(thread=f"side{n}")
            await fork.send("Hi")
        elif action == "restart":
            await harness.aclose()
            harness = await served(store, *BUDGETS, price=price).start()
        elif action == "later":
            clock.moved += number * DAY
        else:
            await session.send(action.title())
    await harness.aclose()


async def removed(store: Store, tenant: str = "~usage:main") -> None:
    for row in [row async for row in every_row(store, Query(tenant=tenant))]:
        await store.delete(Scope(tenant, row.session))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(actions=ACTIONS, lost=st.integers(0, 3))
def test_a_rebuild_gives_what_was_counted(actions: list[tuple[str, str, int]], lost: int) -> None:
    async def run() -> None:
        clock = Clock()
        with env.use(clock):
            async with connect("memory:") as store:
                await play(store, clock, actions)
                before = await counted(store)
                total = before.get("tenant/main/total")
                assert (total.tokens if total else 0) == await tokens_in_logs(store)
                again = await rebuild(store, "main")
                assert again.added == 0
                assert await counted(store) == before
                if lost == 0:
                    await removed(store)
                else:  # only some of them
                    for name, _ in zip([*before], range(lost), strict=False):
                        await removed_one(store, name)
                wanted = [(one.scope, one.per) for one in BUDGETS]
                done = await rebuild(store, "main", wanted)
                assert (done.counted, await counted(store)) == (again.counted, before)
                assert await rebuild(store, "main") == Rebuilt(counted=again.counted)

    asyncio.run(run())


async def removed_one(store: Store, name: str) -> None:
    scope, who, period = name.split("/")
    query = Query(tenant="~usage:main", metadata={"scope": scope, "who": who, "period": period})
    for row in [row async for row in every_row(store, query)]:
        await store.delete(Scope("~usage:main", row.session))
