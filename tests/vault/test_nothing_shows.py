"""Nothing of what people, models and tools said stands in clear in any byte of an encrypted store:
whatever kind of event it is in, and beside the events. What is documented as clear does."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import bson
import msgspec
import pytest
from msgspec import Raw, inspect
from pymongo import AsyncMongoClient

from holdfast import BlobRef, Key, NewEvent, Scope, Snapshot, Store, key
from holdfast.events import KINDS as EVENTS
from holdfast.log.catalog.encrypted_preview import CLEAR
from holdfast.log.codec import typed
from tests.servers.faults import schema_of

from .hands import KINDS, Hands, all_of, hands_on

pytestmark = pytest.mark.parity("user-demand", 64)

SECRET = "CANARY-of-what-was-said"
SHOWN = "in-clear-as-documented"
LARGE = 200_000


@pytest.fixture(params=KINDS)
async def hands(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Hands, None]:
    async with hands_on(request.param, tmp_path) as hands:
        yield hands


# What is said


def sample(type: inspect.Type, word: str) -> Any:
    """A value of a type with a word wherever there is room for one."""
    match type:
        case inspect.StrType():
            return word
        case inspect.AnyType():
            return {word: [word]}
        case inspect.UnionType(types=types):
            return sample(next(t for t in types if not isinstance(t, inspect.NoneType)), word)
        case inspect.ListType(item_type=item):
            return [sample(item, word)]
        case inspect.DictType(key_type=name, value_type=item):
            return {sample(name, word): sample(item, word)}
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.StructType(fields=fields):
            return {field.encode_name: sample(field.type, word) for field in fields}
        case inspect.BoolType():
            return True
        case inspect.FloatType():
            return 1.0
        case _:
            assert isinstance(type, inspect.IntType)
            return 1


def said(kind: str) -> NewEvent:
    """An event of a kind that says something in every field."""
    info = inspect.type_info(EVENTS[kind])
    assert isinstance(info, inspect.StructType)
    clear = CLEAR.get(kind, ())
    payload = {
        field.encode_name: sample(field.type, f"{SHOWN}-{kind}" if field.name in clear else SECRET)
        for field in info.fields
    }
    event = NewEvent.of(kind, payload)
    assert typed(event) is not None
    return event


def more() -> list[NewEvent]:
    """Events that no type tells how to read, and a large one."""
    return [
        NewEvent.of("note.made", {SECRET: [SECRET, {"a": SECRET}]}),
        NewEvent.of("message.received", {"text": SECRET, "aura": SECRET}, v=2),
        NewEvent.of("session.created", {"title": SECRET, "unknown": SECRET}),
        NewEvent.of("session.created", {"title": 5, "metadata": SECRET}),
        NewEvent.of("thread.renamed", {"title": SECRET * 40}),
        NewEvent.of("message.received", {"text": (SECRET + "ä\u2028\n") * (LARGE // 10)}),
        NewEvent.of("message.received", SECRET),
        NewEvent.of("session.held", {"hold": SECRET, "reason": SECRET}),
    ]


async def say(store: Store) -> dict[Key, list[bytes]]:
    """All of it; what was appended, by log."""
    given: dict[Key, list[bytes]] = {}
    for kind in EVENTS:
        event = said(kind)
        given[key(kind)] = [bytes(event.data)]
        await store.append(key(kind), [event], create=True)
    given[key("more")] = [bytes(event.data) for event in more()]
    await store.append(key("more"), more(), create=True)
    for event in more():
        name = key(f"alone {event.id}")
        given[name] = [bytes(event.data)]
        await store.append(name, [event], create=True)
    first = NewEvent.of("thread.forked", {"parent": "main", "at": 2, "title": SECRET})
    await store.fork(key("more"), "side", at=2, first=first)
    return given


async def put_beside(store: Store) -> list[BlobRef]:
    row = await store.row(key("more"))
    assert row is not None
    lease = await store.acquire(key("more"), "driver")
    await store.put_draft(key("more"), "m1", 0, SECRET, fence=lease)
    await store.put_draft(key("more"), "m1", len(SECRET), SECRET * 9_000, fence=lease)
    state = Raw(msgspec.json.encode({"messages": [SECRET]}))
    snapshot = Snapshot(log=row.log, seq=2, version="v1", state=state)
    await store.save_snapshot(key("more"), snapshot, fence=lease)
    scope = Scope("main", "more")
    blobs = (SECRET.encode(), SECRET.encode() * LARGE)
    return [await store.put_blob(scope, data) for data in blobs]


# Where it would be found


async def bytes_of(hands: Hands) -> dict[str, bytes]:
    """Every byte that a database holds, by where."""
    if hands.kind == "postgres":
        return await _of_postgres(hands.url)
    if hands.kind == "mongodb":
        return await _of_mongodb(hands.url)
    return {
        str(path.relative_to(hands.folder)): str(path).encode() + path.read_bytes()
        for path in hands.folder.rglob("*")
        if path.is_file()
    }


async def _of_postgres(url: str) -> dict[str, bytes]:
    schema = schema_of(url)
    conn = await asyncpg.connect(url.partition("?")[0])
    try:
        tables = await conn.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
        found = {}
        for (table,) in tables:
            records = await conn.fetch(f"SELECT * FROM {schema}.{table}")
            values = [value for record in records for value in record.values()]
            found[table] = b"\n".join(
                value if isinstance(value, bytes) else str(value).encode() for value in values
            )
        return found
    finally:
        await conn.close()


async def _of_mongodb(url: str) -> dict[str, bytes]:
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url)
    found = {}
    async with client:
        database = client[urlsplit(url).path.lstrip("/")]
        for name in await database.list_collection_names():
            found[name] = b"\n".join([bson.encode(doc) async for doc in database[name].find()])
    return found


def spellings(text: str) -> list[bytes]:
    """A text as it is, and within base64 wherever it begins there."""
    data = text.encode()
    shifted = [base64.b64encode(b"\0" * n + data)[4:-4] for n in range(3)]
    return [data, data.hex().encode(), *shifted]


def where(found: dict[str, bytes], text: str) -> list[str]:
    return [name for name, data in found.items() if any(one in data for one in spellings(text))]


# What is promised


async def test_nothing_that_was_said_stands_in_clear_anywhere(hands: Hands) -> None:
    async with hands.behind() as store:
        given = await say(store)
        refs = await put_beside(store)
        assert where(await bytes_of(hands), SECRET) == []
        rows = [await store.row(name) for name in given]
        assert {row.title for row in rows if row is not None} >= {SECRET, SECRET * 40}
    assert where(await bytes_of(hands), SECRET) == []
    async with hands.behind() as store:
        assert {
            name: [bytes(event.data) for event in await all_of(store, name)] for name in given
        } == given
        (draft,) = await store.drafts(key("more"))
        assert draft.text == SECRET * 9_001
        snapshot = await store.load_snapshot(key("more"), "v1")
        assert snapshot is not None
        assert SECRET.encode() in bytes(snapshot.state)
        scope = Scope("main", "more")
        assert [len(await store.get_blob(scope, ref)) for ref in refs] == [23, 23 * LARGE]
        assert {damage.problem async for damage in store.verify()} == {"claim"}  # of a surface
    assert where(await bytes_of(hands), SECRET) == []


async def test_it_would_be_found_in_a_store_that_is_not_encrypted(hands: Hands) -> None:
    async with hands.under() as store:
        await say(store)
        await put_beside(store)
    assert where(await bytes_of(hands), SECRET) != []


async def test_what_is_documented_as_clear_is_so(hands: Hands) -> None:
    async with hands.behind() as store:
        await say(store)
        (ref, _) = await put_beside(store)
        note = NewEvent.of(
            "note.made", {"text": SECRET}, id="the-id", run="the-run", actor="the-actor"
        )
        await store.append(key("the-session", "the-thread"), [note], create=True)
    found = await bytes_of(hands)
    assert ref.sha256 == hashlib.sha256(SECRET.encode()).hexdigest()
    for text in (
        *("the-id", "the-run", "the-actor", "the-session", "the-thread", "note.made", ref.sha256),
        *(f"{SHOWN}-{kind}" for kind in CLEAR if SHOWN.encode() in bytes(said(kind).data)),
    ):
        assert where(found, text) != [], text


async def test_no_error_tells_what_could_not_be_read(hands: Hands) -> None:
    async with hands.behind() as store:
        given = await say(store)
    async with hands.under() as under, hands.behind() as store:
        for name in given:
            forged = NewEvent.of("message.received", {"text": SECRET})
            if not name.session.startswith("session.moved"):
                await under.append(name, [forged])
        damages = [d async for d in store.verify() if d.problem == "unreadable"]
        assert len(damages) == len(given) - 1
        assert SECRET not in str(damages)
