"""The last entries of a long log, to decoded payloads: what opening a conversation at its end
reads, on SQLite, PostgreSQL and MongoDB."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import asyncpg
from pymongo import AsyncMongoClient

import holdfast
from holdfast import Store

from . import floors, peers
from .entries import turn
from .floors import encode
from .loading import RAW, fill
from .measure import Absent, Figure, Result, race, timed
from .settings import Settings
from .turns import OURS, turns_of, url

LAST = 50  # entries that are read
RECENT = 30  # turns that are appended one by one, as the end of a conversation is

RAW_POSTGRES = "asyncpg and json.loads"
RAW_MONGODB = "one document an entry, pymongo and json.loads"

Read = Callable[[], Awaitable[list[Any]]]


async def _fill(store: Store, entries: int) -> None:
    await fill(store, entries - 4 * RECENT)
    await turns_of(store, holdfast.key("session"), RECENT)()


def _ours(store: Store) -> Read:
    async def read() -> list[Any]:
        events = store.read(holdfast.key("session"), reverse=True, limit=LAST)
        return [event.json() async for event in events]

    return read


def _compete(
    result: Result, settings: Settings, runner: asyncio.Runner, reads: dict[str, Read | Absent]
) -> None:
    """Race some reads, and keep µs a read as figures."""
    count = settings.sizes.tails

    async def repeat(read: Read) -> list[Any]:
        for _ in range(count - 1):
            await read()
        return await read()

    def contestant(read: Read | Absent) -> Callable[[], float]:
        def go() -> float:
            if isinstance(read, Absent):
                raise read
            seconds, items = timed(lambda: runner.run(repeat(read)))
            if len(items) != LAST:
                raise RuntimeError(f"{len(items)} of {LAST} entries")
            return seconds / count * 1e6

        return go

    runs = {name: contestant(read) for name, read in reads.items()}
    values, absent = race(runs, rounds=settings.rounds, step=settings.step)
    for name in runs:
        found, why = values.get(name, []), absent.get(name, "")
        result.figures.append(Figure(name=name, unit="µs", values=found, absent=why))


def tail(settings: Settings) -> Result:
    """The last 50 entries of a long log on SQLite."""
    entries = settings.sizes.entries
    result = Result(name="tail", title=f"The last {LAST} of {entries:,} entries, SQLite")
    with settings.folder() as folder, settings.folder() as other, asyncio.Runner() as runner:
        settings.step("filling")
        store = runner.run(_opened(url("sqlite", folder, "process")))
        runner.run(_fill(store, entries))
        with closing(sqlite3.connect(folder / "ours.db")) as conn:
            log = floors.longest(conn)

            async def raw() -> list[Any]:
                rows = conn.execute(
                    "SELECT data FROM events WHERE log = ? ORDER BY seq DESC LIMIT ?", (log, LAST)
                )
                return [json.loads(data[5:]) for (data,) in rows]

            reads: dict[str, Read | Absent] = {OURS: _ours(store), RAW: raw}
            if settings.peers:
                try:
                    reads[peers.OPENAI] = peers.openai_tail(other, entries, LAST)
                except Absent as reason:
                    reads[peers.OPENAI] = reason
            _compete(result, settings, runner, reads)
        runner.run(store.aclose())
    result.compare(OURS, RAW, "most", 2.0)
    if settings.peers:
        result.compare(OURS, peers.OPENAI, "most", 1.0)
    return result


async def _opened(place: str) -> Store:
    return await holdfast.connect(place)


def tail_postgres(settings: Settings) -> Result:
    """The last 50 entries of a long log on PostgreSQL."""
    entries = settings.sizes.entries_shared
    result = Result(
        name="tail-postgres", title=f"The last {LAST} of {entries:,} entries, PostgreSQL"
    )
    with settings.servers.postgres() as place, asyncio.Runner() as runner:
        store = runner.run(_opened(place.url))
        runner.run(_fill(store, entries))
        conn = runner.run(asyncpg.connect(place.plain))
        log = runner.run(conn.fetchval(f'SELECT id FROM "{place.name}".logs'))
        sql = f'SELECT data FROM "{place.name}".events WHERE log = $1 ORDER BY seq DESC LIMIT $2'

        async def raw() -> list[Any]:
            return [json.loads(data[5:]) for (data,) in await conn.fetch(sql, log, LAST)]

        _compete(result, settings, runner, {OURS: _ours(store), RAW_POSTGRES: raw})
        runner.run(conn.close())
        runner.run(store.aclose())
    result.compare(OURS, RAW_POSTGRES, "most", 1.3)
    return result


def tail_mongodb(settings: Settings) -> Result:
    """The last 50 entries of a long log on MongoDB."""
    entries = settings.sizes.entries_shared
    result = Result(name="tail-mongodb", title=f"The last {LAST} of {entries:,} entries, MongoDB")
    with settings.servers.mongodb() as place, asyncio.Runner() as runner:
        store = runner.run(_opened(place.url))
        runner.run(_fill(store, entries))
        client = runner.run(_mongo_client(place.plain))
        plain = client[place.name].plain
        runner.run(_fill_plain(plain, entries))

        async def raw() -> list[Any]:
            found = plain.find({"session": "session"}).sort("seq", -1).limit(LAST)
            return [json.loads(document["data"]) for document in await found.to_list()]

        _compete(result, settings, runner, {OURS: _ours(store), RAW_MONGODB: raw})
        runner.run(client.close())
        runner.run(store.aclose())
    result.compare(OURS, RAW_MONGODB, "most", 1.3)
    return result


async def _mongo_client(place: str) -> Any:
    return AsyncMongoClient(place)


async def _fill_plain(plain: Any, entries: int) -> None:
    await plain.create_index([("session", 1), ("seq", 1)], unique=True)
    documents = [
        {"session": "session", "seq": number * 4 + place, "kind": kind, "data": encode(payload)}
        for number in range(entries // 4)
        for place, (kind, payload) in enumerate(turn(number).payloads(), 1)
    ]
    await plain.insert_many(documents)
