"""Several who write to one session, and one who holds it: who wins, who is told what, and which
choices are left to whoever comes second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Harness,
    HeadMoved,
    Key,
    LeaseHeld,
    LeaseLost,
    NewEvent,
    SessionBusy,
    Sessions,
    Store,
    connect,
    key,
    tool,
)
from holdfast.harness.host import sessions_of
from holdfast.harness.session.session import Session
from holdfast.models.scripted import Fail, Say, ScriptedModel, Step, Use
from holdfast.store import wall_clock
from holdfast.testing.samples import read_all
from tests import servers
from tests.harness.kernel.scene import PATIENCE, Gate, Slow, helper, only, script, serve, until
from tests.servers.faults import schema_of
from tests.sessions import places

KEY = key("s")
HOUR = 3_600_000
ROUNDS = 20
CREATED = NewEvent.of("session.created", {"agent": "helper"})


def note(text: str) -> NewEvent:
    return NewEvent.of("note.made", {"text": text})


@pytest.fixture(params=places.OPEN)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Clock:
    """What time it is for a store."""

    def __init__(self) -> None:
        self.now = wall_clock()

    def __call__(self) -> int:
        return self.now


@pytest.fixture
async def opened(kind: str, tmp_path: Path) -> AsyncGenerator[Callable[..., Any], None]:
    """Opens one place of a kind as often as asked, each time with a clock."""
    async with AsyncExitStack() as stack:
        place = places.shared(kind, tmp_path)
        only_one: list[Store] = []

        async def open_one(clock: Callable[[], int]) -> Store:
            if kind == "memory" and only_one:  # there is no other way to it
                return only_one[0]
            store = await places.OPEN[kind](place, clock)
            stack.push_async_callback(store.aclose)
            only_one.append(store)
            return store

        yield open_one


@pytest.mark.parity("user-demand", 6)
async def test_of_two_whose_clocks_are_hours_apart_one_wins_and_the_other_learns_the_head(
    opened: Callable[..., Any],
) -> None:
    racers = [await opened(lambda by=by: wall_clock() + by) for by in (HOUR, -HOUR)]
    await racers[0].append(KEY, [CREATED], create=True)
    for head in range(1, ROUNDS + 1):
        race = [store.append(KEY, [note(f"{head}")], expected=head) for store in racers]
        answers = await asyncio.gather(*race, return_exceptions=True)
        (lost,) = [answer for answer in answers if isinstance(answer, HeadMoved)]
        (won,) = [answer for answer in answers if not isinstance(answer, BaseException)]
        assert (won.head, lost.expected, lost.head) == (head + 1, head, head + 1)
    assert [event.seq for event in await read_all(racers[0], KEY)] == [*range(1, ROUNDS + 2)]


@pytest.mark.parity("user-demand", 10)
async def test_whoever_comes_after_a_dead_holder_is_told_and_has_all_choices(
    kind: str, opened: Callable[..., Any]
) -> None:
    """The holder never says another word, as one that was killed."""
    clock = Clock()
    store = await opened(clock)
    await store.append(KEY, [CREATED, note("before")], create=True)
    dead = await store.acquire(KEY, "the dead one", ttl=30)
    with pytest.raises(LeaseHeld) as told:
        await store.acquire(KEY, "heir")
    known = told.value
    assert (known.owner, known.since) == ("the dead one", dead.since)
    assert known.left <= dead.until - dead.since == 30_000
    assert "the dead one" in str(known)

    # To read, and to go on beside it
    assert [event.kind for event in await read_all(store, KEY)] == ["session.created", "note.made"]
    await store.fork(KEY, "beside", at=2, first=NewEvent.of("thread.forked", {"at": 2}))
    beside = await store.acquire(key("s", "beside"), "heir")
    await store.append(key("s", "beside"), [note("here")], fence=beside)

    # To take over at once, with a reason
    thief = await store.acquire(KEY, "heir", steal="the holder was killed", ttl=30)
    assert (thief.reason, thief.token > dead.token) == ("the holder was killed", True)
    with pytest.raises(LeaseLost):
        await store.append(KEY, [note("late")], fence=dead)

    # To wait, and not a moment longer than the lease; a server has a clock of its own
    if kind not in servers.KINDS:
        clock.now = thief.until - 1
        with pytest.raises(LeaseHeld):
            await store.acquire(KEY, "next")
        clock.now = thief.until
        await store.append(KEY, [note("goes on")], fence=await store.acquire(KEY, "next"))


async def _free(store: Store, where: Key = KEY) -> None:
    """Nobody holds it, and that without waiting for a lease to lapse."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                lease = await store.acquire(where, "next", ttl=600)
            except LeaseHeld:  # about to let go
                await asyncio.sleep(0.005)
            else:
                await store.release(lease)
                return


