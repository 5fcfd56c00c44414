"""Beginning, touching, suspending, expiring, and metadata: rows 1 to 22 and 32 to 36."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import (
    InvalidValue,
    PhaseError,
    Scope,
    SessionExists,
    SessionNotFound,
    Sessions,
    SurfaceTaken,
)
from holdfast.log.catalog import SURFACE_CLAIM
from holdfast.store import Store
from holdfast.testing.faults import FaultyStore, Stall

from .scene import HOUR, SLACK, WEB, Clock, kinds, log, names, row

parity = pytest.mark.parity
TABLE = "agent-assistant-sessions"


@parity(TABLE, 1, 2)
async def test_a_new_session_has_nothing_but_its_times(sessions: Sessions, clock: Clock) -> None:
    made = await sessions.create("a", user="ann")
    assert (made.session, made.user, made.workspace) == ("a", "ann", None)
    assert (made.phase, made.surfaces, made.metadata) == ("created", {}, {})
    assert (made.created, made.active) == (clock.ms, clock.s)
    assert made.changed is None
    assert await sessions.get("a") == made


@parity(TABLE, 3, 4, 5)
async def test_a_session_begins_with_what_it_is_given(sessions: Sessions) -> None:
    nested = {"tags": ["vip"], "deep": {"n": 1}}
    made = await sessions.create(
        "a", user="ann", workspace="w", surface=WEB, metadata=nested, labels=["new"], title="Hi"
    )
    nested["tags"].append("changed")  # type: ignore[attr-defined]
    nested["deep"]["n"] = 2  # type: ignore[index]
    nested["more"] = True  # type: ignore[assignment]
    for seen in (made, await row(sessions, "a")):
        assert seen.metadata == {"tags": ["vip"], "deep": {"n": 1}}
        assert (seen.workspace, seen.labels, seen.title) == ("w", {"new": True}, "Hi")
        assert names(seen) == ["web:thread-1"]
    assert await sessions.store.claims(made.scope) == [SURFACE_CLAIM + '["web","thread-1"]']


@parity(TABLE, 6)
async def test_an_id_begins_one_session(sessions: Sessions) -> None:
    first = await sessions.create("a", user="ann", surface=WEB)
    for place in (None, WEB, SLACK):
        with pytest.raises(SessionExists) as caught:
            await sessions.create("a", user="ben", surface=place)
        assert caught.value.session == "a"
    assert await sessions.get("a") == first
    other = await sessions.create("b", user="ben", surface=SLACK)  # nothing was kept of it
    assert names(other) == ["slack:dm-99"]
    with pytest.raises(SurfaceTaken):  # and what the first has, it still has
        await sessions.attach_surface("b", *WEB)


@parity(TABLE, 7)
async def test_of_two_that_begin_a_session_at_once_one_does(sessions: Sessions) -> None:
    made = await asyncio.gather(
        *(sessions.create("a", user=user) for user in ("ann", "ben")), return_exceptions=True
    )
    winner, loser = sorted(made, key=lambda answer: isinstance(answer, SessionExists))
    assert isinstance(loser, SessionExists)
    assert await sessions.get("a") == winner


@pytest.mark.parity("user-demand", 11)
async def test_of_many_that_get_or_create_one_creates(sessions: Sessions) -> None:
    rows = await asyncio.gather(*(sessions.get_or_create("a", user="ann") for _ in range(8)))
    assert {seen.log for seen in rows} == {rows[0].log}
    assert await kinds(sessions, "a") == ["session.created"]
    with pytest.raises(SessionExists):
        await sessions.get_or_create("a", user="ben")


CANNOT: list[Any] = [{"f": print}, {"f": float("nan")}, {"f": "\ud800"}, {"f": "x" * 20_000}]


@parity(TABLE, 8)
@pytest.mark.parametrize("metadata", CANNOT, ids=["function", "nan", "surrogate", "too large"])
async def test_what_json_cannot_hold_is_refused_and_nothing_is_stored(
    sessions: Sessions, metadata: Any
) -> None:
    with pytest.raises(InvalidValue):
        await sessions.create("a", user="ann", surface=WEB, metadata=metadata)
    assert await sessions.get("a") is None
    assert await sessions.store.claims(Scope("main", "a")) == []
    await sessions.create("b", user="ben")
    with pytest.raises(InvalidValue):
        await sessions.update_metadata("b", metadata)
    assert (await row(sessions, "b")).metadata == {}


@parity(TABLE, 9)
async def test_empty_names_are_refused(sessions: Sessions) -> None:
    empty: list[dict[str, Any]] = [
        {"id": "", "user": "ann"},
        {"id": "a", "user": ""},
        {"id": "a", "user": None},
        {"id": "a", "user": "ann", "workspace": "", "surface": WEB},
        {"id": "a", "user": "ann", "labels": [""], "surface": WEB},
        {"id": "a", "user": "ann", "surface": ("", "x")},
        {"id": "a", "user": "ann", "surface": ("x", "")},
        {"id": "a", "user": "ann", "ttl": 0},
        {"id": "a", "user": "ann", "expiry": -5},
    ]
    for arguments in empty:
        with pytest.raises(InvalidValue):
            await sessions.create(**arguments)
    assert (await sessions.find()).items == []
    assert await sessions.store.claims(Scope("main", "a")) == []
    await sessions.create("a", user="ann")
    for place in (("", "x"), ("x", "")):
        with pytest.raises(InvalidValue):
            await sessions.attach_surface("a", *place)


@parity(TABLE, 10)
async def test_get_finds_a_session_in_any_phase(sessions: Sessions) -> None:
    assert await sessions.get("a") is None
    await sessions.create("a", user="ann")
    for verb, phase in (
        (sessions.touch, "active"),
        (sessions.suspend, "suspended"),
        (sessions.expire, "expired"),
    ):
        assert await verb("a") == await sessions.get("a")
        assert (await row(sessions, "a")).phase == phase


@parity(TABLE, 11)
async def test_what_is_done_to_a_result_stays_there(sessions: Sessions) -> None:
    await sessions.create("a", user="ann", surface=WEB, metadata={"deep": {"n": 1}})
    found = (await sessions.find()).items
    for seen in (await row(sessions, "a"), await sessions.touch("a"), *found):
        seen.metadata["deep"]["n"] = 2
        seen.metadata["more"] = True
        seen.surfaces.clear()
    fresh = await row(sessions, "a")
    assert fresh.metadata == {"deep": {"n": 1}}
    assert names(fresh) == ["web:thread-1"]


@parity(TABLE, 12, 13, 14)
async def test_a_touch_activates_and_moves_only_what_it_should(
    sessions: Sessions, clock: Clock
) -> None:
    made = await sessions.create("a", user="ann")
    first = clock.go(10)
    touched = await sessions.touch("a")
    assert (touched.phase, touched.active, touched.changed) == ("active", clock.s, first)
    assert touched.created == made.created
    clock.go(10)
    again = await sessions.touch("a")
    assert (again.phase, again.active, again.changed) == ("active", clock.s, first)
    clock.go(HOUR + 1)
    assert (await sessions.sweep_stale()).suspended == ["a"]
    assert (await row(sessions, "a")).phase == "suspended"
    back = clock.go(10)
    revived = await sessions.touch("a")
    assert (revived.phase, revived.active, revived.changed) == ("active", clock.s, back)


@parity(TABLE, 15, 20)
async def test_an_expired_session_is_over_and_stays_as_it_is(
    sessions: Sessions, clock: Clock
) -> None:
    await sessions.create("a", user="ann")
    over = await sessions.expire("a")
    clock.go(10)
    assert await sessions.expire("a") == over
    for verb in (sessions.touch, sessions.suspend, sessions.resume):
        with pytest.raises(PhaseError) as caught:
            await verb("a")
        error = caught.value
        assert (error.session, error.phase, error.move) == ("a", "expired", verb.__name__)
    assert await sessions.get("a") == over


@parity(TABLE, 16, 21, 25, 28, 35)
async def test_every_verb_names_the_session_that_is_not_there(sessions: Sessions) -> None:
    calls = {
        "touch": (),
        "expire": (),
        "suspend": (),
        "resume": (),
        "reopen": (),
        "attach_surface": WEB,
        "detach_surface": WEB,
        "update_metadata": ({"a": 1},),
        "pin": (),
        "hold": ("law",),
        "set_ttl": (5,),
    }
    for verb, arguments in calls.items():
        with pytest.raises(SessionNotFound) as caught:
            await getattr(sessions, verb)("nobody", *arguments)
        assert caught.value.session == "nobody"
    assert (await sessions.find()).items == []
    await sessions.create("a", user="ann", surface=WEB)  # no surface was left with nobody


@parity(TABLE, 17, 18, 19)
async def test_a_session_expires_from_every_phase(sessions: Sessions, clock: Clock) -> None:
    for id in ("created", "active", "suspended"):
        await sessions.create(id, user="ann")
    for id in ("active", "suspended"):
        await sessions.touch(id)
    await sessions.suspend("suspended")
    at = clock.go(10)
    for id in ("created", "active", "suspended"):
        assert (await row(sessions, id)).phase == id
        over = await sessions.expire(id, actor="ops", reason="done")
        assert (over.phase, over.changed) == ("expired", at)
        last = (await log(sessions, id))[-1]
        assert (last.kind, last.actor, last.json()) == (
            "session.expired",
            "ops",
            {"reason": "done"},
        )


@parity(TABLE, 22)
async def test_an_expired_session_takes_no_change(sessions: Sessions) -> None:
    await sessions.create("a", user="ann", surface=WEB)
    over = await sessions.expire("a")
    head = over.head
    with pytest.raises(PhaseError, match="attach_surface"):
        await sessions.attach_surface("a", *SLACK)
    with pytest.raises(PhaseError, match="detach_surface"):
        await sessions.detach_surface("a", *WEB)
    with pytest.raises(PhaseError, match="update_metadata"):
        await sessions.update_metadata("a", {"x": 1})
    with pytest.raises(PhaseError, match="set_ttl"):
        await sessions.set_ttl("a", 5)
    assert await sessions.get("a") == over
    assert (await row(sessions, "a")).head == head
    await sessions.create("b", user="ben", surface=SLACK)  # nothing was claimed


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("update_metadata", ({"x": 1},)),
        ("attach_surface", WEB),
        ("detach_surface", SLACK),
        ("set_ttl", (5,)),
        ("suspend", ()),
    ],
)
async def test_a_change_is_decided_anew_when_another_came_between(
    store: Store, clock: Clock, verb: str, arguments: tuple[Any, ...]
) -> None:
    slow = FaultyStore(store)
    sessions, late = Sessions(store, clock=clock), Sessions(slow, clock=clock)
    made = await sessions.create("a", user="ann", surface=SLACK)
    stall = Stall(method="append")
    slow.plan.append(stall)
    changing = asyncio.create_task(getattr(late, verb)("a", *arguments))
    await stall.reached.wait()
    claims = await store.claims(made.scope)
    over = await sessions.expire("a")
    stall.go.set()
    with pytest.raises(PhaseError):
        await changing
    assert await row(sessions, "a") == over
    assert len(claims) == (2 if verb == "attach_surface" else 1)
    assert len(await store.claims(made.scope)) == 1  # that of the surface that it shows


async def test_resume_and_reopen_are_moves_of_their_own(sessions: Sessions, clock: Clock) -> None:
    await sessions.create("a", user="ann")
    with pytest.raises(PhaseError, match="resume"):
        await sessions.resume("a")
    with pytest.raises(PhaseError, match="reopen"):
        await sessions.reopen("a")
    suspended = await sessions.suspend("a", reason="holiday")
    assert await sessions.suspend("a") == suspended
    assert (await sessions.resume("a")).phase == "active"
    await sessions.expire("a")
    at = clock.go(5)
    back = await sessions.reopen("a", actor="ops", reason="mistake")
    assert (back.phase, back.changed, back.active) == ("active", at, clock.s)


@parity(TABLE, 32, 33, 34)
async def test_metadata_is_merged_key_by_key(sessions: Sessions) -> None:
    await sessions.create("a", user="ann", metadata={"keep": 1, "nested": {"x": 1, "y": 2}})
    await sessions.update_metadata("a", {"new": [1], "nested": {"x": 3}}, actor="ops", reason="r")
    merged = await row(sessions, "a")
    assert merged.metadata == {"keep": 1, "nested": {"x": 3}, "new": [1]}
    dropped = await sessions.update_metadata("a", {"new": None}, drop=["keep", "unknown", "new"])
    assert dropped.metadata == {"nested": {"x": 3}, "new": None}
    assert (await sessions.update_metadata("a", drop=["nested"])).metadata == {"new": None}
    assert (await log(sessions, "a"))[1].actor == "ops"


async def test_metadata_that_says_the_same_is_not_written_again(sessions: Sessions) -> None:
    await sessions.create("a", user="ann", metadata={"n": 1, "list": [1, 2]})
    same = await sessions.update_metadata("a", {"n": 1, "list": (1, 2)}, drop=["unknown"])
    assert same.head == 1
    # Equal to Python, but not to who reads it.
    assert (await sessions.update_metadata("a", {"n": True})).metadata["n"] is True
    assert type((await sessions.update_metadata("a", {"n": 1})).metadata["n"]) is int


@parity(TABLE, 36)
async def test_metadata_of_many_at_once_is_all_kept(sessions: Sessions) -> None:
    await sessions.create("a", user="ann")
    await asyncio.gather(*(sessions.update_metadata("a", {f"k{n}": n}) for n in range(8)))
    assert (await row(sessions, "a")).metadata == {f"k{n}": n for n in range(8)}


async def test_two_tenants_have_sessions_of_one_name(
    sessions: Sessions, store: Store, clock: Clock
) -> None:
    other = Sessions(store, tenant="other", clock=clock)
    await sessions.create("a", user="ann", surface=WEB)
    await other.create("a", user="ben", surface=WEB)
    await other.expire("a")
    assert (await row(sessions, "a")).phase == "created"
    assert [seen.user for seen in (await other.find()).items] == ["ben"]


async def test_changes_name_their_actor(store: Store, clock: Clock) -> None:
    sessions = Sessions(store, clock=clock, actor="service")
    await sessions.create("a", user="ann")
    await sessions.touch("a", actor="ann", reason="wrote")
    events = await log(sessions, "a")
    assert [event.actor for event in events] == ["service", "ann"]
    assert events[1].json() == {"reason": "wrote"}
