"""What is done through a store leaves its links sound, whoever does it and whatever it is; what an
older program appends is told, and no more than that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from holdfast import Key, Store, connect, key
from holdfast.log import catalog
from holdfast.log.codec import fingerprint
from holdfast.stores.frames import packed
from holdfast.stores.hash_chain import link_in
from holdfast.stores.postgres import text_tables
from holdfast.stores.postgres.columns import columns
from tests import servers

from .places import KINDS, InPostgres, Place, place_of
from .scene import begin, events_of, fork, note, row_of, settle, tamper, told
from .tampering import Log, Record, changed, put_in

pytestmark = pytest.mark.parity("user-demand", 65)

S = key("s")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def place(kind: str, tmp_path: Path) -> AsyncGenerator[Place, None]:
    async with place_of(kind, tmp_path) as place:
        yield place


async def check_found(place: Place, name: Key, *seqs: int) -> None:
    """Each of these events, if it is altered now, is found, and nothing else."""
    async with place.opened() as store:
        log = (await row_of(store, name)).log
        await settle(store)
        before = (await told(store)).get(name.session, [])
    whole = await place.taken(log)
    for seq in seqs:
        await place.put(changed(whole, seq, actor="mallory the intruder"))
        async with place.opened() as store:
            found = (await told(store))[name.session]
            assert found == sorted([*before, ("broken", name.thread, seq)], key=by_number)
        await place.put(whole)
        async with place.opened() as store:
            assert (await told(store)).get(name.session, []) == before


def by_number(said: tuple[str, str, int | None]) -> int:
    return said[2] or 0


# As it goes


async def test_appends_of_two_at_once_are_linked(place: Place) -> None:
    async with place.opened() as store, place.opened() as other:
        await begin(store, S)
        for n in range(8):
            both = (store.append(S, [note(n), note(n)]), other.append(S, [note(n)]))
            await asyncio.gather(*both)
        assert (await row_of(other, S)).head == 31
        assert await told(store) == await told(other) == {}
    await check_found(place, S, 20)


async def test_three_hundred_events_are_linked(place: Place) -> None:
    async with place.opened() as store:
        await begin(store, S)
        for n in range(40):
            await store.append(S, [note(n + i) for i in range(8 if n else 1)])
        await settle(store)
        row = await row_of(store, S)
        assert row.head == 320
        assert await told(store) == {}
    async with place.opened() as store:
        assert (await row_of(store, S)).link == row.link is not None
    await check_found(place, S, 1, 150, 320)


async def test_forks_of_forks_and_what_is_erased_in_them_are_linked(place: Place) -> None:
    deep, deeper = key("s", "deep"), key("s", "deeper")
    async with place.opened() as store:
        await begin(store, S)
        await fork(store, S, "fork", 5)
        await store.erase(S, [5], reason="asked to")  # at which it left
        await fork(store, key("s", "fork"), "deep", 7)
        await store.erase(deep, [2, 6, 7, 9], reason="asked to")
        await fork(store, deep, "deeper", 9)
        await fork(store, deep, "early", 3)
        await store.append(S, [note("on")])
        await settle(store)
        assert await told(store) == {}
        assert await blank(store, deeper) == [2, 5, 6, 7, 9]
    await check_found(place, deeper, 10, 12)
    async with place.opened() as store:
        for gone in (S, key("s", "fork")):
            await store.delete(gone)
            await settle(store)
            assert await told(store) == {}
        await store.erase(deeper, [3], reason="asked to")
        assert await told(store) == {}
    async with place.opened() as store:
        assert await told(store) == {}
        assert await blank(store, key("s", "early")) == [2, 3]


async def blank(store: Store, name: Key) -> list[int]:
    events = await events_of(store, name)
    return [event.seq for event in events if event.json() == {"erased": "asked to"}]


async def test_an_erasure_keeps_links_and_takes_salts_along(place: Place) -> None:
    async with place.opened() as store:
        log = await begin(store, S)
        link = (await row_of(store, S)).link
    before = await place.taken(log)
    async with place.opened() as store:
        await store.erase(S, [2, 7], reason="asked to")
        assert (await row_of(store, S)).link == link
    after = await place.taken(log)
    for seq in range(1, 8):
        old, new = before.at(seq).kept, after.at(seq).kept
        assert old is not None
        assert new is not None
        assert link_in(old) == link_in(new)
        assert (old[1:17] in new, old == new) == (
            (True, True) if seq not in (2, 7) else (False,) * 2
        )
    assert link_in(after.at(7).kept).hex() == link


async def test_large_payloads_are_linked_and_erased(place: Place) -> None:
    async with place.opened() as store:
        await begin(store, S)
        await store.append(S, [note("x" * 100_000), note("y" * 100_000), note("z")])
        await settle(store)
        assert await told(store) == {}
        await store.erase(S, [8], reason="asked to")
        await store.append(S, [note("on")])
        assert await told(store) == {}
    async with place.opened() as store:
        assert await told(store) == {}


# What was damaged

DAMAGED = [kind for kind in KINDS if kind != "memory"]  # which can mend nothing but rows


def spoiled(log: Log, seq: int) -> Log:
    old = log.at(seq)
    event = replace(old.event, data=Raw(b'{"n":"spoiled"}'))
    return log.having_at(seq, Record(event, old.hash, old.kept))


@pytest.mark.parametrize("kind", DAMAGED)
@pytest.mark.parametrize("seq", [1, 5, 7])
async def test_a_damaged_event_that_was_mended_breaks_nothing(place: Place, seq: int) -> None:
    async with place.opened() as store:
        log = await begin(store, S)
    await tamper(place, log, lambda log: spoiled(log, seq))
    async with place.opened() as store:
        assert ("unreadable", "main", seq) in (await told(store))["s"]
        await told(store, repair=True)
        assert await told(store) == {}
        await store.append(S, [note(8), note(9)])
        await store.erase(S, [seq, 6], reason="asked to")
        assert await told(store) == {}
    kept = (await place.taken(log)).at(seq).kept
    assert kept is not None
    assert kept[:1] == b"x"
    await check_found(place, S, *{2, min(seq + 1, 9), 9})


# What an older program writes


async def test_an_event_of_an_older_program_is_told_and_no_more(place: Place) -> None:
    async with place.opened() as store:
        log = await begin(store, S)
    older = put_in(await place.taken(log), 8, None)
    await place.put(replace(older, row=replace(older.row, link=None)))
    await check_goes_on(place)


@pytest.mark.parametrize("kind", ["postgres"])
async def test_an_append_by_the_function_of_an_older_program_is_told(place: Place) -> None:
    assert isinstance(place, InPostgres)
    async with place.opened() as store:
        await begin(store, S)
        await append_1(place, await row_of(store, S))
        assert await told(store) == {"s": [("unlinked", "main", 8)]}
        await store.append(S, [note("in between")])  # by what it remembers of the log
        await append_1(place, await row_of(store, S))
        twice = [("unlinked", "main", 8), ("unlinked", "main", 10)]
        assert await told(store) == {"s": twice}
        await store.append(S, [note("on")])
        assert await told(store) == {"s": twice}
    await check_found(place, S, 7, 9, 11)


async def append_1(place: InPostgres, row: catalog.Row) -> None:
    """An append as a program without links calls for it."""
    async with place.direct() as conn:
        id, version = await conn.fetchrow("SELECT id, version FROM logs WHERE log = $1", row.log)
        at = row.last + 1
        event = note("older").numbered(row.head + 1, at)
        after = catalog.apply(row, [event], [catalog.project(event)])
        values: list[Any] = [
            *(row.tenant, row.session, row.thread, id, version, None),
            *([event.id], event.seq, at, [event.kind], [event.v], None, None, None),
            *([fingerprint(event)], [packed(event.data)]),
            *columns(after),
            msgspec.json.encode(after),
            *[None] * 8,
        ]
        call = ", ".join(f"${n}" for n in range(1, len(values) + 1))
        answer = await conn.fetchrow(f'SELECT * FROM "{place.schema}".append_1({call})', *values)
        assert answer["status"] == 0


async def check_goes_on(place: Place) -> None:
    """Number 8 has no link: that is told, links go on behind it, and those before it hold."""
    only = {"s": [("unlinked", "main", 8)]}
    async with place.opened() as store:
        assert await told(store) == only
        await store.append(S, [note("on"), note("and on")])
        await store.erase(S, [2], reason="asked to")
        await fork(store, S, "fork", 9)
        await fork(store, S, "at it", 8)
        assert await told(store) == only
    await check_found(place, S, 7, 9, 10)


@pytest.mark.parametrize("kind", ["postgres"])
async def test_a_store_of_an_older_program_is_migrated_and_goes_on(
    kind: str, tmp_path: Path
) -> None:
    url = servers.url(kind, tmp_path)
    place = InPostgres(url)
    async with connect(url) as store:
        log = await begin(store, S)
    await tamper(place, log, bare)
    async with place.direct() as conn:
        await conn.execute("DROP FUNCTION append_2, append_3")
        await conn.execute("ALTER TABLE events DROP COLUMN link")
        await conn.execute("ALTER TABLE logs DROP COLUMN renewed, DROP COLUMN mark")
        await conn.execute("DROP TRIGGER search_log ON logs")
        await conn.execute("DROP TRIGGER search_events ON events")
        await conn.execute("DROP INDEX logs_changed")
        await conn.execute(text_tables.DROP.replace("hf.", ""))
        await conn.execute("UPDATE meta SET version = 1")
    async with connect(url) as store:
        assert await told(store) == {}
        await store.append(S, [note(8), note(9)])
        assert await told(store) == {}
    await check_found(place, S, 8, 9)


def bare(log: Log) -> Log:
    """As it would be if no program had known of links."""
    records = [replace(record, kept=None) for record in log.records]
    return replace(log, records=records, row=replace(log.row, link=None))


async def test_a_log_without_links_goes_on_with_them(place: Place) -> None:
    async with place.opened() as store:
        log = await begin(store, S)
        of_fork = await fork(store, S, "fork", 5)
        await settle(store)
    for one in (log, of_fork):
        await tamper(place, one, bare)
    async with place.opened() as store:
        assert await told(store) == {}
        await store.append(S, [note(8), note(9)])
        await store.append(key("s", "fork"), [note(9), note(10)])
        await fork(store, S, "later", 6)
        await store.erase(S, [2, 8], reason="asked to")
        assert await told(store) == {}
    await check_found(place, S, 8, 9)
    await check_found(place, key("s", "fork"), 9, 10)
    await check_found(place, key("s", "later"), 8)


def unlinked_row(log: Log) -> Log:
    """As an older program leaves it that has written the row anew, and no event."""
    return replace(log, row=replace(log.row, link=None))


async def test_links_that_begin_anew_hold_in_forks_whose_parent_is_gone(place: Place) -> None:
    async with place.opened() as store:
        log = await begin(store, S)
        await settle(store)
    await tamper(place, log, unlinked_row)
    async with place.opened() as store:
        await store.append(S, [note(8), note(9)])
        await fork(store, S, "fork", 9)
        assert await told(store) == {}
        await store.delete(S)
        assert await told(store) == {}
