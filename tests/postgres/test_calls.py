"""Batches of appends, and polls of followed logs: what they cost, and that a row that is locked
elsewhere holds up nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast import CaughtUp, Event, NewEvent, key
from holdfast.stores.postgres import PostgresStore, calls, notices
from holdfast.stores.postgres.database import Options
from holdfast.stores.postgres.notices import PostgresNotices

from .. import servers
from ..harness.kernel.scene import until

NOTE = "note.made"
PATIENCE = 30.0


@pytest.fixture
def url(tmp_path: Path) -> str:
    return servers.url("postgres", tmp_path)


@pytest.fixture
async def store(url: str) -> AsyncGenerator[PostgresStore, None]:
    store = await PostgresStore.open(url)
    yield store
    await store.aclose()


async def begin(store: PostgresStore, count: int) -> list[str]:
    names = [f"s{n}" for n in range(count)]
    for name in names:
        await store.append(key(name), [NewEvent.of(NOTE)], create=True)
    return names


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches that are sent."""
    found: list[int] = []
    in_one = calls.Calls._in_one

    async def counted(self: calls.Calls, some: Any) -> bool:
        found.append(len(some))
        return await in_one(self, some)

    monkeypatch.setattr(calls.Calls, "_in_one", counted)
    return found


async def test_appends_that_wait_share_a_batch(store: PostgresStore, sizes: list[int]) -> None:
    names = await begin(store, 40)
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(store.append(key(name), [NewEvent.of(NOTE)]) for name in names))
    assert max(sizes) == calls.TOGETHER
    for name in names:
        assert [event.seq async for event in store.read(key(name))] == [1, 2]


async def test_a_batch_waits_for_the_writers_of_the_last_one(
    store: PostgresStore, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LATE", "GATHER"):
        monkeypatch.setattr(calls, name, 2 * PATIENCE)

    async def appends(name: str) -> None:
        while True:
            await store.append(key(name), [NewEvent.of(NOTE)])

    names = await begin(store, 6)
    writers = [asyncio.create_task(appends(name)) for name in names]
    await until(lambda: len(sizes) >= 10)
    assert sizes == sorted(sizes)
    assert sizes[0] > 1
    for writer in writers:
        writer.cancel()


async def test_a_row_that_is_locked_elsewhere_delays_no_other_log(
    store: PostgresStore, url: str
) -> None:
    await begin(store, 4)
    conn = await asyncpg.connect(url.partition("?")[0])
    async with conn.transaction():
        await conn.execute(
            f"SELECT 1 FROM \"{Options(url).schema}\".logs WHERE session = 's0' FOR UPDATE"
        )
        blocked = asyncio.create_task(store.append(key("s0"), [NewEvent.of(NOTE)]))
        for _ in range(3):
            async with asyncio.timeout(PATIENCE):
                others = (store.append(key(f"s{n}"), [NewEvent.of(NOTE)]) for n in (1, 2, 3))
                await asyncio.gather(*others)
        assert not blocked.done()
    async with asyncio.timeout(PATIENCE):
        await blocked
    await conn.close()


async def test_a_process_does_not_read_its_own_appends_again(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls, reads = asyncio.Semaphore(0), []
    heads, page = notices._heads, store._page

    async def polled(*arguments: Any) -> Any:
        polls.release()
        return await heads(*arguments)

    async def read(*arguments: Any) -> Any:
        reads.append(arguments)
        return await page(*arguments)

    monkeypatch.setattr(notices, "LOOK", 0.02)
    monkeypatch.setattr(notices, "_heads", polled)
    monkeypatch.setattr(store, "_page", read)
    await begin(store, 1)
    found = asyncio.Queue[int]()

    async def follow() -> None:
        async for item in store.follow(key("s0")):
            found.put_nowait(item.head if isinstance(item, CaughtUp) else item.seq)

    following = asyncio.create_task(follow())
    async with asyncio.timeout(PATIENCE):
        assert [await found.get() for _ in range(2)] == [1, 1]
        for _ in range(2):
            await polls.acquire()
        before = len(reads)
        for n in range(2, 12):
            await store.append(key("s0"), [NewEvent.of(NOTE)])
            assert await found.get() == n
            await polls.acquire()
        for _ in range(3):
            await polls.acquire()
    assert len(reads) <= before + 1  # the first poll of a log tells its followers
    following.cancel()


async def test_an_append_of_another_process_is_found_between_our_own(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hears_nothing(*_: Any) -> None:
        pass

    monkeypatch.setattr(notices, "LOOK", 0.02)
    monkeypatch.setattr(PostgresNotices, "_heard", hears_nothing)
    await begin(store, 1)
    other = await PostgresStore.open(url)
    found: list[Event] = []

    async def follow() -> None:
        async for item in store.follow(key("s0")):
            if isinstance(item, Event):
                found.append(item)

    following = asyncio.create_task(follow())
    async with asyncio.timeout(PATIENCE):
        for n in range(20):
            await (other if n % 3 == 2 else store).append(key("s0"), [NewEvent.of(NOTE)])
        await other.append(key("s0"), [NewEvent.of(NOTE)])  # only a poll finds it
        await until(lambda: len(found) == 22)
    assert [event.seq for event in found] == [*range(1, 23)]
    following.cancel()
    await other.aclose()
