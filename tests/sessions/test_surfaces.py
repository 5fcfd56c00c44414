"""Surfaces: rows 23 to 31 and 70; what one session has no other has, whoever dies in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import (
    InvalidValue,
    NewEvent,
    PhaseError,
    Scope,
    SessionNotFound,
    Sessions,
    Store,
    StoreUnavailable,
    SurfaceTaken,
    key,
)
from holdfast.log.catalog import SURFACE_CLAIM, surface_name
from holdfast.testing.faults import Fail, FaultyStore, Stall
from holdfast.testing.samples import seal

from .scene import MAIL, SLACK, WEB, Clock, kinds, log, names, row

parity = pytest.mark.parity
TABLE = "agent-assistant-sessions"
WEB_CLAIM = SURFACE_CLAIM + surface_name(*WEB)
SLACK_CLAIM = SURFACE_CLAIM + surface_name(*SLACK)


async def holders(sessions: Sessions, place: tuple[str, str]) -> list[str]:
    """The live sessions that show a surface."""
    page = await sessions.find(surface=place, phases=("created", "active", "suspended"))
    return [row.session for row in page.items]


@parity(TABLE, 23, 24, 29)
async def test_surfaces_are_attached_in_order_once_and_are_no_activity(
    sessions: Sessions, clock: Clock
) -> None:
    made = await sessions.create("a", user="ann")
    clock.go(10)
    await sessions.attach_surface("a", *SLACK, detail={"team": "T1"}, actor="ops", reason="asked")
    both = await sessions.attach_surface("a", *WEB)
    assert names(both) == ["slack:dm-99", "web:thread-1"]
    assert (both.phase, both.active, both.changed) == ("created", made.active, None)
    assert both.surfaces[surface_name(*SLACK)] == {"team": "T1", "at": clock.ms}
    clock.go(10)
    again = await sessions.attach_surface("a", *SLACK, detail={"team": "T2"})
    assert again == both  # no write
    assert (await log(sessions, "a"))[1].actor == "ops"


@parity(TABLE, 26, 27, 29)
async def test_a_surface_is_detached_and_the_others_stay(sessions: Sessions, clock: Clock) -> None:
    made = await sessions.create("a", user="ann", surface=WEB)
    await sessions.attach_surface("a", *SLACK)
    clock.go(10)
    left = await sessions.detach_surface("a", *WEB, actor="ops", reason="closed")
    assert names(left) == ["slack:dm-99"]
    assert (left.phase, left.active, left.changed) == ("created", made.active, None)
    assert await sessions.detach_surface("a", *WEB) == left  # no write
    assert await sessions.store.claims(made.scope) == [SLACK_CLAIM]
    last = (await log(sessions, "a"))[-1]
    assert (last.actor, last.json()["reason"]) == ("ops", "closed")
    back = await sessions.attach_surface("a", *WEB)
    assert names(back) == ["slack:dm-99", "web:thread-1"]


@parity(TABLE, 30)
async def test_a_surface_belongs_to_one_live_session(sessions: Sessions) -> None:
    await sessions.create("a", user="ann", surface=WEB)
    await sessions.create("b", user="ben", surface=SLACK)
    for call in (
        sessions.attach_surface("b", *WEB),
        sessions.create("c", user="cat", surface=WEB),
    ):
        with pytest.raises(SurfaceTaken) as caught:
            await call
        error = caught.value
        assert (error.session, error.surface, error.address) == ("a", *WEB)
    assert await sessions.get("c") is None
    assert names(await row(sessions, "b")) == ["slack:dm-99"]
    # Once it is let go, or its session is over, it is free.
    await sessions.detach_surface("b", *SLACK)
    await sessions.create("c", user="cat", surface=SLACK)
    await sessions.expire("a")
    await sessions.attach_surface("b", *WEB)
    assert await holders(sessions, WEB) == ["b"]


@parity("user-demand", 75)
async def test_a_surface_moves_on_request_and_both_logs_tell(sessions: Sessions) -> None:
    await sessions.create("a", user="ann", surface=WEB)
    await sessions.create("b", user="ben")
    moved = await sessions.attach_surface("b", *WEB, move=True)
    assert names(moved) == ["web:thread-1"]
    assert names(await row(sessions, "a")) == []
    last = (await log(sessions, "a"))[-1]
    assert (last.kind, last.json()["reason"]) == ("surface.detached", "moved")
    assert await kinds(sessions, "b") == ["session.created", "surface.attached"]
    with pytest.raises(SurfaceTaken):
        await sessions.attach_surface("a", *WEB)


@parity(TABLE, 31)
async def test_surfaces_attached_at_once_are_all_kept(sessions: Sessions) -> None:
    await sessions.create("a", user="ann")
    await asyncio.gather(*(sessions.attach_surface("a", "web", f"{n}") for n in range(8)))
    kept = await row(sessions, "a")
    assert set(kept.surfaces) == {surface_name("web", f"{n}") for n in range(8)}


async def test_of_many_sessions_that_want_a_surface_at_once_one_has_it(sessions: Sessions) -> None:
    for n in range(4):
        await sessions.create(f"s{n}", user="ann")
    for _ in range(3):
        answers = await asyncio.gather(
            *(sessions.attach_surface(f"s{n}", *WEB) for n in range(4)), return_exceptions=True
        )
        assert all(isinstance(a, SurfaceTaken) for a in answers if isinstance(a, Exception))
        held = await holders(sessions, WEB)
        assert len(held) == 1
        for session in held:
            await sessions.detach_surface(session, *WEB)
    moves = (sessions.attach_surface(f"s{n}", *WEB, move=True) for n in range(4))
    await asyncio.gather(*moves, return_exceptions=True)
    await sessions.attach_surface("s0", *WEB, move=True)
    assert await holders(sessions, WEB) == ["s0"]


async def test_of_two_that_begin_with_one_surface_one_has_it(sessions: Sessions) -> None:
    answers = await asyncio.gather(
        *(sessions.create(f"s{n}", user="ann", surface=WEB) for n in range(4)),
        return_exceptions=True,
    )
    assert all(isinstance(a, SurfaceTaken) for a in answers if isinstance(a, Exception))
    assert len(await holders(sessions, WEB)) == 1


# A process that dies in the middle leaves one of these states.


async def test_a_claim_without_its_event_keeps_nobody_out(sessions: Sessions) -> None:
    """Died between claim and event; or between the event of a detach and the unclaim."""
    await sessions.create("a", user="ann")
    await sessions.create("b", user="ben")
    assert await sessions.store.claim("main", WEB_CLAIM, Scope("main", "a")) == Scope("main", "a")
    assert await sessions.store.claim("main", SLACK_CLAIM, Scope("main", "gone")) is not None
    for place in (WEB, SLACK):
        await sessions.attach_surface("b", *place)
        assert await holders(sessions, place) == ["b"]
    with pytest.raises(SurfaceTaken):
        await sessions.attach_surface("a", *WEB)
    # The one it was left with can go on too.
    await sessions.store.claim("main", SURFACE_CLAIM + surface_name(*MAIL), Scope("main", "a"))
    assert names(await sessions.attach_surface("a", *MAIL)) == ["mail:ann@example.org"]


async def test_a_surface_without_its_claim_is_claimed_by_the_next_attach(
    sessions: Sessions,
) -> None:
    made = await sessions.create("a", user="ann", surface=WEB)
    await sessions.create("b", user="ben")
    await sessions.store.unclaim("main", WEB_CLAIM, made.scope)
    assert await sessions.attach_surface("a", *WEB) == made
    assert await sessions.store.claims(made.scope) == [WEB_CLAIM]
    with pytest.raises(SurfaceTaken):
        await sessions.attach_surface("b", *WEB)
    # If another has it by then, it stays with that one.
    await sessions.store.unclaim("main", WEB_CLAIM, made.scope)
    await sessions.attach_surface("b", *WEB)
    with pytest.raises(SurfaceTaken):
        await sessions.attach_surface("a", *WEB)
    assert await holders(sessions, WEB) == ["b"]


@pytest.mark.parametrize("after", [False, True], ids=["request lost", "reply lost"])
@pytest.mark.parametrize("method", ["claim", "append", "unclaim", "row"])
async def test_a_store_that_fails_in_between_leaves_what_the_next_call_heals(
    store: Store, clock: Clock, method: str, after: bool
) -> None:
    faulty = FaultyStore(store)
    sessions = Sessions(faulty, clock=clock)
    await sessions.create("a", user="ann", surface=SLACK)
    await sessions.create("b", user="ben")
    for call in range(1, 5):
        for verb in (sessions.attach_surface, sessions.detach_surface):
            faulty.calls.clear()
            faulty.plan = [Fail(method=method, call=call, after=after)]
            place = WEB if verb == sessions.attach_surface else SLACK
            try:
                await verb("a", *place)
            except StoreUnavailable:
                faulty.plan.clear()
                await verb("a", *place)
            faulty.plan.clear()
            assert (surface_name(*place) in (await row(sessions, "a")).surfaces) == (place is WEB)
        with pytest.raises(SurfaceTaken):
            await sessions.attach_surface("b", *WEB)
        await sessions.attach_surface("b", *SLACK)
        await sessions.detach_surface("b", *SLACK)
        await sessions.detach_surface("a", *WEB)
        await sessions.attach_surface("a", *SLACK)


async def test_a_detach_and_an_attach_that_meet_leave_no_surface_without_its_claim(
    store: Store, clock: Clock
) -> None:
    """The unclaim of a detach comes when the surface was attached again."""
    slow = FaultyStore(store)
    sessions, late = Sessions(store, clock=clock), Sessions(slow, clock=clock)
    made = await sessions.create("a", user="ann", surface=WEB)
    await sessions.create("b", user="ben")
    stall = Stall(method="unclaim")
    slow.plan.append(stall)
    detaching = asyncio.create_task(late.detach_surface("a", *WEB))
    await stall.reached.wait()
    await sessions.attach_surface("a", *WEB)
    stall.go.set()
    await detaching
    assert names(await row(sessions, "a")) == ["web:thread-1"]
    assert await store.claims(made.scope) == [WEB_CLAIM]
    with pytest.raises(SurfaceTaken):
        await sessions.attach_surface("b", *WEB)


async def test_a_move_and_an_attach_that_meet_leave_one_holder(store: Store, clock: Clock) -> None:
    """The one it is taken from attaches it again before the claim changes hands."""
    slow = FaultyStore(store)
    sessions, late = Sessions(store, clock=clock), Sessions(slow, clock=clock)
    await sessions.create("a", user="ann", surface=WEB)
    await sessions.create("b", user="ben")
    stall = Stall(method="claim", call=2)
    slow.plan.append(stall)
    moving = asyncio.create_task(late.attach_surface("b", *WEB, move=True))
    await stall.reached.wait()
    await sessions.attach_surface("a", *WEB)
    stall.go.set()
    await moving
    assert await holders(sessions, WEB) == ["b"]


async def test_a_slow_attach_gives_way_to_who_came_between(store: Store, clock: Clock) -> None:
    slow = FaultyStore(store)
    sessions, late = Sessions(store, clock=clock), Sessions(slow, clock=clock)
    await sessions.create("a", user="ann")
    await sessions.create("b", user="ben")
    stall = Stall(method="append")
    slow.plan.append(stall)
    attaching = asyncio.create_task(late.attach_surface("a", *WEB))
    await stall.reached.wait()
    await sessions.attach_surface("b", *WEB)
    stall.go.set()
    with pytest.raises(SurfaceTaken):
        await attaching
    assert await holders(sessions, WEB) == ["b"]


async def test_a_reopened_session_has_the_surfaces_that_nobody_took(sessions: Sessions) -> None:
    await sessions.create("a", user="ann", surface=WEB)
    await sessions.attach_surface("a", *SLACK)
    await sessions.attach_surface("a", *MAIL)
    await sessions.expire("a")
    await sessions.create("b", user="ben", surface=WEB)
    await sessions.create("c", user="cat", surface=MAIL)
    await sessions.detach_surface("c", *MAIL)
    back = await sessions.reopen("a")
    assert names(back) == ["slack:dm-99", "mail:ann@example.org"]
    assert back == await sessions.get("a")
    assert await holders(sessions, WEB) == ["b"]
    last = (await log(sessions, "a"))[-1]
    assert (last.kind, last.json()["reason"]) == ("surface.detached", "taken")


async def test_a_session_that_moved_away_keeps_no_surface(sessions: Sessions) -> None:
    await sessions.create("a", user="ann", surface=WEB)
    await seal(sessions.store, key("a"))
    await sessions.create("b", user="ben", surface=WEB)
    assert names(await row(sessions, "b")) == ["web:thread-1"]


async def test_surfaces_of_a_deleted_session_are_free(sessions: Sessions) -> None:
    await sessions.create("a", user="ann", surface=WEB)
    receipt = await sessions.delete("a")
    assert receipt.removed["claims"] == 1
    await sessions.create("b", user="ben", surface=WEB)


async def test_names_that_could_collide_do_not(sessions: Sessions) -> None:
    await sessions.create("a", user="ann", surface=("web:a", "b"))
    await sessions.create("b", user="ben", surface=("web", "a:b"))
    await sessions.create("c", user="cat", surface=('web","a', "b"))
    long = ("s" * 512, "é" * 256)
    assert surface_name(*long) in (await sessions.attach_surface("c", *long)).surfaces


# Outbound


class Outbox:
    """Takes messages in; the addresses of `broken` fail."""

    def __init__(self, *broken: str) -> None:
        self.sent: list[tuple[str, str, Any]] = []
        self.broken = broken

    async def send(self, surface: str, address: str, message: Any) -> None:
        if address in self.broken:
            raise ConnectionError(address)
        self.sent.append((surface, address, message))


@pytest.mark.parity("user-demand", 76)
@parity(TABLE, 70)
async def test_what_is_said_goes_to_the_surfaces_of_the_session(sessions: Sessions) -> None:
    await sessions.create("a", user="ann", surface=WEB)
    await sessions.attach_surface("a", *SLACK)
    await sessions.create("b", user="ben", surface=MAIL)
    outbox = Outbox()
    delivery = await sessions.emit("a", {"text": "hi"}, outbox.send)
    assert outbox.sent == [(*WEB, {"text": "hi"}), (*SLACK, {"text": "hi"})]
    assert (delivery.delivered, delivery.failed) == ([WEB, SLACK], {})

    outbox = Outbox()
    assert (await sessions.emit("a", "to one", outbox.send, to=[SLACK])).delivered == [SLACK]
    assert outbox.sent == [(*SLACK, "to one")]
    with pytest.raises(InvalidValue, match="not attached"):
        await sessions.emit("a", "x", outbox.send, to=[SLACK, MAIL])
    with pytest.raises(SessionNotFound, match="nobody"):
        await sessions.emit("nobody", "x", outbox.send)
    with pytest.raises(InvalidValue):
        await sessions.emit("", "x", outbox.send)
    await sessions.expire("a")
    with pytest.raises(PhaseError, match="emit"):
        await sessions.emit("a", "x", outbox.send)
    assert len(outbox.sent) == 1


async def test_a_surface_that_fails_keeps_the_others_from_nothing(sessions: Sessions) -> None:
    await sessions.create("a", user="ann", surface=WEB)
    await sessions.attach_surface("a", *SLACK)
    outbox = Outbox(WEB[1])
    delivery = await sessions.emit("a", "hi", outbox.send)
    assert delivery.delivered == [SLACK]
    assert "ConnectionError" in delivery.failed[WEB]

    def at_once(surface: str, address: str, message: Any) -> Any:
        if address == WEB[1]:
            raise ConnectionError(address)
        return outbox.send(surface, address, message)

    delivery = await sessions.emit("a", "hi", at_once)
    assert (delivery.delivered, list(delivery.failed)) == ([SLACK], [WEB])
    assert len(outbox.sent) == 2


@pytest.mark.parity("user-demand", 76)
async def test_surfaces_of_one_session_see_one_order(sessions: Sessions) -> None:
    await sessions.create("a", user="ann", surface=WEB)
    await sessions.attach_surface("a", *SLACK)
    outbox = Outbox()
    for n in range(5):
        said = NewEvent.of("message.completed", {"text": f"{n}"})
        await sessions.store.append(key("a"), [said])
        await sessions.emit("a", f"{n}", outbox.send)
    for place in (WEB, SLACK):
        seen = [text for *where, text in outbox.sent if tuple(where) == place]
        assert seen == [f"{n}" for n in range(5)]
