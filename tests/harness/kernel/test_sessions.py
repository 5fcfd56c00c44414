"""Hosting sessions: getting, listing, closing and deleting them."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import Harness, HarnessClosed, InvalidValue, SessionNotFound
from holdfast.events import Key, Scope
from holdfast.harness.sandbox import NoSandbox
from holdfast.harness.sandbox.port import NoSandboxPlace
from holdfast.harness.session.session import core_of
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import FaultyStore, Stall

from .scene import Slow, helper, serve, until


@pytest.mark.parity("harness-kernel", 55)
async def test_ids_are_trimmed_and_made_where_there_is_none() -> None:
    async with serve(helper(), "hi") as harness:
        named = await harness.get_or_create("  s 1 ")
        assert named.id == "s 1"
        assert await harness.get_or_create("s 1") is named
        others = [await harness.get_or_create(id) for id in (None, "", "   ")]
        assert len({session.id for session in [named, *others]}) == 4


@pytest.mark.parity("harness-kernel", 55, 110)
@pytest.mark.parametrize("id", ["../x", "a/b", "index.json", "é", "x" * 200])
async def test_an_id_is_only_a_name_or_is_refused(id: str, tmp_path: Path) -> None:
    folder = tmp_path / "inside"
    async with serve(helper(), "hi", store=f"file:{folder}") as harness:
        try:
            result = await harness.send(id, "hello")
        except InvalidValue:
            assert (await harness.list()).items == []
        else:
            assert result.session == id
            assert [row.key.session for row in (await harness.list()).items] == [id]
            await harness.delete(id)
    assert set(await asyncio.to_thread(os.listdir, tmp_path)) <= {"inside"}


@pytest.mark.parity("harness-kernel", 56)
async def test_all_who_ask_at_once_get_one_object() -> None:
    opened: list[str] = []
    harness = serve(helper(), "hi")
    harness.subscribe(lambda what, id, value: opened.append(what))
    try:
        found = await asyncio.gather(*(harness.get_or_create("s") for _ in range(100)))
        assert len({id(session) for session in found}) == 1
        assert opened.count("session.opened") == 1
        events = await found[0].events()
        assert [event.kind for event in events].count("session.created") == 1
    finally:
        await harness.aclose()


@pytest.mark.parity("harness-kernel", 57)
async def test_get_knows_only_what_is_live_here() -> None:
    async with serve(helper(), "hi") as harness:
        assert harness.get("s") is None
        session = await harness.get_or_create("s")
        assert harness.get("s") is session
        assert await harness.close("s")
        assert harness.get("s") is None
        assert not await harness.close("s")
        assert await harness.get_or_create("s") is not session


@pytest.mark.parity("harness-kernel", 58)
async def test_what_is_said_of_a_session_counts_when_it_is_made() -> None:
    async with serve(helper(), "hi") as harness:
        first = await harness.get_or_create("s", title="One", labels=["x"], metadata={"a": 1})
        again = await harness.get_or_create("s", title="Two", metadata={"a": 2})
        assert again is first
        row = await harness.store.row(first.key)
        assert row is not None
        assert (row.title, [*row.labels], dict(row.metadata)) == ("One", ["x"], {"a": 1})


async def _walk(harness: Harness, limit: int, touch: Any = None) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page = await harness.list(cursor=cursor, limit=limit)
        found += [row.key.session for row in page.items]
        cursor = page.cursor
        if cursor is None:
            return found
        if touch is not None:
            await touch(found)


@pytest.mark.parity("harness-kernel", 59)
async def test_a_walk_over_pages_sees_all_the_latest_first() -> None:
    async with serve(helper(), "hi") as harness:
        names = [f"s{n:03}" for n in range(250)]
        for name in names:
            await harness.get_or_create(name)
        assert sorted(await _walk(harness, 60)) == names
        assert len((await harness.list()).items) == 50
        for limit, size in ((0, 1), (-3, 1), (1000, 100)):
            assert len((await harness.list(limit=limit)).items) == size
        second = time.time() // 1
        await until(lambda: time.time() // 1 > second)  # lists tell seconds apart
        await harness.send("s007", "hello")
        assert (await harness.list(limit=1)).items[0].key.session == "s007"
        with pytest.raises(InvalidValue):
            await harness.list(cursor="nonsense")


@pytest.mark.parity("harness-kernel", 60)
@pytest.mark.parametrize("storage", ["memory:", "sqlite:{}/x.db"])
async def test_a_walk_skips_nothing_that_was_not_touched(storage: str, tmp_path: Path) -> None:
    async with serve(helper(), "hi", store=storage.format(tmp_path)) as harness:
        names = {f"s{n:02}" for n in range(40)}
        for name in names:
            await harness.get_or_create(name)
        touched: set[str] = set()

        async def touch(found: list[str]) -> None:
            name = min(names - set(found) - touched, default=None)
            if name is not None:
                touched.add(name)
                await harness.send(name, "hello")

        found = await _walk(harness, 5, touch)
        assert names - touched <= set(found)
        assert len(found) == len(set(found))
        again = [row.key.session for row in (await harness.list(limit=100)).items]
        assert set(again) == names


@pytest.mark.parity("harness-kernel", 61)
async def test_lists_of_what_is_live_and_of_one_agent(tmp_path: Path) -> None:
    storage = f"sqlite:{tmp_path}/x.db"
    async with serve(helper(label="Other"), "hi", store=storage) as harness:
        await harness.get_or_create("theirs")
    async with serve(helper(), "hi", store=storage) as harness:
        for name in ("1", "2", "3"):
            await harness.get_or_create(name)
        await harness.close("2")

        async def listed(**filters: Any) -> list[str]:
            return sorted(row.key.session for row in (await harness.list(**filters)).items)

        assert await listed(active=True) == ["1", "3"]
        assert await listed() == ["1", "2", "3"]
        assert await listed(agent="other") == ["theirs"]
        assert await listed(agent=None) == ["1", "2", "3", "theirs"]


@pytest.mark.parity("harness-kernel", 62)
async def test_closing_keeps_everything() -> None:
    async with serve(helper(), "one", "two") as harness:
        session = await harness.get_or_create("s")
        await session.send("hello")
        before = await session.transcript()
        await session.close()
        assert session.status.phase == "closed"
        for call in (session.send("x"), session.wait(), session.state.update(a=1)):
            with pytest.raises(HarnessClosed):
                await call
        again = await harness.get_or_create("s")
        assert await again.transcript() == before
        assert (await again.send("and")).status == "done"


@pytest.mark.parity("harness-kernel", 63, 68)
async def test_deleting_removes_everything_and_says_so() -> None:
    told: list[tuple[str, str]] = []
    async with serve(helper(), "hi") as harness:
        harness.subscribe(lambda what, id, value: told.append((what, id)))
        session = await harness.get_or_create("s")
        await session.send("hello")
        told.clear()
        receipt = await harness.delete("s")
        assert receipt.removed["logs"] == 1
        assert told == [("session.deleted", "s")]
        assert (await harness.list()).items == []
        assert harness.get("s") is None
        with pytest.raises((HarnessClosed, SessionNotFound)):
            await session.send("x")
        told.clear()
        assert not any((await harness.delete("s")).removed.values())
        assert told == []
        assert await (await harness.get_or_create("s")).transcript() == []


@pytest.mark.parity("harness-kernel", 63)
async def test_deleting_in_the_middle_of_a_run_ends_it() -> None:
    model = Slow()
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        waiting = asyncio.create_task(session.send("hello"))
        await model.gate.someone()
        assert (await harness.delete("s")).removed["logs"] == 1
        with pytest.raises((HarnessClosed, SessionNotFound)):
            await waiting
        model.gate.open()
        assert (await harness.list()).items == []


class Watched(NoSandbox):
    """A sandbox that writes down what becomes of it."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def open(self, key: Key, *, agent: str, resources: Any = None) -> NoSandboxPlace:
        self.seen.append(f"open {key.session}")
        return await super().open(key, agent=agent, resources=resources)

    async def destroy(self, scope: Scope) -> None:
        self.seen.append(f"destroy {scope.session}")