@tool
async def broken() -> str:
    """Fail."""
    raise RuntimeError("no")


@pytest.mark.parity("user-demand", 10)
@pytest.mark.parametrize("how", ["done", "model fails", "tool fails", "aborted", "caller goes"])
async def test_a_run_gives_its_lease_back_however_it_ends(how: str) -> None:
    slow = Slow()
    scripts: dict[str, Any] = {
        "done": script("fine"),
        "model fails": script(Fail(RuntimeError("no"))),
        "tool fails": script(Say(calls=[Use("broken")]), "so be it"),
        "aborted": slow,
        "caller goes": slow,
    }
    async with serve(helper(tools=[broken]), default_model=scripts[how], ttl=600) as harness:
        session = await harness.get_or_create("s")
        sending = asyncio.create_task(session.send("go"))
        if scripts[how] is slow:
            await slow.gate.someone()
            with pytest.raises(LeaseHeld):
                await harness.store.acquire(KEY, "next")
            if how == "aborted":
                await session.abort()
            else:
                sending.cancel()
                slow.gate.open()
        await asyncio.gather(sending, return_exceptions=True)
        await session.wait()
        await _free(harness.store)


# A message that meets the run of another process


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return places.url(request.param, tmp_path)


class Pair:
    """A host whose run is going, and another that meets it."""

    def __init__(self, here: Session, there: Session, mine: Slow, theirs: ScriptedModel) -> None:
        self.here, self.there, self.mine, self.theirs = here, there, mine, theirs


@pytest.fixture
async def pair(url: str) -> AsyncGenerator[Pair, None]:
    mine, theirs = Slow(quick=["next", "now"]), script("from there")
    async with (
        asyncio.timeout(PATIENCE),
        serve(helper(), default_model=mine, store=url, ttl=600) as first,
        serve(helper(), default_model=theirs, store=url, ttl=600) as second,
    ):
        here = await first.get_or_create("s")
        there = await second.get_or_create("s")
        await here.post("go")
        await mine.gate.someone()
        await until(lambda: there.status.phase == "waiting_model")
        yield Pair(here, there, mine, theirs)
        mine.gate.open()
        await here.wait()


@pytest.mark.parity("user-demand", 7)
async def test_a_message_that_is_not_to_wait_is_refused(pair: Pair) -> None:
    with pytest.raises(SessionBusy):
        await pair.there.send("now", busy="reject")
    pair.mine.gate.open()
    assert (await pair.here.wait()).text == "Let me see."
    assert [m.text for m in await pair.here.transcript(roles=("user",))] == ["go"]


@pytest.mark.parity("user-demand", 7)
async def test_a_message_that_may_wait_is_taken_up_behind_the_run(pair: Pair) -> None:
    await pair.there.post("next")
    await until(lambda: pair.here.status.queued == 1)
    assert pair.theirs.calls == []
    pair.mine.gate.open()
    assert (await pair.here.wait()).status == "done"
    started = only(await pair.here.events(), "run.started")
    assert [len(run["inputs"]) for run in started] == [1, 1]


@pytest.mark.parity("user-demand", 7)
async def test_a_message_that_interrupts_ends_the_run_of_the_other(pair: Pair) -> None:
    await pair.there.send("now", busy="interrupt")
    ended = only(await pair.there.events(), "run.finished")
    assert [run.get("status", "done") for run in ended] == ["interrupted", "done"]
    (kept,) = only(await pair.there.events(), "message.interrupted")
    assert kept["text"] == "Let me"


