"""Rows and lists of an encrypted store are those of a plain one, whatever happened in the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast import Event, HoldfastError, NewEvent, PendingQuery, Query, Row, Store, Vault, connect
from holdfast.events import KINDS, Call, Key, RewoundWindow, key
from holdfast.log.catalog.projection import _CHANGES
from holdfast.log.conversation import REWOUND
from holdfast.stores.memory import MemoryStore
from holdfast.stores.vault.store import VaultStore
from tests.contract.test_stores import url_of
from tests.links.places import InMongo, InPostgres, InSqlite, Place

pytestmark = pytest.mark.parity("user-demand", 64)

KEY = key("s")
VAULT = Vault([Vault.new_key("first")])
NOW = 1_700_000_000_000
OTHER = {"log": "", "link": None, "bytes": 0}  # what differs from store to store

# Few names, so that what was put is dropped again, and what was asked is answered.
TEXTS = ("", "a", "Ännchen 🎈", "box:", "x" * 199 + "ß🎈" + "y" * 60, '"\\\u2028\n', "0")
NAMES = ("a", "b", "c d")
VALUES: tuple[Any, ...] = (None, True, 0, -1.5, 1 << 53, "", "ü", [], [1, {"b": None}], {"a": 1})


def of_type(hint: Any, name: str = "") -> st.SearchStrategy[Any]:
    """Values for a field of a payload, by its type; `name` is that of the field."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return st.sampled_from(VALUES)
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (UnionType, Union):
        return st.one_of([st.none() if one is NoneType else of_type(one, name) for one in args])
    if origin is list:
        return st.lists(of_type(args[0], "id"), max_size=3)
    if origin is dict:
        return st.dictionaries(st.sampled_from(NAMES), of_type(args[1]), max_size=3)
    if hint is str:
        return st.sampled_from(
            TEXTS if name in ("title", "text", "hold", "reason", "first") else NAMES
        )
    simple: dict[Any, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        int: st.sampled_from((0, 1, 60, NOW)),
        float: st.sampled_from((0.5, 2.0)),
        RewoundWindow: st.sampled_from((RewoundWindow(), RewoundWindow(upto=3, seq=5, tokens=7))),
        Call: st.sampled_from((Call(id="c1", name="refund", arguments={"order": 42}),)),
    }
    return simple[hint]


