"""Full-text search over many sessions: time of a search, size of the index, and what indexing
costs those who append."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Generic, TypeVar

import asyncpg
from msgspec import Struct

import holdfast
from holdfast import Key, NewEvent, Store
from holdfast.log.catalog import SearchQuery

from .entries import turn
from .measure import Bar, Figure, Result, race, steady
from .servers import Place
from .settings import Settings
from .turns import create, turns_of, url

P = TypeVar("P")

PER_SESSION = 40  # messages
TOGETHER = 64  # sessions that are written at once
VOCABULARY = 20_000
WORDS = 70  # of a message: about 400 characters
RARE = "zyzzyva"
QUERIES = {
    "a rare word": (RARE, 5.0),
    "newest 20 of a frequent word": ("refund", 20.0),
    "newest 20 of a word in every message": ("the", 20.0),
    "a prefix": ("w12*", 100.0),
    "two frequent words": ("refund the", None),
    "a phrase": ('"the refund"', None),
}
INDEXING = "while the index is updated"
ALONE = "without an index"


class Corpora(Struct, Generic[P], frozen=True, kw_only=True):
    """Where the sessions of a workload are, how they are filled, and how large their index is."""

    place: Callable[[], AbstractContextManager[P]]
    filling: Callable[[P], str]
    url: Callable[[P], str]
    size: Callable[[P], int]
    bars: bool = True
    most: float | None = None  # of the raw text, the size of the index


def message(number: int, chance: random.Random) -> str:
    """A message in the words of a large vocabulary, some far more frequent than others."""
    words = [f"w{int(VOCABULARY ** chance.random())}" for _ in range(WORDS)]
    words[chance.randrange(WORDS)] = "the"
    if number % 12 == 0:
        words.insert(words.index("the") + 1, "refund")
    return " ".join(words)


def texts(number: int, rare: int) -> list[str]:
    """The messages of a session."""
    chance = random.Random(number)
    some = [message(number * PER_SESSION + n, chance) for n in range(PER_SESSION)]
    if number == rare:
        some[0] += f" {RARE}"
    return some


async def build(place: str, sessions: int) -> int:
    """Sessions with messages. Returns the bytes of their text."""
    raw = 0

    async def one(store: Store, number: int) -> int:
        some = texts(number, sessions // 3)
        events = [
            NewEvent.of("message.completed" if n % 2 else "message.received", {"text": text})
            for n, text in enumerate(some)
        ]
        await store.append(holdfast.key(f"s{number}"), events, create=True)
        return sum(map(len, some))

    async with holdfast.connect(place) as store:
        for start in range(0, sessions, TOGETHER):
            numbers = range(start, min(start + TOGETHER, sessions))
            raw += sum(await asyncio.gather(*(one(store, number) for number in numbers)))
    return raw


def search(settings: Settings) -> Result:
    """Search in many sessions on SQLite, size of the index, appends while it is updated."""

    def place(folder: Path) -> str:
        return url("sqlite", folder, "process")

    corpora = Corpora(
        place=settings.folder,
        filling=place,
        url=place,
        size=lambda folder: os.path.getsize(folder / "ours.db.search"),
        most=0.6,
    )
    return search_in("search", settings, corpora)


def search_postgres(settings: Settings) -> Result:
    """The same on PostgreSQL."""

    def size(place: Place) -> int:
        async def look() -> int:
            conn = await asyncpg.connect(place.plain)
            try:
                found: int = await conn.fetchval(
                    "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class AS c"
                    " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
                    " WHERE n.nspname = $1 AND c.relkind = 'r' AND c.relname LIKE 'search_%'",
                    place.name,
                )
            finally:
                await conn.close()
            return int(found)

        return asyncio.run(look())

    corpora = Corpora(
        place=settings.servers.postgres,
        filling=lambda place: place.with_options(synchronous_commit="off"),
        url=lambda place: place.url,
        size=size,
    )
    return _about(search_in("search-postgres", settings, corpora), settings, "postgres")


def _about(result: Result, settings: Settings, kind: str) -> Result:
    result.notes.append(settings.servers.about(kind))
    return result


def search_in(name: str, settings: Settings, corpora: Corpora[P]) -> Result:
    """All measurements, wherever the sessions are."""
    sessions = settings.sizes.searched
    result = Result(name=name, title=f"Search {sessions:,} sessions of {PER_SESSION} messages")
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        place = stack.enter_context(corpora.place())
        settings.step(f"building {sessions:,} sessions")
        start = time.perf_counter()
        raw = runner.run(build(corpora.filling(place), sessions))
        result.notes.append(f"built in {time.perf_counter() - start:.1f} s")
        store = runner.run(_open(corpora.url(place)))
        settings.step("indexing")
        wall, cpu = time.perf_counter(), time.process_time()
        runner.run(_indexed(store))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        each = cpu / (sessions * PER_SESSION) * 1e6
        result.notes.append(f"indexed in {wall:.1f} s, {each:.0f} µs of our CPU a message")
        _measure_queries(result, settings, runner, store, bars=corpora.bars)
        _measure_size(result, corpora, place, raw)
        runner.run(store.aclose())
    _measure_appends(result, settings, corpora)
    return result


async def _open(place: str) -> Store:
    return await holdfast.connect(place)


async def _indexed(store: Store) -> None:
    """Wait until everything is indexed."""
    while (await store.search(SearchQuery(text=RARE))).behind:
        pass


def _measure_queries(
    result: Result, settings: Settings, runner: asyncio.Runner, store: Store, *, bars: bool
) -> None:
    async def times(text: str) -> float:
        taken = []
        for _ in range(settings.sizes.queries):
            start = time.perf_counter()
            page = await store.search(SearchQuery(text=text))
            taken.append(time.perf_counter() - start)
            if not page.hits or page.behind or page.scanned:
                raise RuntimeError(f"{len(page.hits)} hits, behind: {page.behind}")
        return statistics.median(taken) * 1e3

    def asked(text: str) -> Callable[[], float]:
        def run() -> float:
            with steady():
                return runner.run(times(text))

        return run

    runs = {name: asked(text) for name, (text, _) in QUERIES.items()}
    values, absent = race(runs, rounds=settings.rounds, step=settings.step)
    for name, (_, most) in QUERIES.items():
        why = absent.get(name, "")
        found = values.get(name, [])
        result.figures.append(Figure(name=name, unit="ms", values=found, absent=why))
        if most is not None and bars:
            bar = Bar(name=name, way="most", bar=most, values=found, unit="ms", absent=why)
            result.bars.append(bar)


def _measure_size(result: Result, corpora: Corpora[P], place: P, raw: int) -> None:
    size = corpora.size(place)
    result.figures.append(Figure(name="index", unit="MB", values=[size / 1e6]))
    result.figures.append(Figure(name="raw text", unit="MB", values=[raw / 1e6]))
    if corpora.most is not None:
        result.compare("index", "raw text", "most", corpora.most)


def _measure_appends(result: Result, settings: Settings, corpora: Corpora[Any]) -> None:
    """Turns a second of sessions at once, in a store that was searched and in one that was not.
    They take long enough that the index is updated meanwhile."""
    sizes = settings.sizes

    async def appended(store: Store, key: Key, end: float) -> int:
        turns = 0
        while not turns or time.perf_counter() < end:
            await turns_of(store, key, sizes.turns_searched)()
            turns += sizes.turns_searched
        return turns

    async def run(place: str, *, searched: bool) -> float:
        async with holdfast.connect(place) as store:
            names = _names()
            keys = [await create(store, next(names)) for _ in range(sizes.together)]
            await store.append(keys[0], turn(0).events())
            if searched:
                await _indexed(store)
            start = time.perf_counter()
            end = start + sizes.appending
            turns = await asyncio.gather(*(appended(store, key, end) for key in keys))
            return sum(turns) / (time.perf_counter() - start)

    def contestant(*, searched: bool) -> Callable[[], float]:
        def go() -> float:
            with corpora.place() as place:
                return asyncio.run(run(corpora.url(place), searched=searched))

        return go

    runs = {INDEXING: contestant(searched=True), ALONE: contestant(searched=False)}
    values, absent = race(runs, rounds=settings.rounds, step=settings.step)
    for name in runs:
        why = absent.get(name, "")
        figure = Figure(name=name, unit="turns/s", values=values.get(name, []), absent=why)
        result.figures.append(figure)
    result.compare(INDEXING, ALONE, "least", 0.9)


def _names() -> Iterator[str]:
    while True:
        yield holdfast.new_id()
