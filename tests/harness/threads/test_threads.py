"""Threads: how they come, go, are found and told apart; and what goes on in one that is left."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import (
    DeletionRefused,
    HarnessClosed,
    InvalidValue,
    Mode,
    NewEvent,
    SessionExists,
    SessionNotFound,
    Sessions,
    StoreUnavailable,
    UnsafePoint,
    key,
    tool,
)
from holdfast.harness.session.session import core_of
from holdfast.log.state import fold
from holdfast.models.scripted import Say, Use
from holdfast.state import VERSION, State
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import Fail, FaultyStore

from ..kernel.scene import PATIENCE, Gate, Slow, helper, kinds, read, script, serve, until


@pytest.mark.parity("mastra-session", 5)
async def test_a_thread_is_begun_once_and_then_taken_up(tmp_path: Path) -> None:
    storage = f"sqlite:{tmp_path}/x.db"
    for _ in range(2):
        async with serve(helper(), "hi", store=storage) as harness:
            session = await harness.get_or_create("s", thread="side")
            assert session.thread.id == "side"
            await session.send("hello")
    async with serve(helper(), "hi", store=storage) as harness:
        session = await harness.get_or_create("s", thread="side")
        assert {row.thread for row in (await session.threads.list()).items} == {"main", "side"}
        assert len(await session.thread.messages()) == 4


async def test_a_new_thread_has_a_name_a_title_and_works_as_this_one_does() -> None:
    models = [script("a", ref="a/m"), script("b", ref="b/m")]
    agent = helper(modes=[Mode("one"), Mode("two")])
    async with serve(agent, providers=models, default_model="a/m") as harness:
        main = await harness.get_or_create("s")
        await main.send("hello")
        await main.mode.switch("two")
        await main.model.set("b/m")
        side = await main.thread.create("Side", id="side")
        other = await main.thread.create()
        assert (side.thread.id, side.mode.name, side.model.ref) == ("side", "two", "b/m")
        assert other.thread.id not in ("main", "side")
        assert await side.thread.messages() == []
        row = await main.threads.get("side")
        assert row is not None
        assert (row.title, row.parent and row.parent.thread) == ("Side", "main")
        assert (await side.send("hi")).text == "b"
        assert len(await main.transcript()) == 2


async def test_a_new_thread_keeps_to_the_model_of_its_mode() -> None:
    models = [script("a", ref="a/m"), script("b", ref="b/m"), script("c", ref="c/m")]
    agent = helper(modes=[Mode("one"), Mode("two", model="b/m")])
    async with serve(agent, providers=models, default_model="a/m") as harness:
        main = await harness.get_or_create("s")
        await main.model.set("c/m")
        await main.mode.switch("two")
        assert (await main.thread.create()).model.ref == "b/m"


async def test_a_name_that_is_taken_is_refused_and_nothing_changes() -> None:
    async with serve(helper(), "hi") as harness:
        main = await harness.get_or_create("s")
        first, *refused = await asyncio.gather(
            *(main.thread.create(str(n), id="side") for n in range(3)), return_exceptions=True
        )
        made = [first, *refused]
        assert sorted(type(one).__name__ for one in made) == [
            "Session",
            "SessionExists",
            "SessionExists",
        ]
        with pytest.raises(SessionExists):
            await main.thread.create(id="main")
        with pytest.raises(SessionExists):
            await main.thread.clone(id="side")
        with pytest.raises(InvalidValue):
            await main.thread.create(id="")
        side = await main.thread.switch("side")
        assert await kinds(side) == ["thread.created"]


@pytest.mark.parity("mastra-session", 117)
async def test_a_thread_that_cannot_be_written_is_not_there_and_this_one_goes_on() -> None:
    store = FaultyStore(MemoryStore())
    async with serve(helper(), "hi", store=store) as harness:
        main = await harness.get_or_create("s")
        store.plan.append(Fail(method="append", call=store.calls["append"] + 1))
        with pytest.raises(StoreUnavailable):
            await main.thread.create(id="side")
        assert [row.thread for row in (await main.threads.list()).items] == ["main"]
        assert (await main.send("hello")).text == "hi"
        side = await main.thread.create(id="side")
        assert (await side.send("hello")).text == "hi"


async def test_a_clone_that_was_cut_short_has_its_settings_all_the_same() -> None:
    store = FaultyStore(MemoryStore())
    async with serve(helper(), "hi", store=store) as harness:
        main = await harness.get_or_create("s")
        await main.thread.settings.set(theme="dark")
        store.plan.append(Fail(method="append", call=store.calls["append"] + 1))
        with pytest.raises(StoreUnavailable):
            await main.thread.clone(id="copy")
        copy = await main.thread.switch("copy")
        assert copy.thread.settings.all() == {"theme": "dark"}


async def test_to_switch_gives_the_one_live_session_of_a_thread() -> None:
    async with serve(helper(), "hi") as harness:
        main = await harness.get_or_create("s")
        side = await main.thread.create(id="side")
        assert await main.thread.switch("side") is side
        assert await side.thread.switch("main") is main
        assert await main.thread.switch("main") is main
        assert await harness.get_or_create("s", thread="side") is side


@pytest.mark.parity("mastra-session", 119)
async def test_a_thread_that_is_not_there_is_not_made_by_a_switch() -> None:
    async with serve(helper(), "hi") as harness:
        main = await harness.get_or_create("s")
        await (await harness.get_or_create("other")).thread.create(id="foreign")
        for name in ("nobody", "foreign"):
            with pytest.raises(SessionNotFound):
                await main.thread.switch(name)
        with pytest.raises(SessionNotFound):
            await harness.open("nobody")
        assert [row.thread for row in (await main.threads.list()).items] == ["main"]
        assert (await harness.list()).total is None
        assert {row.session for row in (await harness.list()).items} == {"s", "other"}
        assert (await main.send("still here")).text == "hi"


@pytest.mark.parametrize("verb", ["switch", "create", "clone"])
async def test_a_run_that_is_left_goes_on_and_who_waits_for_it_is_answered(verb: str) -> None:
    slow = Slow(quick={"quickly"})
    async with serve(helper(), default_model=slow) as harness:
        main = await harness.get_or_create("s")
        await main.thread.create(id="side")
        sent = asyncio.create_task(main.send("go"))
        await slow.gate.someone()
        await main.post("and then")
        if verb == "switch":
            other = await main.thread.switch("side")
        else:
            other = await getattr(main.thread, verb)()
        assert (await other.send("quickly")).text == "quick quickly"
        assert (main.status.phase, main.status.queued) == ("waiting_model", 1)
        slow.gate.open()
        assert (await sent).status == "done"
        await main.wait()
        assert read(slow.calls[-1])[-1] == "user: and then"
        assert other.status.queued == 0


@pytest.mark.parity("mastra-session", 122)
async def test_a_clone_shares_what_was_and_nothing_of_what_comes() -> None:
    models = [
        script(Say("a", usage={"input_tokens": 5, "output_tokens": 1}), ref="a/m"),
        script("b", ref="b/m"),
    ]
    agent = helper(modes=[Mode("one"), Mode("two")])
    async with serve(agent, providers=models, default_model="a/m") as harness:
        main = await harness.get_or_create("s", metadata={"project": "p"})
        await main.send("hello")
        await main.mode.switch("two")
        await main.model.set("b/m")
        await main.thread.settings.set(theme="dark", gone=1)
        await main.thread.settings.delete("gone")
        before = await main.events()
        clone = await main.thread.clone("A copy", id="copy")
        assert (await clone.events())[: len(before)] == before == await main.events()
        assert (clone.mode.name, clone.model.ref) == ("two", "b/m")
        assert clone.thread.settings.all() == {"project": "p", "theme": "dark"}
        assert core_of(main).live.state.usage
        assert core_of(clone).live.state.usage == {}
        await clone.send("differently")
        await clone.thread.settings.set(theme="light")
        assert await main.events() == before
        assert main.thread.settings.get("theme") == "dark"
        for wanted, found in (("dark", {"main"}), ("light", {"copy"})):
            page = await main.threads.list(settings={"theme": wanted})
            assert {row.thread for row in page.items} == found
        row = await main.threads.get("copy")
        assert row is not None
        assert (row.title, row.parent and row.parent.at) == ("A copy", before[-1].seq)


async def test_a_clone_of_a_busy_thread_begins_where_nothing_was_open() -> None:
    slow = Slow(quick={"first", "elsewhere"})
    async with serve(helper(), default_model=slow) as harness:
        main = await harness.get_or_create("s")
        await main.send("first")
        safe = main.status.head
        sent = asyncio.create_task(main.send("go"))
        await slow.gate.someone()
        with pytest.raises(UnsafePoint):
            await main.thread.fork()
        with pytest.raises(UnsafePoint):
            await main.thread.clone(at=main.status.head)
        clone = await main.thread.clone()
        assert (await clone.send("elsewhere")).text == "quick elsewhere"
        early = await main.thread.clone(at=safe)
        assert [m.text for m in await early.thread.messages()] == ["first", "quick first"]
        slow.gate.open()
        assert (await sent).text == "Let me see."


async def test_a_fork_of_a_long_thread_is_not_read_from_its_beginning() -> None:
    async with serve(helper(), "hi") as harness:
        main = await harness.get_or_create("s")
        await main.thread.settings.set(theme="dark")
        for _ in range(3):
            notes = [NewEvent.of("my.note", {"n": n}) for n in range(200)]
            await harness.store.append(main.key, notes)
        await core_of(main).catch_up()
        for clone in (await main.thread.clone(), await main.thread.clone(at=550)):
            kept = await harness.store.load_snapshot(clone.key, VERSION)
            assert kept is not None
            assert kept.seq == clone.status.head
            whole = fold(await clone.events())
            assert msgspec.json.decode(kept.state, type=State) == core_of(clone).live.state == whole
            assert (await clone.send("hello")).text == "hi"


@pytest.mark.parametrize("method", ["acquire", "save_snapshot"])
async def test_a_fork_whose_snapshot_cannot_be_kept_is_a_fork(method: str) -> None:
    store = FaultyStore(MemoryStore())
    async with serve(helper(), "hi", store=store, ttl=60) as harness:
        main = await harness.get_or_create("s")
        await store.append(main.key, [NewEvent.of("my.note", {"n": n}) for n in range(600)])
        await core_of(main).catch_up()
        await until(lambda: not harness.drives("s"))
        store.plan.append(Fail(method=method, call=store.calls[method] + 1))
        clone = await main.thread.fork(thread="other")
        assert store.calls[method]
        async with asyncio.timeout(PATIENCE):
            assert (await clone.send("hello")).text == "hi"  # nobody holds it


async def test_another_thread_can_be_the_source_of_a_clone() -> None:
    async with serve(helper(), "hi") as harness:
        main = await harness.get_or_create("s")
        side = await main.thread.create(id="side")
        await side.send("in the side")
        clone = await main.thread.clone(source="side")
        assert [m.text for m in await clone.thread.messages()] == ["in the side", "hi"]
        with pytest.raises(SessionNotFound):
            await main.thread.clone(source="nobody")
        again = await clone.thread.clone()
        assert [m.text for m in await again.thread.messages()] == ["in the side", "hi"]


@pytest.mark.parity("mastra-session", 124)
async def test_any_thread_is_renamed_without_leaving_this_one() -> None:
    async with serve(helper(), "hi") as harness:
        main = await harness.get_or_create("s", title="Old")
        side = await main.thread.create("Old", id="side")
        listener = side.subscribe()
        await main.thread.rename("New", "side")
        event = await listener.first("thread.renamed")
        assert event.json() == {"title": "New"}
        await main.thread.rename("Mine")
        titles = {row.thread: row.title for row in (await main.threads.list()).items}
        assert titles == {"main": "Mine", "side": "New"}
        with pytest.raises(SessionNotFound):
            await main.thread.rename("New", "nobody")
        for bad in ("", "  ", None):
            with pytest.raises(InvalidValue, match="title"):
                await main.thread.rename(bad)  # type: ignore[arg-type]


@pytest.mark.parity("mastra-session", 125, 126)
async def test_a_thread_is_deleted_from_within_and_from_another() -> None:
    async with serve(helper(), "hi") as harness:
        told: list[Any] = []
        harness.subscribe(lambda *what: told.append(what) if what[0] == "thread.deleted" else None)
        main = await harness.get_or_create("s")
        side, other = await main.thread.create(id="side"), await main.thread.create(id="other")
        await side.send("hello")
        await side.thread.delete()
        await main.thread.delete("other")
        assert told == [("thread.deleted", "s", "side"), ("thread.deleted", "s", "other")]
        for gone in (side, other):
            assert gone.status.phase == "closed"
            with pytest.raises(HarnessClosed):
                await gone.send("anybody?")
        assert (await main.send("hello")).text == "hi"
        fresh = await main.thread.create(id="side")
        assert fresh is not side
        assert await fresh.thread.messages() == []


@pytest.mark.parity("mastra-session", 127)
async def test_what_must_not_be_deleted_or_is_not_there_is_refused() -> None:
    async with serve(helper(), "hi") as harness:
        main = await harness.get_or_create("s")
        await (await harness.get_or_create("other")).thread.create(id="foreign")
        with pytest.raises(InvalidValue, match="delete the session"):
            await main.thread.delete()
        for name in ("nobody", "foreign"):
            with pytest.raises(SessionNotFound):
                await main.thread.delete(name)
        await main.thread.create(id="side")
        await Sessions(harness.store).hold("s", "lawsuit")
        with pytest.raises(DeletionRefused, match="lawsuit"):
            await main.thread.delete("side")
        assert await main.threads.get("side") is not None


async def test_of_two_who_delete_a_thread_one_did_it() -> None:
    async with serve(helper(), "hi") as harness:
        main = await harness.get_or_create("s")
        await main.thread.create(id="side")
        done = await asyncio.gather(
            *(main.thread.delete("side") for _ in range(3)), return_exceptions=True
        )
        assert [one for one in done if one is None] == [None]
        assert all(isinstance(one, SessionNotFound) for one in done if one is not None)


async def test_forks_stay_whole_when_their_parent_goes() -> None:
    async with serve(helper(), "hi") as harness:
        main = await harness.get_or_create("s")
        side = await main.thread.create(id="side")
        await side.send("hello")
        fork = await side.thread.clone()
        deep = await fork.thread.clone()
        before = [m.text for m in await deep.thread.messages()]
        await side.thread.delete()
        await fork.thread.delete()
        assert [m.text for m in await deep.thread.messages()] == before == ["hello", "hi"]
        assert (await deep.send("go on")).text == "hi"


@pytest.mark.parametrize("where", ["here", "elsewhere"])
@pytest.mark.parametrize("run", ["running", "waiting"])
async def test_a_run_is_stopped_before_its_thread_goes(
    tmp_path: Path, where: str, run: str
) -> None:
    gate, ended = Gate(), asyncio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        try:
            await gate.pass_through()
        finally:
            ended.set()
        return "done"

    @tool(approval="ask")
    async def careful() -> str:
        """Ask."""
        return "done"

    name = "hang" if run == "running" else "careful"
    agent, storage = helper(tools=[hang, careful]), f"sqlite:{tmp_path}/x.db"
    async with (
        serve(agent, Say(calls=[Use(name)]), "ok", store=storage) as harness,
        serve(agent, "no", store=storage, recovery="leave") as second,
    ):
        main = await harness.get_or_create("s")
        side = await main.thread.create(id="side")
        sent = asyncio.create_task(side.send("go"))
        if run == "running":
            await gate.someone()
        else:
            assert (await sent).status == "waiting"
        await side.post("and then")
        deleting = main if where == "here" else await second.get_or_create("s")
        await deleting.thread.delete("side")
        if run == "running":
            assert (await sent).status == "aborted"
            assert ended.is_set()
        assert await harness.store.row(key("s", "side")) is None
        assert (await main.threads.list()).items[0].thread == "main"


@pytest.mark.parity("mastra-session", 128)
async def test_threads_are_found_by_what_they_are() -> None:
    async with serve(helper(), "hi") as harness:
        main = await harness.get_or_create("s", title="Main")
        red = await main.thread.create("A red one", id="red")
        await main.thread.create("Blue", id="blue")
        await red.send("hello")
        await red.thread.settings.set(colour="red", n=1)
        await red.thread.clone("Fork", id="fork")
        await harness.get_or_create("elsewhere")
        label = NewEvent.of("label.added", {"label": "vip"})
        await harness.store.append(key("s", "blue"), [label])

        async def found(**filters: Any) -> set[str]:
            return {row.thread for row in (await main.threads.list(**filters)).items}

        assert await found() == {"main", "red", "blue", "fork"}
        assert await found(title="RED") == {"red"}
        assert await found(label="vip") == {"blue"}
        assert await found(settings={"colour": "red"}) == {"red", "fork"}
        assert await found(settings={"colour": "red"}, forks=False) == {"red"}
        assert await found(settings={"n": True}) == set()
        assert await found(forks=True) == {"fork"}
        assert await found(forks=False) == {"main", "red", "blue"}
        assert await found(parent="red") == {"fork"}
        assert await found(parent="main") == {"red", "blue"}


async def test_a_list_is_walked_page_by_page_and_sees_each_thread_once() -> None:
    async with serve(helper(), "hi") as harness:
        main = await harness.get_or_create("s")
        for n in range(11):
            await main.thread.create(f"{'odd' if n % 2 else 'even'} {n}", id=f"t{n}")
        seen: list[str] = []
        page = await main.threads.list(title="odd", limit=2)
        seen += [row.thread for row in page.items]
        while page.cursor is not None:
            assert len(page.items) <= 2
            page = await main.threads.list(title="odd", limit=2, cursor=page.cursor)
            seen += [row.thread for row in page.items]
        assert sorted(seen) == ["t1", "t3", "t5", "t7", "t9"]


@pytest.mark.parity("mastra-session", 8)
async def test_the_thread_that_was_used_last_comes_first_also_after_a_restart() -> None:
    now = 1_000_000_000_000
    store = MemoryStore(clock=lambda: now)
    async with serve(helper(), "hi", store=store) as harness:
        main = await harness.get_or_create("s")
        for name in ("one", "two"):
            now += 5_000
            await main.thread.create(id=name)
        now += 5_000
        await (await main.thread.switch("one")).send("hello")
    async with serve(helper(), "hi", store=store) as harness:
        main = await harness.get_or_create("s")
        newest = (await main.threads.list(limit=1)).items[0].thread
        assert newest == "one"
        assert len(await (await main.thread.switch(newest)).thread.messages()) == 2


@pytest.mark.parity("mastra-session", 130)
async def test_messages_are_the_newest_and_stand_oldest_first() -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    steps = Say("let me", calls=[Use("look")]), "found"
    async with serve(helper(tools=[look]), *steps) as harness:
        main = await harness.get_or_create("s")
        for n in range(5):
            await main.send(str(n))
        whole = await main.thread.messages()
        assert whole == await main.transcript()
        assert len(whole) == 15
        for limit in (1, 2, 3, 4, 14, 15, 99):
            assert await main.thread.messages(limit) == whole[-limit:]
        side = await main.thread.create(id="side")
        assert await side.thread.messages(2, thread="main") == whole[-2:]
        assert await side.thread.messages(3) == []
        with pytest.raises(InvalidValue, match="limit"):
            await main.thread.messages(0)
        with pytest.raises(SessionNotFound):
            await main.thread.messages(thread="nobody")


@pytest.mark.parity("mastra-session", 131)
async def test_first_messages_of_many_threads_cost_one_query() -> None:
    store = FaultyStore(MemoryStore())
    async with serve(helper(), "hi", store=store) as harness:
        main = await harness.get_or_create("s")
        await main.send("in main")
        for n in range(5):
            await (await main.thread.create(id=f"t{n}")).send(f"hello {n}")
        await main.thread.create(id="empty")
        await main.thread.clone(id="fork")
        before = dict(store.calls)
        found = await main.threads.first_user_messages(["t1", "t3", "fork", "empty", "nobody"])
        assert found == {"t1": "hello 1", "t3": "hello 3", "fork": "in main"}
        grown = {name: n - before.get(name, 0) for name, n in store.calls.items()}
        assert {name: n for name, n in grown.items() if n} == {"find": 1}
        assert await main.threads.first_user_messages([]) == {}
        assert set(await main.threads.first_user_messages()) == {
            "main",
            "fork",
            *(f"t{n}" for n in range(5)),
        }


@pytest.mark.parity("mastra-session", 132)
async def test_settings_of_many_writers_are_all_kept(tmp_path: Path) -> None:
    storage = f"sqlite:{tmp_path}/x.db"
    async with (
        serve(helper(), "hi", store=storage) as one,
        serve(helper(), "hi", store=storage) as two,
    ):
        here = await one.get_or_create("s", thread="side")
        there = await two.get_or_create("s", thread="side")
        await asyncio.gather(
            *(
                session.thread.settings.set({f"{name}{n}": n})
                for n in range(5)
                for name, session in (("a", here), ("b", there))
            )
        )
        await here.thread.settings.delete("a0", "nobody")
        await there.thread.settings.set(b0=[1, {"x": 2}])
        await core_of(here).catch_up()
        found = here.thread.settings.all()
        assert set(found) == {*(f"a{n}" for n in range(1, 5)), *(f"b{n}" for n in range(5))}
        assert here.thread.settings.get("b0") == [1, {"x": 2}]
        assert here.thread.settings.get("a0", "none") == "none"
        found["b0"].append(2)
        assert here.thread.settings.get("b0") == [1, {"x": 2}]
    async with serve(helper(), "hi", store=storage) as harness:
        session = await harness.get_or_create("s", thread="side")
        assert len(session.thread.settings.all()) == 9
        assert (await harness.get_or_create("s")).thread.settings.all() == {}


async def test_settings_that_are_too_many_or_too_large_are_refused() -> None:
    async with serve(helper(), "hi") as harness:
        settings = (await harness.get_or_create("s")).thread.settings
        await settings.set({str(n): n for n in range(100)})
        with pytest.raises(InvalidValue, match="metadata"):
            await settings.set(one_more=1)
        with pytest.raises(InvalidValue):
            await settings.set({"0": "x" * 20_000})
        with pytest.raises(InvalidValue):
            await settings.set({"0": float("nan")})
        assert settings.all() == {str(n): n for n in range(100)}


@pytest.mark.parity("mastra-session", 139)
async def test_a_setting_belongs_to_the_thread_that_it_was_set_in() -> None:
    async with serve(helper(), "hi") as harness:
        main = await harness.get_or_create("s")
        writing = asyncio.create_task(main.thread.settings.set(level="high"))
        side = await main.thread.create(id="side")
        await writing
        assert main.thread.settings.all() == {"level": "high"}
        assert side.thread.settings.all() == {}


@pytest.mark.parity("mastra-session", 9, 10, 11)
async def test_tags_are_what_was_given_and_nothing_of_ours() -> None:
    agent = helper(modes=[Mode("one"), Mode("two")])
    models = [script(Say("a", usage={"input_tokens": 5}), ref="a/m"), script("b", ref="b/m")]
    async with serve(agent, providers=models, default_model="a/m") as harness:
        tagged = await harness.get_or_create("tagged", metadata={"project": "p"})
        await harness.get_or_create("untagged")
        await tagged.send("hello")
        await tagged.mode.switch("two")
        await tagged.model.set("b/m")
        row = await harness.store.row(tagged.key)
        assert row is not None
        assert row.metadata == tagged.thread.settings.all() == {"project": "p"}
        page = await harness.list(metadata={"project": "p"})
        assert [row.session for row in page.items] == ["tagged"]
