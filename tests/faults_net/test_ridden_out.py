"""What passes by itself is not seen: the next call succeeds, and so does the one under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import CaughtUp, Event, Store
from holdfast.testing.samples import KEY, PATIENCE, begin, note, read_all
from tests import servers
from tests.servers import faults

Trouble = Callable[[servers.Faulty], Any]


async def reset(place: servers.Faulty) -> None:
    assert place.wire.cut("reset")


async def close(place: servers.Faulty) -> None:
    assert place.wire.cut("close")


async def server_ends_them(place: servers.Faulty) -> None:
    """The server itself ends the connections, and stays."""
    if place.server.kind == "postgres":
        assert await faults.terminate(place.server.address)
    else:
        await asyncio.to_thread(place.server.restart, gently=True)


async def killed(place: servers.Faulty) -> None:
    await asyncio.to_thread(place.server.restart)


async def refused_for_a_moment(place: servers.Faulty) -> None:
    with place.wire.refusing():
        await asyncio.sleep(0.3)


TROUBLES = [reset, close, server_ends_them, killed, refused_for_a_moment]
SLOW = [server_ends_them, killed]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
async def test_what_happens_to_idle_connections_is_not_seen(
    trouble: Trouble, place: servers.Faulty, store: Store
) -> None:
    await begin(store)
    for number in range(2, 3 if trouble in SLOW else 6):
        await asyncio.gather(*(store.row(KEY) for _ in range(8)))  # as many as it likes
        await trouble(place)
        lease = await store.acquire(KEY, "driver", steal="again")
        await trouble(place)
        assert (await store.append(KEY, [note(number)], fence=lease)).seqs == (number,)


async def test_calls_in_the_dark_go_through_when_it_ends(
    place: servers.Faulty, store: Store
) -> None:
    await begin(store)
    with place.wire.silent():
        calls = [asyncio.create_task(store.append(KEY, [note(n)])) for n in range(2, 6)]
        await asyncio.sleep(0.3)
        assert not any(call.done() for call in calls)
    done = await asyncio.gather(*calls)
    assert sorted(seq for each in done for seq in each.seqs) == [2, 3, 4, 5]
    assert len(await read_all(store)) == 5


async def test_connections_may_break_while_they_are_made(
    place: servers.Faulty, store: Store
) -> None:
    keys = [holdfast.key(f"s{n}") for n in range(8)]
    for number in range(1, 25):
        await asyncio.gather(*(store.row(at) for at in keys[:4]))
        place.wire.cut()
        place.wire.lose("reply", 1 + number % 6)
        try:
            appends = [store.append(at, [note(number)], create=True) for at in keys]
            done = await asyncio.gather(*appends)
        finally:
            place.wire.disarm()
        assert {each.seqs for each in done} == {(number,)}


async def test_a_slow_line_is_only_slow(place: servers.Faulty, store: Store) -> None:
    await begin(store)
    with place.wire.delaying(0.05):
        assert (await store.append(KEY, [note(2)], expected=1)).seqs == (2,)
        assert len(await read_all(store)) == 2


@pytest.mark.parametrize("trouble", [reset, killed], ids=lambda trouble: trouble.__name__)
async def test_a_follower_misses_and_repeats_nothing(
    trouble: Trouble, place: servers.Faulty, store: Store, tmp_path: Path
) -> None:
    await begin(store, count=2)
    async with (
        holdfast.connect(place.url(tmp_path)) as other,
        aclosing(store.follow(KEY)) as following,
        asyncio.timeout(PATIENCE),
    ):
        assert await taken(following, 3) == [1, 2, CaughtUp]
        for n in range(3, 4 if trouble in SLOW else 6):
            await trouble(place)
            await other.append(KEY, [note(n)])
            assert await taken(following, 1) == [n]


async def taken(following: AsyncGenerator[Event | CaughtUp, None], count: int) -> list[Any]:
    items = [await anext(following) for _ in range(count)]
    return [item.seq if isinstance(item, Event) else type(item) for item in items]