@pytest.mark.parity("harness-kernel", 64)
@pytest.mark.parametrize("live", [True, False])
async def test_deleting_destroys_the_sandbox(live: bool) -> None:
    sandbox = Watched()
    async with serve(helper(), "hi", sandbox=sandbox) as harness:
        session = await harness.get_or_create("s")
        await session.send("hello")
        await core_of(session).place()
        if not live:
            await harness.close("s")
        await harness.delete("s")
    assert sandbox.seen == ["open s", "destroy s"]


@pytest.mark.parity("harness-kernel", 65, 68)
async def test_all_are_closed_and_the_harness_goes_on() -> None:
    told: list[str] = []
    async with serve(helper(), "hi") as harness:
        harness.subscribe(lambda what, id, value: told.append(what))
        for name in ("1", "2"):
            await harness.get_or_create(name)
        told.clear()
        await harness.close_all()
        assert told == ["sessions.closed"]
        assert (await harness.list(active=True)).items == []
        assert len((await harness.list()).items) == 2
        assert (await harness.send("1", "hello")).text == "hi"


@pytest.mark.parity("harness-kernel", 66)
async def test_closing_twice_is_once_and_then_nothing_is_begun() -> None:
    harness = serve(helper(), "hi")
    await harness.start()
    session = await harness.get_or_create("s")
    await harness.aclose()
    await harness.aclose()
    for call in (
        harness.get_or_create("t"),
        harness.send("s", "x"),
        session.send("x"),
        harness.start(),
    ):
        with pytest.raises(HarnessClosed):
            await call
    assert harness.get("s") is None


