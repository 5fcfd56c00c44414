"""Schedules of sessions on real stores: set, fired by whichever process serves the agent, kept
where a session goes on, and ended where it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Harness, InvalidValue, NewEvent, PhaseError, Store, connect, key, tool
from holdfast.bundle import export_bundle, import_bundle
from holdfast.environment import wall_clock
from holdfast.events import MessageReceived, TimerScheduled, TimerTicked
from holdfast.harness.session.session import core_of
from holdfast.models.scripted import Say, Use
from holdfast.sessions import Sessions
from holdfast.sessions.schedules import Schedules, StoredLog
from holdfast.state import State, fold
from holdfast.testing.samples import read_all
from tests.harness.kernel.scene import helper, script, until
from tests.sessions.places import emptied
from tests.virtual_time import virtual_time

AT = key("s")
MINUTE = 60_000
PATIENCE = 30.0  # seconds; only a hang takes so long
KINDS = ("memory", "sqlite", "postgres")


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store, None]:
    async with contextlib.AsyncExitStack() as stack:
        place = await stack.enter_async_context(emptied(request.param, tmp_path))
        url = {"memory": "memory:", "sqlite": f"sqlite:{place}"}.get(request.param, place)
        yield await stack.enter_async_context(connect(url))


def serve(store: Store | str, **settings: Any) -> Harness:
    return Harness(helper(), default_model=script("done"), store=store, ttl=0.5, **settings)


async def due_ago(store: Store, ms: int, **options: Any) -> int:
    """Write a schedule into a new session whose first firing was due so long ago. Returns when."""
    first = wall_clock() - ms
    schedule = TimerScheduled(name="s", text="go", **{"next": first, "every": MINUTE, **options})
    created = NewEvent.of("session.created", {"agent": "helper"})
    await store.append(AT, [created, NewEvent.of("timer.scheduled", schedule)], create=True)
    return first


async def folded(store: Store) -> State:
    return fold(await read_all(store, AT))


async def sent(store: Store) -> list[int]:
    """The due times of the messages in the log."""
    events = [e for e in await read_all(store, AT) if e.kind == "message.received"]
    return [event.payload(MessageReceived).metadata["due"] for event in events]


async def idle(store: Store) -> None:
    """Wait until the log waits for its next firing."""
    async with asyncio.timeout(PATIENCE):
        while True:
            row, state = await store.row(AT), await folded(store)
            if row is not None and (row.due or 0) > wall_clock() and not state.queue:
                return
            await asyncio.sleep(0.01)


async def test_a_schedule_is_set_listed_paused_resumed_and_removed(store: Store) -> None:
    async with serve(store) as harness:
        session = await harness.get_or_create("s")
        made = await session.schedules.set(
            "report",
            message="Report.",
            cron="0 9 * * 1-5",
            timezone="Europe/Berlin",
            metadata={"why": "daily"},
        )
        assert made.next is not None
        assert made.next > wall_clock()
        assert (made.missed, made.overlap, made.paused, made.last) == ("once", "skip", False, None)
        check = await session.schedules.set("check", message="News?", every=3_600)
        assert await session.schedules.list() == [made, check]
        assert [*session.display.get().schedules] == ["report", "check"]

        # Another process, which does not run the agent, sees and changes the same.
        outside = Schedules(StoredLog(store, AT))
        assert await outside.list() == [made, check]
        paused = await outside.pause("check", actor="ann")
        assert (paused.paused, paused.next) == (True, None)
        await core_of(session).catch_up()
        assert await session.schedules.list() == [made, paused]
        assert (await session.schedules.pause("check")).paused
        assert (await session.schedules.resume("check")).next == check.next
        first = min(one.next or 0 for one in (made, check))
        await until(lambda: core_of(session).live.state.due == first)
        row = await store.row(AT)
        assert row is not None
        assert row.due == first

        assert await session.schedules.remove("check")
        assert not await session.schedules.remove("check")
        assert await outside.remove("report")
        await core_of(session).catch_up()
        assert await session.schedules.list() == []
        await until(lambda: core_of(session).live.state.due is None)
        for wrong in (session.schedules.pause, session.schedules.resume):
            with pytest.raises(InvalidValue, match="no schedule"):
                await wrong("check")


async def test_any_worker_fires_what_is_due_once(store: Store) -> None:
    first = await due_ago(store, 1_000, metadata={"why": "news"})
    async with serve(store), serve(store):
        await idle(store)
    events = await read_all(store, AT)
    (message,) = [event for event in events if event.kind == "message.received"]
    payload = message.payload(MessageReceived)
    assert (message.id, message.actor) == (f"tick:2:{first}", "schedule")
    assert (payload.text, payload.metadata) == (
        "go",
        {"why": "news", "schedule": "s", "due": first},
    )
    (ticked,) = [e.payload(TimerTicked) for e in events if e.kind == "timer.ticked"]
    assert ticked == TimerTicked(name="s", due=first, next=first + MINUTE, sent=1)
    row = await store.row(AT)
    assert row is not None
    assert (row.run, row.due) == ("done", first + MINUTE)


async def test_missed_firings_are_all_sent_in_order_if_wanted(store: Store) -> None:
    first = await due_ago(store, 3 * MINUTE + 30_000, missed="all", overlap="queue")
    async with serve(store):
        await idle(store)
    assert await sent(store) == [first + n * MINUTE for n in range(4)]
    runs = [event for event in await read_all(store, AT) if event.kind == "run.finished"]
    assert len(runs) == 4


async def test_the_same_schedule_goes_on_and_another_one_begins_anew(store: Store) -> None:
    async with serve(store) as harness:
        session = await harness.get_or_create("s")
        made = await session.schedules.set("s", message="go", every=3_600)
        head = core_of(session).live.state.schedules["s"].seq
        assert await session.schedules.set("s", message="go", every=3_600) == made
        assert core_of(session).live.state.schedules["s"].seq == head
        other = await session.schedules.set("s", message="go on", every=3_600)
        assert core_of(session).live.state.schedules["s"].seq > head
        assert await session.schedules.list() == [other]


async def test_a_schedule_stays_in_its_thread_over_rewinds_and_not_in_a_fork(store: Store) -> None:
    async with serve(store) as harness:
        session = await harness.get_or_create("s")
        made = await session.schedules.set("s", message="go", every=3_600)
        await session.send("hello")
        fork = await session.thread.clone(id="other")
        assert await fork.schedules.list() == []
        await fork.schedules.set("f", message="go", every=60)
        await session.rewind(0)
        assert await session.schedules.list() == [made]
        row = await store.row(AT)
        assert row is not None
        assert row.due == made.next


async def test_an_expired_session_has_no_schedules(store: Store) -> None:
    async with serve(store) as harness:
        session = await harness.get_or_create("s")
        await session.schedules.set("s", message="go", every=3_600)
        side = await session.thread.create(id="side")
        soon = TimerScheduled(name="t", text="go", next=wall_clock() - 9, every=MINUTE)
        await Sessions(store).expire("s")
        await store.append(side.key, [NewEvent.of("timer.scheduled", soon)])
        outside = Schedules(StoredLog(store, AT))
        assert await outside.list() == []
        with pytest.raises(PhaseError):
            await outside.set("s", message="go", every=3_600)
        with pytest.raises(PhaseError):
            await session.schedules.set("s", message="go", every=3_600)
    async with serve(store):
        await until_kind(store, "timer.unscheduled", thread="side")
    kinds = [event.kind for event in await read_all(store, side.key)]
    assert "message.received" not in kinds


async def until_kind(store: Store, kind: str, thread: str = "main") -> None:
    where = key("s", thread=thread)
    async with asyncio.timeout(PATIENCE):
        while kind not in [e.kind for e in await read_all(store, where)]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_an_erased_schedule_ends_without_a_message(store: Store) -> None:
    await due_ago(store, 1_000)
    async with serve(store, recovery="leave") as harness:  # a process that has read it before
        session = await harness.get_or_create("s")
        await store.erase(AT, [2], reason="asked for")
        assert [one.message for one in await session.schedules.list()] in (["go"], [""], [])
    async with serve(store):
        async with asyncio.timeout(PATIENCE):
            while (row := await store.row(AT)) is not None and row.due is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert await sent(store) == []


async def test_removing_stays_removed_if_the_removal_is_erased(store: Store) -> None:
    schedules = Schedules(StoredLog(store, AT))
    await store.append(AT, [NewEvent.of("session.created", {"agent": "helper"})], create=True)
    await schedules.set("s", message="go", every=60)
    await schedules.remove("s", actor="ann")
    await store.erase(AT, [3], reason="asked for")
    assert (await folded(store)).schedules == {}


async def test_a_schedule_moves_with_its_session(store: Store, tmp_path: Path) -> None:
    first = await due_ago(store, -3_600_000)
    path = tmp_path / "s.zip"
    await export_bundle((store, AT.scope), "local", purpose="move", to=path)
    async with connect("memory:") as other:
        await import_bundle(other, path)
        assert [one.next for one in await Schedules(StoredLog(other, AT)).list()] == [first]
        row = await other.row(AT)
        assert row is not None
        assert row.due is not None


async def test_a_thread_has_at_most_a_hundred_schedules(store: Store) -> None:
    events = [
        NewEvent.of(
            "timer.scheduled", TimerScheduled(name=f"{n}", text="t", next=1 << 45, every=MINUTE)
        )
        for n in range(101)
    ]
    created = NewEvent.of("session.created", {"agent": "helper"})
    await store.append(AT, [created, *events], create=True)
    schedules = Schedules(StoredLog(store, AT))
    assert len(await schedules.list()) == 100
    with pytest.raises(InvalidValue, match="maximum") as refused:
        await schedules.set("more", message="t", every=60)
    assert refused.value.limit == 100
    await schedules.set("0", message="another", every=60)


async def test_what_cannot_be_computed_here_is_paused_and_the_session_goes_on(store: Store) -> None:
    await due_ago(store, 1_000, every=None, cron="0 9 * * *", timezone="Mars/Olympus")
    async with serve(store) as harness:
        await until_kind(store, "timer.paused")
        session = await harness.get_or_create("s")
        assert (await session.send("hello")).text == "done"
        assert [one.paused for one in await session.schedules.list()] == [True]


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("name", {"name": ""}),
        ("name", {"name": "x" * 129}),
        ("name", {"name": "a\0b"}),
        ("message", {"message": 3}),
        ("missed", {"missed": "maybe"}),
        ("overlap", {"overlap": "both"}),
        ("missed", {"missed": "all"}),
        ("metadata", {"metadata": [1]}),
        ("metadata", {"metadata": {1: 2}}),
    ],
)
async def test_a_wrong_setting_is_refused(field: str, options: dict[str, Any]) -> None:
    async with connect("memory:") as store:
        await store.append(AT, [NewEvent.of("session.created", {"agent": "a"})], create=True)
        given = {"name": "s", "message": "go", "every": 60, **options}
        with pytest.raises(InvalidValue) as refused:
            await Schedules(StoredLog(store, AT)).set(given.pop("name"), **given)
        assert refused.value.field == field


@virtual_time
async def test_a_schedule_fires_on_time_for_days_over_restarts() -> None:
    store = await connect("memory:").__aenter__()
    for _ in range(3):
        async with serve(store) as harness:
            session = await harness.get_or_create("s")
            made = await session.schedules.set("s", message="go", every=600)
            await asyncio.sleep(660)
    times = await sent(store)
    assert times == [times[0] + n * 600_000 for n in range(3)]
    messages = [e for e in await read_all(store, AT) if e.kind == "message.received"]
    assert all(0 <= event.at - due < 2_000 for event, due in zip(messages, times, strict=True))
    assert made.last == times[-1] - 600_000


@virtual_time
async def test_firings_overlap_with_a_run_that_waits() -> None:
    @tool(approval="ask")
    def pay() -> str:
        """Pay."""
        return "paid"

    model = script(Say(calls=[Use("pay")]), "done")
    async with Harness(helper(tools=[pay]), default_model=model, store="memory:") as harness:
        session = await harness.get_or_create("s")
        await session.schedules.set("skips", message="one", every=60)
        await session.schedules.set("queues", message="two", every=60, overlap="queue")
        assert (await session.send("Pay.")).status == "waiting"
        await asyncio.sleep(200)
        state = core_of(session).live.state
        assert state.schedules["skips"].due == state.schedules["queues"].due
        assert state.schedules["skips"].sent is None
        assert len(state.queue) == 3
        assert state.active is not None
