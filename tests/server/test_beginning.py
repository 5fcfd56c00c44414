"""One id is one session, also where two are begun at the same moment in two stores."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast import Scope, connect
from holdfast.server.placement.create_lock import LOST, turn
from holdfast.store import wall_clock
from holdfast.stores.memory import MemoryStore

from .scene import PATIENCE, Api, serving, settings

TIMES = 10


async def both(one: Api, two: Api, id: str) -> list[int]:
    """Begin a session of an id in two stores; how that was answered."""
    elsewhere = {"id": id, "store": {"kind": "file"}}
    asks = one.ask("POST", "/sessions", {"id": id}), two.ask("POST", "/sessions", elsewhere)
    return [answer.status_code for answer in await asyncio.gather(*asks)]


async def test_of_two_who_begin_one_id_in_two_stores_one_does(tmp_path: Path) -> None:
    stores = {"sqlite": f"sqlite:{tmp_path / 'a.db'}", "file": f"file:{tmp_path / 'f'}"}
    async with serving(settings(stores)) as one, serving(settings(stores)) as two:
        for n in range(TIMES):
            assert sorted(await both(one, one if n % 2 else two, f"s{n}")) == [201, 409]
        page = await two("GET", "/sessions", params={"limit": 100})
        assert sorted(row["session"] for row in page["items"]) == [f"s{n}" for n in range(TIMES)]
    async with connect(stores["sqlite"]) as store:  # and no turn is left
        for n in range(TIMES):
            mine = Scope("~places:acme", "me")
            assert await store.claim(mine.tenant, f"begin:s{n}", mine) == mine


async def test_the_turn_of_a_process_that_died_is_taken_over() -> None:
    store, scope = MemoryStore(), Scope("~places:acme", "s")
    # One from the future is of a process whose clock was ahead.
    for ago, died in ((0, False), (int(LOST * 2_000), True), (-2 * 86_400_000, True)):
        gone = Scope(scope.tenant, f"{wall_clock() - ago}.gone")
        assert await store.claim(scope.tenant, "begin:s", gone) == gone
        entered = asyncio.create_task(_enter(store, scope))
        if not died:
            await asyncio.wait({entered}, timeout=0.1)
            assert not entered.done()
            await store.unclaim(scope.tenant, "begin:s", gone)
        async with asyncio.timeout(PATIENCE):
            await entered


async def _enter(store: MemoryStore, scope: Scope) -> None:
    async with turn(store, scope):
        pass