@pytest.mark.parity("harness-kernel", 67)
@pytest.mark.parametrize("how", ["close", "aclose"])
async def test_closing_waits_for_the_driver_and_nothing_is_written_after(
    how: str, tmp_path: Path
) -> None:
    from holdfast import connect

    store = await connect(f"sqlite:{tmp_path}/x.db")
    model = Slow()
    harness = serve(helper(), default_model=model, store=store, ttl=60)
    await harness.start()
    session = await harness.get_or_create("s")
    await session.post("hello")
    await model.gate.someone()
    if how == "close":
        await harness.close("s", grace=0.05)
    else:
        await harness.aclose(grace=0.05)
    row = await store.row(session.key)
    assert row is not None
    model.gate.open()
    for _ in range(100):  # what still worked would write now
        await asyncio.sleep(0)
    after = await store.row(session.key)
    assert after is not None
    assert after.head == row.head
    kinds = [event.kind async for event in store.read(session.key)]
    assert kinds[-2:] == ["message.interrupted", "run.waiting"]
    await harness.aclose()
    quick = Slow(quick=["hello"])
    async with serve(helper(), default_model=quick, store=store) as harness:
        result = await (await harness.get_or_create("s")).wait()
        assert (result.status, result.text) == ("done", "quick hello")
    await store.aclose()


@pytest.mark.parity("harness-kernel", 67)
async def test_a_driver_that_has_only_just_begun_is_stopped_too() -> None:
    model = Slow()
    async with serve(helper(), default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.post("hello")
        async with asyncio.timeout(5):
            assert await harness.close("s", grace=0.05)
        assert core_of(session).closed
        assert harness.get("s") is None


@pytest.mark.parity("harness-kernel", 68)
async def test_what_happens_to_sessions_is_told_in_order_and_faults_are_kept_apart() -> None:
    told: list[str] = []

    def broken(what: str, id: str, value: Any) -> None:
        raise RuntimeError("no")

    async with serve(helper(), "hi") as harness:
        harness.subscribe(broken)
        leave = harness.subscribe(
            lambda what, id, value: told.append(f"{what} {id} {getattr(value, 'kind', '')}")
        )
        assert (await harness.send("s", "hello")).text == "hi"
        assert told == [
            "session.created s ",
            "session.opened s ",
            "session.event s message.received",
            "session.event s run.started",
            "session.event s model.called",
            "session.event s context.built",
            "session.event s message.completed",
            "session.event s run.finished",
        ]
        leave()
        await harness.close("s")
        await harness.get_or_create("s")
        assert len(told) == 8


@pytest.mark.parity("harness-kernel", 68)
async def test_a_session_that_was_there_is_opened_and_not_created() -> None:
    told: list[str] = []
    async with serve(helper(), "hi") as harness:
        await harness.send("s", "hello")
        await harness.close("s")
        harness.subscribe(lambda what, id, value: told.append(what))
        await harness.get_or_create("s")
        await until(lambda: told)
    assert told[0] == "session.opened"


async def test_session_is_created_right_after_another_caller_found_none() -> None:
    stall = Stall(method="row")
    store = FaultyStore(MemoryStore(), [stall])
    async with serve(helper(), "hi", store=store) as harness:
        opening = asyncio.create_task(harness.open("s"))
        await stall.reached.wait()

        async def late() -> Any:
            await stall.go.wait()  # continues right after the opening has failed
            return await harness.get_or_create("s")

        creating = asyncio.create_task(late())
        await asyncio.sleep(0)
        stall.go.set()
        with pytest.raises(SessionNotFound):
            await opening
        assert (await creating).id == "s"
