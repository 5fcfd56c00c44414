"""Two processes, and one is killed before or after any of its appends, to sessions and to usage
logs: what was used is counted, and counted once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import Budget, Store, connect
from tests.crash.places import url
from tests.harness.crash.nursery import Nursery

from .scene import EACH, counted, events_of, served, tokens_in_logs

BUDGETS = (Budget(scope="user", tokens=10_000, per="day"), Budget(scope="tenant", tokens=10_000))
TTL = 0.5
NEVER = 10_000
AT_ONCE = 4


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_kill_at_any_append_loses_no_charge_and_doubles_none(
    kind: str, tmp_path: Path
) -> None:
    where = url(kind, tmp_path)
    with Nursery(tmp_path, module="tests.budgets.child") as nursery:
        async with connect(where) as store:
            whole = nursery.bear(url=where, tenant="whole", call=NEVER, after=False)
            await whole.died()
            appends = whole.words["appends"]
            assert (await counted(store, "whole"))["tenant/whole/total"].tokens == 3 * EACH
            kills: list[bool] = []
            slots = asyncio.Semaphore(AT_ONCE)

            async def killed(call: int, after: bool) -> None:
                tenant = f"t{call}{'after' if after else 'before'}"
                async with slots, served(store, *BUDGETS, tenant=tenant, ttl=TTL) as other:
                    told = {"url": where, "tenant": tenant, "call": call, "after": after}
                    child = nursery.bear(**told)
                    await child.died()
                    # An append that is refused, because the head has moved, kills nobody after it.
                    kills.append(child.words == {})
                    assert "failed" not in child.words, child.words
                    session = await other.get_or_create("s", user="ann")
                    for key in ("look", "hi", "again"):
                        await session.send(key.title(), key=key)
                await check(store, tenant)

            points = [(call, after) for call in range(2, appends + 1) for after in (False, True)]
            await asyncio.gather(*(killed(*point) for point in points))
            assert sum(kills) >= len(points) - 3


async def check(store: Store, tenant: str) -> None:
    """What was counted for each scope is what the logs hold."""
    used = await tokens_in_logs(store, tenant)
    events = await events_of(store, "s", tenant)
    runs = sum(
        event.kind == "model.called" and event.json().get("step", 1) == 1 for event in events
    )
    assert used >= 4 * EACH
    found = await counted(store, tenant)
    assert {(one.scope, one.tokens, one.runs) for one in found.values()} == {
        ("user", used, runs),
        ("tenant", used, runs),
    }, tenant
