"""Whoever can write to the database of an encrypted store, and has no key, can put nothing there
that is taken for what somebody wrote: what is in clear, altered or moved is refused."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from holdfast import Key, LogDamaged, NewEvent, Scope, key
from holdfast.events import Event
from holdfast.log.catalog.encrypted_preview import BOXED, LOST

from .hands import KINDS, Hands, all_of, hands_on, outcome, readable, rewrite

pytestmark = pytest.mark.parity("user-demand", 64)

Events = list[Event]
Tamper = Callable[[Events], Events]

HEAD = 6


@pytest.fixture(params=KINDS)
async def hands(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Hands, None]:
    async with hands_on(request.param, tmp_path) as hands:
        yield hands


def appends() -> list[list[NewEvent]]:
    """Six events; the last three are of one append."""
    return [
        [NewEvent.of("session.created", {"title": "mine", "labels": ["guest"]}, actor="ann")],
        [NewEvent.of("message.received", {"text": "pay bob"}, run="r1", cause="c1", actor="ann")],
        [NewEvent.of("message.received", {"text": "pay eve"}, run="r1", cause="c1", actor="ann")],
        [NewEvent.of("note.made", {"n": n}) for n in (4, 5, 6)],
    ]


def at(events: Events, seq: int, **fields: Any) -> Events:
    """One event says something else."""
    return [replace(e, **fields) if e.seq == seq else e for e in events]


def boxed(events: Events, seq: int, **fields: Any) -> Events:
    """One event's box says something else."""
    box = events[seq - 1].json() | fields
    return at(events, seq, data=Raw(msgspec.json.encode(box)))


def swapped(events: Events, one: int, other: int) -> Events:
    """Two events stand at each other's numbers."""
    a, b = events[one - 1], events[other - 1]
    first, second = replace(a, seq=other, at=b.at), replace(b, seq=one, at=a.at)
    return [{one: second, other: first}.get(e.seq, e) for e in events]


def moved_up(events: Events, seq: int) -> Events:
    """One is taken away, and those behind it stand one number before; the last is there twice."""
    rest = [replace(e, seq=e.seq - 1) for e in events[seq:]]
    again = replace(events[-1], id="again")
    return [*events[: seq - 1], *rest, again]


def with_box(events: Events, seq: int, make: Callable[[str], str]) -> Events:
    return boxed(events, seq, box=make(events[seq - 1].json()["box"]))


def plain(seq: int, data: str, **fields: Any) -> Tamper:
    return lambda events: at(events, seq, data=Raw(data.encode()), **fields)


# What is done to the log, and the numbers that are refused then
CASES: dict[str, tuple[Tamper, Sequence[int]]] = {
    "data of another number": (lambda e: at(e, 2, data=e[2].data), [2]),
    "box of another number": (lambda e: boxed(e, 2, box=e[2].json()["box"]), [2]),
    "events swapped": (lambda e: swapped(e, 2, 3), [2, 3]),
    "swapped within an append": (lambda e: swapped(e, 4, 5), [4, 5]),
    "with the ties of where they are": (
        lambda e: boxed(
            boxed(swapped(e, 4, 5), 4, tie=e[3].json()["tie"]), 5, tie=e[4].json()["tie"]
        ),
        [4, 5],
    ),
    "moved up in place of another": (lambda e: moved_up(e, 4), [4, 5, 6]),
    "labels shown": (lambda e: boxed(e, 1, shown=e[0].json()["shown"] | {"labels": ["vip"]}), [1]),
    "nothing shown": (lambda e: boxed(e, 1, shown=None), [1]),
    "shown otherwise written": (
        lambda e: at(e, 1, data=Raw(bytes(e[0].data).replace(b'"labels":', b'"labels": '))),
        [1],
    ),
    "version": (lambda e: at(e, 2, v=e[1].v + 1), [2]),
    "kind": (lambda e: at(e, 2, kind="message.completed"), [2]),
    "kind of none": (lambda e: at(e, 4, kind="note.taken"), [4]),
    "actor": (lambda e: at(e, 2, actor="eve"), [2]),
    "no actor": (lambda e: at(e, 2, actor=None), [2]),
    "cause": (lambda e: at(e, 2, cause="c2"), [2]),
    "run": (lambda e: at(e, 2, run="r2"), [2]),
    "no run": (lambda e: at(e, 2, run=None), [2]),
    "id": (lambda e: at(e, 2, id="another"), [2]),
    "time": (lambda e: at(e, 2, at=e[1].at - 3_600_000), [2]),
    "run and cause exchanged": (lambda e: at(e, 2, run="c1", cause="r1"), [2]),
    "plain": (plain(2, '{"text":"pay eve"}', v=1), [2]),
    "plain of the version of a box": (plain(2, '{"text":"pay eve"}'), [2]),
    "plain of another version": (plain(2, '{"text":"pay eve"}', v=BOXED), [2]),
    "plain that holds a box": (lambda e: at(e, 2, v=1), [2]),
    "more than erased": (plain(2, '{"erased":"x","text":"pay eve"}'), [2]),
    "erased in no words": (plain(2, '{"erased":null}'), [2]),
    "null": (plain(2, "null"), [2]),
    "a list": (plain(2, "[]"), [2]),
    "a box of a number": (lambda e: boxed(e, 2, box=5), [2]),
    "an empty box": (lambda e: boxed(e, 2, box=""), [2]),
    "a box without its key": (lambda e: with_box(e, 2, lambda b: b.partition(":")[2]), [2]),
    "a box of no key": (lambda e: with_box(e, 2, lambda b: "0" * 16 + b[16:]), [2]),
    "a box of its key alone": (lambda e: with_box(e, 2, lambda b: b[:17]), [2]),
    "a box cut": (lambda e: with_box(e, 2, lambda b: b[:-4]), [2]),
    "a box of too little": (lambda e: with_box(e, 2, lambda b: b[:25]), [2]),
    "a box that is no base64": (lambda e: with_box(e, 2, lambda b: b[:-4] + "§§§§"), [2]),
    "a box of one other bit": (
        lambda e: with_box(e, 2, lambda b: b[:30] + ("A" if b[30] != "A" else "B") + b[31:]),
        [2],
    ),
    "tied elsewhere": (lambda e: boxed(e, 2, tie=e[2].json()["tie"]), [2]),
    "tied with nothing": (lambda e: boxed(e, 2, tie=""), [2]),
    "tied with no text": (lambda e: boxed(e, 2, tie=5), [2]),
    "tied with other letters": (lambda e: boxed(e, 2, tie="é" * 24), [2]),
    "of another size": (lambda e: boxed(e, 2, size=e[1].json()["size"] + 1), [2]),
    "of a lost one": (lambda e: at(e, 2, kind=LOST, id="damaged:2"), [2]),
}


