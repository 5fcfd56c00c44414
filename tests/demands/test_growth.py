"""Long sessions and many of them: what is stored grows with what was said, opening reads the end
alone, and lists are made without the logs."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from bench.finding import build, plans

from holdfast import Event, Key, NewEvent, Query, Snapshot, Store, connect, key
from holdfast.adapters.claude import ClaudeSessionStore
from holdfast.harness.live import log_loader
from holdfast.harness.session.session import core_of
from holdfast.testing import FaultyStore
from tests.adapters.words import entry
from tests.adapters.words import key as claude_key
from tests.harness.kernel.scene import helper, read, script, serve
from tests.servers.faults import schema_of
from tests.sessions import places

KEPT = [kind for kind in places.OPEN if kind != "memory"]
TURNS = 40
WORDS = 300  # letters of a text: enough that a page more or less does not count


def text(number: int) -> str:
    """Text that does not pack well."""
    return random.Random(number).randbytes(WORDS).hex()


async def stored(kind: str, folder: Path, url: str) -> int:
    """The bytes that a store without connections takes."""
    if kind == "postgres":
        return await _in_postgres(url)
    if kind == "mongodb":
        return await _in_mongodb(url)
    paths = await asyncio.to_thread(lambda: [*folder.rglob("*")])
    return sum(path.stat().st_size for path in paths if path.is_file())


async def _in_postgres(url: str) -> int:
    import asyncpg

    conn = await asyncpg.connect(url.partition("?")[0])
    try:
        tables = await conn.fetch(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname = $1",
            schema_of(url),
        )
        size = 0
        for (table,) in tables:
            await conn.execute(f"VACUUM {table}")
            size += await conn.fetchval("SELECT pg_total_relation_size($1::text::regclass)", table)
        return size
    finally:
        await conn.close()


async def _in_mongodb(url: str) -> int:
    from pymongo import AsyncMongoClient

    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url)
    async with client:
        told = await client[urlsplit(url).path.lstrip("/")].command("dbStats")
    return int(told["dataSize"])


@pytest.mark.parity("user-demand", 43)
@pytest.mark.parametrize("kind", KEPT)
async def test_twice_the_turns_take_twice_the_room(kind: str, tmp_path: Path) -> None:
    url = places.url(kind, tmp_path)
    async with connect(url):
        pass
    sizes = [await stored(kind, tmp_path, url)]
    for times in (1, 2, 4):
        async with serve(
            helper(), default_model=script(text(times)), store=url, window_turns=20
        ) as harness:
            session = await harness.get_or_create("s")
            done = len(await session.events(kinds=("message.received",)))
            for n in range(done, times * TURNS):
                assert (await session.send(text(n))).status == "done"
        sizes.append(await stored(kind, tmp_path, url))
    empty, one, two, four = sizes
    assert two - empty <= 2.1 * (one - empty)
    assert four - empty <= 2.1 * (two - empty)


@pytest.mark.parity("user-demand", 43)
@pytest.mark.parametrize("kind", KEPT)
async def test_so_do_twice_the_entries_of_the_claude_sdk(kind: str, tmp_path: Path) -> None:
    url = places.url(kind, tmp_path)
    async with connect(url):
        pass
    sizes = [await stored(kind, tmp_path, url)]
    for times in (1, 2, 4):
        async with connect(url) as store:
            sessions = ClaudeSessionStore(store)
            done = len(await sessions.load(claude_key()) or [])
            for n in range(done, times * 4 * TURNS, 4):
                batch = [entry(f"{m}", message={"content": text(m)}) for m in range(n, n + 4)]
                await sessions.append(claude_key(), batch)
        sizes.append(await stored(kind, tmp_path, url))
    empty, one, two, four = sizes
    assert two - empty <= 2.1 * (one - empty)
    assert four - empty <= 2.1 * (two - empty)


# Opening


class Forgetful(FaultyStore):
    """A store that lost its snapshots, and counts what is read."""

    def __init__(self, store: Store, *, snapshots: bool) -> None:
        super().__init__(store)
        self._snapshots, self.given = snapshots, 0

    async def load_snapshot(self, key: Key, version: str) -> Snapshot | None:
        return await super().load_snapshot(key, version) if self._snapshots else None

    async def read(self, key: Key, **options: Any) -> AsyncGenerator[Event, None]:
        async for event in self.inner.read(key, **options):
            self.given += 1
            yield event


@pytest.mark.parity("user-demand", 44, 54)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_without_snapshots_opening_is_slower_and_shows_the_same(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_loader, "SNAPSHOT", 50)
    url = places.url(kind, tmp_path)
    async with serve(
        helper(state={"n": 0}), default_model=script("ok"), store=url, window_turns=4
    ) as harness:
        session = await harness.get_or_create("s")
        for n in range(80):
            await session.send(f"number {n}")
        await session.state.update(n=80)
    shown: list[Any] = []
    costs: list[int] = []
    prompts: list[list[str]] = []
    for snapshots in (True, False):
        async with connect(url) as inner:
            store = Forgetful(inner, snapshots=snapshots)
            model = script("once more")
            async with serve(
                helper(state={"n": 0}), default_model=model, store=store, window_turns=4
            ) as harness:
                session = await harness.open("s")
                costs.append(store.given)
                state = msgspec.to_builtins(core_of(session).live.state)
                shown.append([state, session.state.get(), await session.transcript()])
                fork = await session.threads.fork(at=core_of(session).live.state.head)
                await fork.send("and now?")
                prompts.append(read(model.calls[0]))
    assert shown[0] == shown[1]
    assert prompts[0] == prompts[1]
    assert costs[0] < 150  # of all, which the other had to read
    assert costs[1] > 400


# Lists


async def _without_events(kind: str, folder: Path, url: str) -> None:
    """Take away what the logs hold, and leave the rest."""
    if kind == "sqlite":
        with closing(sqlite3.connect(folder / "holdfast")) as file, file:
            file.execute("DROP TABLE payloads")
            file.execute("DROP TABLE events")
    elif kind == "file":
        await asyncio.to_thread(shutil.rmtree, folder / "holdfast" / "logs")
    elif kind == "postgres":
        import asyncpg

        conn = await asyncpg.connect(url.partition("?")[0])
        await conn.execute(f"DROP TABLE {schema_of(url)}.events CASCADE")
        await conn.close()
    else:
        from pymongo import AsyncMongoClient

        client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url)
        async with client:
            database = client[urlsplit(url).path.lstrip("/")]
            await database.batches.drop()
            await database.logs.update_many({}, {"$unset": {"tail": ""}})


@pytest.mark.parity("user-demand", 45)
@pytest.mark.parametrize("kind", KEPT)
async def test_sessions_are_listed_and_found_without_one_event(kind: str, tmp_path: Path) -> None:
    url = places.url(kind, tmp_path)
    async with connect(url) as store:
        for n in range(12):
            created = {"title": f"Order {n}", "labels": ["odd" if n % 2 else "even"], "user": "ann"}
            events = [
                NewEvent.of("session.created", created),
                NewEvent.of("message.received", {"text": "Where is it?"}),
                NewEvent.of("run.started"),
            ]
            await store.append(key(f"s{n:02}"), events, create=True)
        whole = await pages(store, Query())
        await _without_events(kind, tmp_path, url)
        assert await pages(store, Query()) == whole
        assert len(await pages(store, Query(label="odd", user="ann", run="running"))) == 6
    assert len(whole) == 12
    for row in whole:
        assert (row.head, row.counts, row.run) == (3, {"messages": 1, "runs": 1}, "running")
        assert row.title is not None
        assert min(row.bytes, row.active, row.last) > 0


async def pages(store: Store, query: Query) -> list[Any]:
    """All rows, five at a time."""
    rows: list[Any] = []
    cursor: str | None = None
    while True:
        page = await store.find(query, cursor=cursor, limit=5)
        rows += page.items
        if (cursor := page.cursor) is None:
            return rows


@pytest.mark.parity("user-demand", 45)
async def test_no_question_about_sessions_looks_at_all_of_them(tmp_path: Path) -> None:
    """Nor does it look into a log: each is answered from an index."""
    await build(f"sqlite:{tmp_path / 'ours.db'}?durability=process", 200)
    for question, plan in (await plans(tmp_path, 200)).items():
        assert plan, question
        for step in plan:
            assert not step.startswith("SCAN") or "USING" in step, f"{question}: {plan}"
            assert "events" not in step, f"{question}: {plan}"
