"""Which session a message belongs to: rows 58 to 69, UD-75."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import InvalidValue, PhaseError, Row, Sessions, Store, SurfaceTaken, key
from holdfast.sessions import Inbound, MostRecent
from holdfast.sessions.affinity import SessionFinder
from holdfast.testing.faults import FaultyStore, Stall
from holdfast.testing.samples import seal

from .scene import HOUR, MAIL, SLACK, WEB, Clock, ids, inbound, kinds, log, names, row

parity = pytest.mark.parity
TABLE = "agent-assistant-sessions"


async def picked(sessions: Sessions, message: Inbound, **how: bool) -> str | None:
    found = await MostRecent(**how).resolve(sessions, message)
    return found.session if found else None


async def aged(sessions: Sessions, clock: Clock, *names: str, **more: str) -> None:
    """Sessions of ann's, each ten seconds younger than the one before."""
    for id in names:
        clock.go(10)
        await sessions.create(id, user="ann", **more)  # type: ignore[arg-type]
        await sessions.touch(id)


@parity(TABLE, 58, 60, 61)
async def test_the_most_recent_session_that_has_not_expired_is_picked(
    sessions: Sessions, clock: Clock
) -> None:
    assert await picked(sessions, inbound()) is None
    await aged(sessions, clock, "a", "b")
    await sessions.create("other", user="ben")
    assert await picked(sessions, inbound()) == "b"
    clock.go(10)
    await sessions.touch("a")
    assert await picked(sessions, inbound()) == "a"
    await sessions.suspend("a")
    assert await picked(sessions, inbound()) == "a"  # recency alone
    await sessions.expire("a")
    assert await picked(sessions, inbound()) == "b"
    await sessions.expire("b")
    assert await picked(sessions, inbound()) is None


@parity(TABLE, 59)
async def test_the_surface_comes_before_recency(sessions: Sessions, clock: Clock) -> None:
    await aged(sessions, clock, "old", "new")
    await sessions.attach_surface("old", *WEB)
    assert await picked(sessions, inbound(place=WEB)) == "old"
    assert await picked(sessions, inbound(place=SLACK)) == "new"
    await sessions.expire("old")
    assert await picked(sessions, inbound(place=WEB)) == "new"


@parity(TABLE, 62, 64)
async def test_at_any_number_of_sessions_the_right_one_is_picked(
    sessions: Sessions, clock: Clock
) -> None:
    await sessions.create("first", user="ann", surface=WEB)
    for n in range(60):
        await sessions.create(f"w{n}", user="ann", workspace=f"w{n % 3}")
    await sessions.create("plain", user="ann")
    clock.go(10)
    for n in range(60):
        await sessions.create(f"s{n}", user="ann", workspace="other")
    # All of a workspace are equally recent: the one begun last is picked, and always that one.
    for _ in range(3):
        assert await picked(sessions, inbound(workspace="other", place=SLACK)) == "s59"
        assert await picked(sessions, inbound(workspace="w0", place=SLACK)) == "w57"
    assert await picked(sessions, inbound(place=SLACK)) == "plain"  # behind 60 younger ones
    assert await picked(sessions, inbound(place=WEB)) == "first"
    clock.go(10)
    await sessions.touch("s3")
    assert await picked(sessions, inbound(workspace="other", place=SLACK)) == "s3"


@parity(TABLE, 63)
async def test_a_message_stays_in_its_workspace(sessions: Sessions, clock: Clock) -> None:
    await aged(sessions, clock, "one", workspace="w1")
    assert await picked(sessions, inbound(workspace="w2")) is None
    assert await picked(sessions, inbound(workspace=None)) is None
    assert await picked(sessions, inbound(workspace="w1")) == "one"
    await aged(sessions, clock, "none")
    assert await picked(sessions, inbound(workspace="w1")) == "one"
    assert await picked(sessions, inbound(workspace=None)) == "none"
    made = await sessions.resolve_session(inbound(workspace="w2"))
    assert (made.session not in ("one", "none"), made.workspace) == (True, "w2")


