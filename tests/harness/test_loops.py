"""Two event loops: what was opened on one says what to do when it is used on another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from holdfast import Agent, Harness, NewEvent, Query, Store, WrongLoop, connect, key, new_id, sync
from holdfast.models import ScriptedModel
from holdfast.stores.memory import MemoryStore
from tests import servers
from tests.servers import recycled

Work = Callable[[], Coroutine[Any, Any, Any]]


async def elsewhere(work: Work) -> Any:
    """What a coroutine comes to on a loop of its own, in another thread."""
    return await asyncio.to_thread(lambda: asyncio.run(work()))


async def refused(what: str, work: Work) -> None:
    with pytest.raises(WrongLoop, match=r"or use holdfast\.sync") as caught:
        await elsewhere(work)
    assert caught.value.what == what
    assert isinstance(caught.value, RuntimeError)


def shop() -> Harness:
    agent = Agent("shop", instructions="Help.")
    return Harness(agent, default_model=ScriptedModel(["hi"], repeat=True))


async def test_a_harness_is_used_on_the_loop_that_it_was_started_on() -> None:
    async with shop() as harness:
        await harness.send("s", "go")
        for work in (
            lambda: harness.send("s", "go"),
            lambda: harness.get_or_create("t"),
            lambda: harness.open("s"),
            harness.list,
            harness.pending,
            lambda: harness.delete("s"),
            lambda: harness.close("s"),
            harness.start,
            harness.aclose,
        ):
            await refused("the harness", work)
        assert (await harness.send("s", "go")).text == "hi"
    with pytest.raises(WrongLoop):  # also once the loop is gone
        await elsewhere(harness.aclose)


async def test_so_is_a_session() -> None:
    async with shop() as harness:
        session = await harness.get_or_create("s")

        async def subscribed() -> None:
            async for _ in session.subscribe():
                return

        for work in (
            lambda: session.send("go"),
            lambda: session.post("go"),
            session.wait,
            session.events,
            session.transcript,
            session.abort,
            subscribed,
        ):
            await refused("session 's'", work)
        assert (await session.send("go")).text == "hi"


def test_a_harness_that_one_run_has_started_is_not_for_the_next() -> None:
    harness = shop()
    asyncio.run(harness.start())
    with pytest.raises(WrongLoop):
        asyncio.run(harness.send("s", "go"))


def test_a_start_that_failed_binds_to_no_loop(tmp_path: Path) -> None:
    agent = Agent("shop", instructions="Help.")
    (tmp_path / "shop.db").mkdir()
    url = f"sqlite:{tmp_path / 'shop.db'}"
    harness = Harness(agent, default_model=ScriptedModel(["hi"]), store=url)
    with pytest.raises(Exception, match=r"shop\.db|open"):
        asyncio.run(harness.start())
    (tmp_path / "shop.db").rmdir()

    async def served() -> str:
        async with harness:
            return (await harness.send("s", "go")).text

    assert asyncio.run(served()) == "hi"


def test_without_await_any_thread_may_use_it() -> None:
    agent = Agent("shop", instructions="Help.")
    with sync.Harness(agent, default_model=ScriptedModel(["hi"], repeat=True)) as harness:
        session = harness.get_or_create("s")

        async def within() -> str:
            return str(await asyncio.to_thread(lambda: session.send("go").text))

        assert (asyncio.run(within()), session.send("go").text) == ("hi", "hi")


# Stores


PLAIN = {"memory": "memory:", "sqlite": "sqlite:{place}/x.db", "file": "file:{place}/x"}


@asynccontextmanager
async def url_of(kind: str, place: Path) -> AsyncIterator[str]:
    if kind in servers.KINDS:
        async with recycled.empty(kind) as url:
            yield url
    else:
        yield PLAIN[kind].format(place=quote(str(place)))


@pytest.fixture(params=[*PLAIN, *servers.KINDS])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with url_of(request.param, tmp_path) as url, connect(url) as opened:
        yield opened


async def test_a_store_is_used_on_the_loop_that_it_was_opened_on(store: Store) -> None:
    where = key(new_id())
    await store.append(where, [NewEvent.of("session.created")], create=True)

    async def read() -> list[Any]:
        return [event async for event in store.read(where)]

    async def followed() -> None:
        async for _ in store.follow(where, after=0):
            return

    for work in (
        lambda: store.append(where, [NewEvent.of("message.received", {"text": "hi"})]),
        lambda: store.row(where),
        lambda: store.find(Query()),
        lambda: store.acquire(where, "me", ttl=5),
        read,
        followed,
    ):
        await refused("the store", work)
    assert len([event async for event in store.read(where)]) == 1


def test_a_store_in_memory_may_outlive_its_loop() -> None:
    store = MemoryStore()

    async def grown() -> int:
        await store.append(key("s"), [NewEvent.of("note.made")], create=True)
        row = await store.row(key("s"))
        return row.head if row is not None else 0

    assert [asyncio.run(grown()) for _ in range(2)] == [1, 2]