def payloads(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    """What events of a kind say, with every field that there is, or without those that need not
    be there."""
    about = msgspec.structs.fields(KINDS[kind])
    hints = get_type_hints(KINDS[kind])
    of = {field.name: of_type(hints[field.name], field.name) for field in about}
    needed = {field.name: of[field.name] for field in about if field.required}
    return st.fixed_dictionaries(
        needed, optional={name: value for name, value in of.items() if name not in needed}
    )


@st.composite
def events(draw: st.DrawFn, kind: str, seq: int = 1) -> Event:
    data = draw(payloads(kind))
    names = ("pending.opened", "pending.settled")
    id = f"settle:{data['id']}:{seq}" if kind == names[1] else f"e{seq}"
    run = draw(st.sampled_from((None, "r1")))
    new = NewEvent.of(kind, msgspec.to_builtins(data), id=id, run=run, actor="ann")
    return Event(**msgspec.structs.asdict(new), seq=seq, at=NOW + 700 * seq)


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    kinds = draw(st.lists(st.sampled_from(sorted(_CHANGES)), min_size=1, max_size=12))
    return [draw(events(kind, seq)) for seq, kind in enumerate(kinds, 1)]


def said(seq: int, kind: str, v: int = 1, /, **payload: Any) -> Event:
    new = NewEvent.of(kind, payload, id=f"e{seq}", v=v)
    return Event(**msgspec.structs.asdict(new), seq=seq, at=NOW + 700 * seq)


async def given_all(events: Iterable[Event]) -> AsyncGenerator[Event, None]:
    for event in events:
        yield event


Write = Callable[[Store, list[Event]], Any]


async def restored(store: Store, events: list[Event]) -> None:
    await store.restore(KEY, given_all(events))


async def at_once(store: Store, events: list[Event]) -> None:
    await store.append(KEY, [fresh(event) for event in events], create=True)


async def one_by_one(store: Store, events: list[Event]) -> None:
    for event in events:
        await store.append(KEY, [fresh(event)], create=True)


def fresh(event: Event) -> NewEvent:
    fields = {name: getattr(event, name) for name in NewEvent.__struct_fields__}
    return NewEvent(**fields)


def pair() -> tuple[Store, Store]:
    """A plain store and an encrypted one, whose clocks stand still."""
    return MemoryStore(clock=lambda: NOW), VaultStore(MemoryStore(clock=lambda: NOW), VAULT)


async def outcome(work: Any) -> str:
    try:
        await work
    except HoldfastError as error:
        return error.code
    return "ok"


async def shown(store: Store, at: Key = KEY) -> tuple[Row | None, list[Row], list[Any]]:
    """The row of a log, the list that it is in, and what waits, without what differs."""
    row = await store.row(at)
    found = (await store.find(Query(tenant=at.tenant, session=at.session))).items
    waits = (await store.pending(PendingQuery(tenant=at.tenant, session=at.session))).items
    return row and replace(row, **OTHER), [replace(one, **OTHER) for one in found], waits


async def told(store: Store, *, repair: bool = False) -> list[str]:
    """What is wrong with the logs; claims are those of sessions, and there are none here."""
    found = [one async for one in store.verify(repair=repair) if one.problem != "claim"]
    return [f"{one.problem}: {one.detail}" for one in found]


async def agree(plain: Store, sealed: Store) -> None:
    assert await shown(sealed) == await shown(plain)
    assert await told(plain) == []
    assert await told(sealed) == []


def both(events: list[Event], write: Write, erase: Iterable[int] = ()) -> None:
    """The same events, in both stores, make the same rows; so too when some are erased."""

    async def run() -> None:
        plain, sealed = pair()
        how = [await outcome(write(store, events)) for store in (plain, sealed)]
        assert how[0] == how[1]
        if await plain.row(KEY) is None:
            assert await sealed.row(KEY) is None
            return
        await agree(plain, sealed)
        head = (await shown(plain))[1][0].head
        seqs = [seq for seq in erase if seq <= head]
        for store in (plain, sealed):
            if seqs:
                await store.erase(KEY, seqs, reason="asked to")
        await agree(plain, sealed)

    asyncio.run(run())


@pytest.mark.parametrize("kind", sorted(_CHANGES))
@settings(max_examples=8)
@given(data=st.data())
def test_an_event_of_every_kind_shows_the_same(kind: str, data: st.DataObject) -> None:
    both([data.draw(events(kind))], restored)


@pytest.mark.parametrize("kind", sorted({*_CHANGES} - {REWOUND}))
@settings(max_examples=8)
@given(data=st.data())
def test_an_erased_event_of_every_kind_shows_the_same(kind: str, data: st.DataObject) -> None:
    both([data.draw(events(kind))], restored, erase=[1])


@pytest.mark.parametrize("write", [restored, at_once, one_by_one], ids=lambda how: how.__name__)
@given(events=logs())
@example(events=[said(1, "session.held", hold="Case 7"), said(2, "session.held")])
@example(events=[said(1, "thread.renamed", title="a"), said(2, "thread.renamed", title="")])
@example(events=[said(1, "message.received", 2, text="too new"), said(2, "unknown.kind", a=1)])
@example(events=[said(1, "message.received", text=7), said(2, "session.created", labels="no")])
def test_a_log_shows_the_same_however_it_came_to_be(write: Write, events: list[Event]) -> None:
    both(events, write)


@given(events=logs(), erase=st.sets(st.integers(1, 12)))
def test_a_log_of_which_some_is_erased_shows_the_same(events: list[Event], erase: set[int]) -> None:
    both(events, restored, erase - {e.seq for e in events if e.kind == REWOUND})


@given(payload=st.dictionaries(st.sampled_from(("id", "title", "text", "what")), st.text()))
@pytest.mark.parametrize("kind", ["message.received", "pending.opened", "thread.renamed"])
def test_texts_are_shown_as_they_were_written(kind: str, payload: dict[str, str]) -> None:
    try:
        event = said(1, kind, **payload)
    except HoldfastError:
        return  # no store takes it
    both([event], restored)


async def test_a_log_that_was_erased_in_part_is_the_same_when_it_is_copied_in() -> None:
    plain, sealed = pair()
    facts = [
        said(1, "session.created", agent="shop", user="ann", title="T", labels=["vip"]),
        said(2, "message.received", text="My card is 4711."),
        said(3, "run.started", driver="d"),
        said(4, "pending.opened", id="p1", what="approval", title="Pay 4711"),
        said(5, "session.held", hold="Case 7"),
    ]
    await restored(plain, facts)
    await plain.erase(KEY, [2, 3, 4], reason="asked to")
    await restored(sealed, [event async for event in plain.read(KEY)])
    await agree(plain, sealed)


async def test_an_erased_event_with_a_long_reason_is_copied_in() -> None:
    plain, sealed = pair()
    await restored(plain, [said(1, "session.created"), said(2, "message.received", text="4711")])
    await plain.erase(KEY, [2], reason="r" * 450)
    await restored(sealed, [event async for event in plain.read(KEY)])
    await agree(plain, sealed)
    assert [event async for event in sealed.read(KEY)] == [event async for event in plain.read(KEY)]


async def test_a_hundred_questions_with_long_titles_wait_as_in_a_plain_store() -> None:
    asks = [
        said(
            n, "pending.opened", id=f"pending-{n:026}", what="approval", title="問" * 300, call="c"
        )
        for n in range(1, 101)
    ]
    plain, sealed = pair()
    for store in (plain, sealed):
        await restored(store, asks)
    await agree(plain, sealed)


# What is rebuilt

FACTS = [
    said(1, "session.created", agent="shop", user="ann", title="Refund", labels=["vip"]),
    said(2, "message.received", text="Order 42 is broken."),
    said(3, "message.completed", text="…", usage={"in": 3}, calls=[{"id": "c", "name": "pay"}]),
    said(4, "pending.opened", id="p1", what="approval", title="Pay 19.99", assignee="bob"),
    said(5, "surface.attached", surface="slack", address="D1", detail={"team": "T"}),
    said(6, "session.held", hold="Case 7"),
    said(7, "metadata.changed", set={"tier": "gold"}),
    said(8, "run.waiting", due=NOW),
]
WRONG: dict[str, dict[str, Any]] = {
    "another text in clear": {"title": "Somebody's"},
    "no texts": {"title": None, "first_message": None, "hold": None},
    "another user": {"user": "eve", "labels": {}, "metadata": {"tier": "free"}},
    "nothing that waits": {"pending": {}, "run": "done", "due": None, "wake": None},
    "other counts": {"counts": {"messages": 9}, "usage": {}, "bytes": 3},
}


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mongodb"])
@pytest.mark.parametrize("wrong", WRONG)
async def test_a_damaged_row_is_found_and_made_what_a_plain_one_is(
    kind: str, wrong: str, tmp_path: Path
) -> None:
    plain = MemoryStore()
    await restored(plain, FACTS)
    async with url_of(kind, tmp_path) as url:
        place: Place = {"sqlite": in_sqlite, "postgres": InPostgres, "mongodb": InMongo}[kind](url)
        async with connect(url, vault=VAULT) as store:
            await restored(store, FACTS)
            row = await store.row(KEY)
            assert row is not None
        log = await place.taken(row.log)
        await place.put(replace(log, row=replace(log.row, **WRONG[wrong])))
        async with connect(url, vault=VAULT) as store:
            assert await shown(store) != await shown(plain)
            assert [line[:4] for line in await told(store)] == ["row:"]
            assert len(await told(store, repair=True)) == 1
            assert await told(store) == []
            assert await shown(store) == await shown(plain)
        async with connect(url, vault=VAULT) as store:
            assert await shown(store) == await shown(plain)
            assert [event.json() async for event in store.read(KEY)] == [
                event.json() for event in FACTS
            ]


def in_sqlite(url: str) -> Place:
    place = InSqlite(Path())
    place._path = Path(url.partition(":")[2])
    return place


async def test_the_rows_of_files_are_rebuilt_without_their_index(tmp_path: Path) -> None:
    plain, large = MemoryStore(), said(9, "message.completed", text="x" * 200_000, usage={"in": 4})
    await restored(plain, [*FACTS, large])
    async with url_of("file", tmp_path) as url:
        async with connect(url, vault=VAULT) as store:
            await restored(store, [*FACTS, large])
            before = await store.row(KEY)
        for path in (tmp_path / "holdfast").glob("index.db*"):
            path.unlink()
        async with connect(url, vault=VAULT) as store:
            assert await shown(store) == await shown(plain)
            assert await store.row(KEY) == before
            assert await told(store) == []