async def test_a_surface_of_another_person_is_not_entered(sessions: Sessions) -> None:
    theirs = await sessions.create("ben's", user="ben", surface=WEB)
    own = await sessions.create("ann's", user="ann")
    elsewhere = await sessions.create("w", user="ann", workspace="w", surface=SLACK)
    for place, holder in ((WEB, "ben's"), (SLACK, "w")):
        with pytest.raises(SurfaceTaken) as caught:
            await sessions.resolve_session(inbound(place=place))
        assert caught.value.session == holder
    assert [await row(sessions, r.session) for r in (theirs, own, elsewhere)] == [
        theirs,
        own,
        elsewhere,
    ]
    assert len((await sessions.find()).items) == 3


async def test_a_shared_surface_belongs_to_its_session(sessions: Sessions, clock: Clock) -> None:
    await sessions.create("channel", user="ben", surface=WEB)
    await sessions.create("own", user="ann")
    clock.go(5)
    joined = await sessions.resolve_session(inbound("ann"), MostRecent(shared_surfaces=True))
    assert (joined.session, joined.user, joined.active) == ("channel", "ben", clock.s)
    assert [event.actor for event in await log(sessions, "channel")][-1] == "ann"


async def test_a_session_that_moved_away_is_not_picked(sessions: Sessions) -> None:
    await sessions.create("moved", user="ann", surface=WEB)
    await seal(sessions.store, key("moved"))
    made = await sessions.resolve_session(inbound())
    assert (made.session != "moved", names(made)) == (True, ["web:thread-1"])
    assert (await sessions.resolve_session(inbound())).session == made.session