@pytest.mark.parity("user-demand", 7)
async def test_a_fork_goes_on_beside_the_run(pair: Pair) -> None:
    fork = await pair.there.threads.fork(at=1)
    assert (await fork.send("there")).text == "from there"
    assert pair.here.status.phase == "waiting_model"
    pair.mine.gate.open()
    assert (await pair.here.wait()).text == "Let me see."
    assert [m.text for m in await pair.here.transcript(roles=("user",))] == ["go"]


# What others write meanwhile


@tool(approval="ask")
async def pay() -> str:
    """Pay."""
    return "paid"


@pytest.mark.parity("user-demand", 9)
async def test_what_others_write_while_a_run_is_held_is_kept_and_taken_up(url: str) -> None:
    gate = Gate()

    steps: list[Step] = [Say(calls=[Use("work"), Use("pay")]), "Both done.", "And more."]

    @tool
    async def work() -> str:
        """Work."""
        await gate.pass_through()
        return "worked"

    def host() -> Harness:
        model = ScriptedModel(steps, repeat=True)
        return serve(helper(tools=[work, pay]), default_model=model, store=url, ttl=600)

    async with asyncio.timeout(PATIENCE), host() as driver, connect(url) as store:
        session = await driver.get_or_create("s")
        await session.post("go")
        await gate.someone()
        with pytest.raises(LeaseHeld):
            await store.acquire(KEY, "somebody else")
        async with Harness(
            helper(tools=[work, pay]), default_model=script("no"), store=url, recovery="leave"
        ) as other:
            (ask,) = (await other.pending()).items
            await other.approve("s", ask.id, actor="bob")
            there = await other.get_or_create("s")
            await there.post("and then?", actor="bob")
        await Sessions(store).update_metadata("s", {"colour": "red"})
        await store.append(KEY, [NewEvent.of("label.added", {"label": "vip"})])
        with pytest.raises(LeaseHeld) as held:
            await store.acquire(KEY, "somebody else")
        assert held.value.owner == sessions_of(driver).config.owner
        gate.open()
        assert (await session.wait()).text == "And more."
        events = await session.events()
        row = await store.row(KEY)
    assert row is not None
    assert (list(row.labels), row.metadata) == (["vip"], {"colour": "red"})
    outcomes = [(e.get("outcome", "ok"), e["result"]) for e in only(events, "tool.finished")]
    assert sorted(outcomes) == [("ok", "paid"), ("ok", "worked")]
    (settled,) = [event for event in events if event.kind == "pending.settled"]
    assert (settled.actor, settled.json()["outcome"]) == ("bob", "approved")
    ended = only(events, "run.finished")
    assert [run.get("status", "done") for run in ended] == ["done", "done"]


# Sessions do not wait for each other


@pytest.mark.parity("user-demand", 11)
async def test_a_session_that_is_locked_holds_no_other_of_its_user_up(tmp_path: Path) -> None:
    import asyncpg

    place = servers.url("postgres", tmp_path)
    async with connect(place) as store:
        names = [f"s{n}" for n in range(20)]
        for name in names:
            created = NewEvent.of("session.created", {"agent": "helper", "user": "ann"})
            await store.append(key(name), [created], create=True)
        other = await asyncpg.connect(place.partition("?")[0])
        try:
            schema = schema_of(place)
            transaction = other.transaction()
            await transaction.start()
            locked = await other.fetch(
                f"SELECT * FROM {schema}.logs WHERE session = 's0' FOR UPDATE"
            )
            assert len(locked) == 1
            waiting = asyncio.create_task(store.append(key("s0"), [note("late")]))
            async with asyncio.timeout(PATIENCE):
                rest = (store.append(key(name), [note("now")]) for name in names[1:])
                assert {done.head for done in await asyncio.gather(*rest)} == {2}
                assert not waiting.done()
                await transaction.rollback()
                assert (await waiting).head == 2
        finally:
            await other.close()


@pytest.mark.parity("user-demand", 11)
@pytest.mark.parametrize("kind", places.OPEN)
async def test_fifty_who_ask_for_one_session_get_it(kind: str, tmp_path: Path) -> None:
    async with connect(places.url(kind, tmp_path)) as store:
        sessions = Sessions(store)
        found = await asyncio.gather(*(sessions.get_or_create("s", user="ann") for _ in range(50)))
        assert {row.session for row in found} == {"s"}
        assert [event.kind for event in await read_all(store, KEY)] == ["session.created"]