async def test_an_event_that_was_altered_or_moved_is_refused_and_all_others_are_read(
    hands: Hands,
) -> None:
    found: dict[str, Any] = {}
    async with hands.under() as under, hands.behind() as store:
        for name, (how, _) in CASES.items():
            for some in appends():
                await store.append(key(name), some, create=True)
            events = how(await all_of(under, key(name)))
            await rewrite(under, key(name), events)
    async with hands.behind() as store:
        for name in CASES:
            found[name] = await outcome(readable(store, key(name), HEAD))
    numbers = range(1, HEAD + 1)
    assert found == {
        name: ([n for n in numbers if n not in bad], list(bad)) for name, (_, bad) in CASES.items()
    }


async def test_an_event_in_clear_among_encrypted_ones_is_refused_and_named(hands: Hands) -> None:
    async with hands.under() as under, hands.behind() as store:
        for some in appends()[:2]:
            await store.append(key("s"), some, create=True)
        forged = NewEvent.of("message.received", {"text": "pay eve"}, actor="ann")
        await under.append(key("s"), [forged])
        for some in appends()[2:]:
            await store.append(key("s"), some)
    async with hands.under() as under:
        assert [damage async for damage in under.verify()] == []
    async with hands.behind() as store:
        assert await readable(store, key("s"), HEAD + 1) == ([1, 2, 4, 5, 6, 7], [3])
        with pytest.raises(LogDamaged) as raised:
            [event async for event in store.follow(key("s"), after=2)]
        assert (raised.value.seq, raised.value.session) == (3, "s")
        assert "pay eve" not in str(raised.value)
        newest = [event.seq async for event in store.read(key("s"), reverse=True, limit=4)]
        assert newest == [7, 6, 5, 4]
        damages = [(d.problem, d.key, d.seq) async for d in store.verify()]
        assert damages == [("unreadable", key("s"), 3)]
        async for event in store.read(key("s"), after=3, limit=1):
            assert event.json() == {"text": "pay eve"}  # what was really written, behind it


@pytest.mark.parametrize(
    "there",
    [key("other"), Key("beta", "s", "main"), Key("fresh", "s", "main")],
    ids=["session", "tenant", "tenant without keys"],
)
async def test_a_log_that_was_moved_elsewhere_is_refused_whole(hands: Hands, there: Key) -> None:
    async with hands.under() as under, hands.behind() as store:
        for some in appends():
            await store.append(key("s"), some, create=True)
        await store.append(Key("beta", "own", "main"), appends()[0], create=True)
        await rewrite(under, there, await all_of(under, key("s")))
    async with hands.behind() as store:
        assert await readable(store, there, HEAD) == ([], [1, 2, 3, 4, 5, 6])
        row = await store.row(there)
        assert row is not None
        assert (row.title, row.first_message) == (None, None)
        assert await readable(store, key("s"), HEAD) == ([1, 2, 3, 4, 5, 6], [])
        own = [event.json()["title"] async for event in store.read(Key("beta", "own", "main"))]
        assert own == ["mine"]


async def test_what_was_put_there_with_a_copied_data_key_is_not_decrypted(hands: Hands) -> None:
    there = Key("beta", "s", "main")
    async with hands.under() as under, hands.behind() as store:
        await store.append(key("s"), appends()[0], create=True)
        await rewrite(under, there, await all_of(under, key("s")))
        for claim in await under.claims(Scope("main", "holdfast.vault")):
            await under.claim("beta", claim, Scope("beta", "holdfast.vault"))
    async with hands.behind() as store:
        assert await outcome(readable(store, there, 1)) in ("KeyMissing", ([], [1]))
        assert await readable(store, key("s"), 1) == ([1], [])


async def test_events_go_on_behind_what_was_put_there(hands: Hands) -> None:
    """Also when nothing of what stands before can be read."""
    async with hands.under() as under, hands.behind() as store:
        await store.append(key("own"), appends()[0], create=True)
        await under.restore(key("s"), _given("forged"))
    async with hands.behind() as store:
        done = await store.append(key("s"), [NewEvent.of("note.made", {"n": 2})])
        assert done.seqs == (2,)
        assert await readable(store, key("s"), 2) == ([2], [1])


async def _given(text: str) -> AsyncGenerator[Event, None]:
    yield NewEvent.of("note.made", {"n": text}).numbered(1, 1_000)