class Fixed:
    """Picks what it is told, and remembers what it was asked."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, tuple[str, str]]] = []

    async def resolve(self, sessions: SessionFinder, message: Inbound) -> Row | None:
        self.asked.append((message.user, message.place))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        rows = (await sessions.find()).items
        return next((row for row in rows if row.session == answer), None)


@parity(TABLE, 65)
async def test_a_message_of_nobody_we_know_begins_a_session(
    sessions: Sessions, clock: Clock
) -> None:
    resolver = Fixed(None)
    made = await sessions.resolve_session(inbound("ann", SLACK, "w"), resolver)
    assert resolver.asked == [("ann", SLACK)]
    assert (made.user, made.workspace, names(made)) == ("ann", "w", ["slack:dm-99"])
    assert (made.phase, made.active, made.ttl) == ("active", clock.s, HOUR)
    assert await kinds(sessions, made.session) == [
        "session.created",
        "session.touched",
        "surface.attached",
    ]
    assert {event.actor for event in await log(sessions, made.session)} == {"ann"}


async def test_a_resolver_that_finds_none_begins_a_new_one_although_there_is_an_old_one(
    sessions: Sessions, clock: Clock
) -> None:
    class Today(MostRecent):
        """Passes over what was idle for a day."""

        async def resolve(self, sessions: SessionFinder, message: Inbound) -> Row | None:
            row = await super().resolve(sessions, message)
            return row if row and row.active > clock.s - 24 * HOUR else None

    first = await sessions.resolve_session(inbound(), Today())
    assert (await sessions.resolve_session(inbound(), Today())).session == first.session
    await sessions.detach_surface(first.session, *WEB)
    clock.go(25 * HOUR)
    second = await asyncio.gather(*(sessions.resolve_session(inbound(), Today()) for _ in range(3)))
    assert {row.session for row in second} == {second[0].session}
    assert second[0].session != first.session


@parity(TABLE, 66, 69)
async def test_a_hit_is_touched_and_gets_the_surface(sessions: Sessions, clock: Clock) -> None:
    await sessions.create("a", user="ann", surface=WEB)
    at = clock.go(10)
    hit = await sessions.resolve_session(inbound(place=SLACK))
    assert (hit.session, hit.phase, hit.changed, hit.active) == ("a", "active", at, clock.s)
    assert names(hit) == ["web:thread-1", "slack:dm-99"]
    await sessions.suspend("a")
    assert (await sessions.resolve_session(inbound(place=MAIL))).phase == "active"
    assert len((await row(sessions, "a")).surfaces) == 3


@parity(TABLE, 67)
async def test_two_messages_of_one_person_are_one_session(sessions: Sessions) -> None:
    first = await sessions.resolve_session(inbound())
    for place in (WEB, SLACK, MAIL):
        assert (await sessions.resolve_session(inbound(place=place))).session == first.session
    assert len((await sessions.find()).items) == 1


@parity(TABLE, 68)
@parity("user-demand", 75)
async def test_messages_at_once_are_one_session(sessions: Sessions) -> None:
    rows = await asyncio.gather(
        *(sessions.resolve_session(inbound(place=("web", f"{n % 4}"))) for n in range(8))
    )
    assert {row.session for row in rows} == {rows[0].session}
    (kept,) = (await sessions.find()).items
    assert len(kept.surfaces) == 4
    assert (await kinds(sessions, kept.session)).count("session.created") == 1


@parity("user-demand", 75)
async def test_a_message_delivered_twice_touches_once(sessions: Sessions) -> None:
    rows = [await sessions.resolve_session(inbound(id="m1")) for _ in range(2)]
    rows += await asyncio.gather(*(sessions.resolve_session(inbound(id="m1")) for _ in range(4)))
    assert {row.session for row in rows} == {rows[0].session}
    assert (await kinds(sessions, rows[0].session)).count("session.touched") == 1
    await sessions.resolve_session(inbound(id="m2"))
    assert (await kinds(sessions, rows[0].session)).count("session.touched") == 2


async def test_after_the_end_a_message_begins_anew(sessions: Sessions) -> None:
    first = await sessions.resolve_session(inbound())
    await sessions.expire(first.session)
    second = await sessions.resolve_session(inbound())
    assert second.session != first.session
    await sessions.delete(second.session)
    third = await sessions.resolve_session(inbound())
    assert third.session not in (first.session, second.session)
    assert ids((await sessions.find(phases="active")).items) == [third.session]


async def test_whoever_died_before_the_session_was_made_is_finished_for(
    store: Store, clock: Clock
) -> None:
    """The first contact is claimed, and nothing more happens."""
    slow = FaultyStore(store)
    stall = Stall(method="append")
    slow.plan.append(stall)
    dying = asyncio.create_task(Sessions(slow, clock=clock).resolve_session(inbound()))
    await stall.reached.wait()
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)
    sessions = Sessions(store, clock=clock)
    made = await sessions.resolve_session(inbound())
    assert (await sessions.resolve_session(inbound())).session == made.session
    assert len((await sessions.find()).items) == 1


async def test_a_resolver_that_picks_what_is_over_is_asked_again_then_refused(
    sessions: Sessions,
) -> None:
    for id in ("over", "live"):
        await sessions.create(id, user="ann")
    await sessions.expire("over")
    resolver = Fixed("over", "live")
    assert (await sessions.resolve_session(inbound(), resolver)).session == "live"
    assert len(resolver.asked) == 2
    before = await row(sessions, "over")
    with pytest.raises(PhaseError) as caught:
        await sessions.resolve_session(inbound(place=SLACK), Fixed("over"))
    assert (caught.value.session, caught.value.move) == ("over", "touch")
    assert await row(sessions, "over") == before


async def test_a_message_of_nobody_is_refused(sessions: Sessions) -> None:
    await sessions.create("a", user="ann")
    wrong = [
        inbound(user=""),
        inbound(workspace=""),
        inbound(place=("", "x")),
        inbound(place=("web", "")),
    ]
    for message in wrong:
        with pytest.raises(InvalidValue):
            await sessions.resolve_session(message)
    assert ids((await sessions.find()).items) == ["a"]
    assert (await row(sessions, "a")).phase == "created"
