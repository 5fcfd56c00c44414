"""Streaming: how soon a listener has what a model said, when many speak at once; and how much
is written while one does."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from msgspec import Struct

import holdfast
from holdfast import Harness, Key, NewEvent, Store
from holdfast.events import Appended
from holdfast.harness.session.session import Session
from holdfast.models.port import Chunk, EndChunk, ModelCall, TextChunk
from holdfast.store import Lease, Snapshot
from holdfast.values.delta import Delta

from .harness import ASKED, USAGE, shop
from .measure import Bar, Figure, Result, Way, race, steady
from .settings import Settings
from .turns import url

WIDTH = 50  # characters of a chunk: the moment at which it was made, in ns


class Clock:
    """A model whose chunks say when they were made, `spacing` seconds apart."""

    ref = "clock/one"

    def __init__(self, chunks: int, spacing: float) -> None:
        self._chunks, self._spacing = chunks, spacing

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        for _ in range(self._chunks):
            await asyncio.sleep(self._spacing)
            yield TextChunk(f"{time.perf_counter_ns():0{WIDTH}d}")
        yield EndChunk("stop", USAGE)


class Heard(Struct, frozen=True):
    """What one listener got: how late each chunk was, and chunks a second."""

    late: list[float]
    rate: float


async def hear(session: Session) -> Heard:
    """Send, and note when each chunk arrives."""
    late: list[float] = []
    start = time.perf_counter()
    stream = session.stream(ASKED)
    async for item in stream:
        if isinstance(item, Delta):
            now = time.perf_counter_ns()
            made = (item.text[at : at + WIDTH] for at in range(0, len(item.text), WIDTH))
            late.extend((now - int(text)) / 1e6 for text in made)
    took = time.perf_counter() - start
    if stream.result.status != "done" or len(stream.result.text) != WIDTH * len(late):
        raise RuntimeError(f"a stream ended as {stream.result.status} with {len(late)} chunks")
    return Heard(late, len(late) / took)


async def together(storage: str, settings: Settings) -> list[Heard]:
    """All sessions of a round at once, in one process."""
    sizes = settings.sizes
    model = Clock(sizes.chunks, sizes.spacing)
    async with Harness(shop(), default_model=model, store=storage) as harness:
        sessions = [await harness.get_or_create(f"session-{n}") for n in range(sizes.streams)]
        with steady():
            return list(await asyncio.gather(*map(hear, sessions)))


def harness_streams(settings: Settings) -> Result:
    """Many sessions streaming at once in one process: how late a listener hears."""
    sizes = settings.sizes
    title = f"{sizes.streams} sessions streaming at once"
    result = Result(name="harness-streams", title=title)
    slowest: dict[str, list[float]] = {"memory": [], "sqlite": []}
    typical: dict[str, list[float]] = {"memory": [], "sqlite": []}

    def run(scheme: str) -> float:
        with settings.folder() as folder:
            heard = asyncio.run(together(url(scheme, folder), settings))
        late = sorted(delay for one in heard for delay in one.late)
        rates = [one.rate for one in heard]
        typical[scheme].append(statistics.median(late))
        slowest[scheme].append(min(rates) / statistics.median(rates))
        return late[int(len(late) * 0.99)]

    runs = {scheme: lambda scheme=scheme: run(scheme) for scheme in slowest}
    values, absent = race(runs, rounds=settings.rounds, step=settings.step)
    for scheme in runs:
        why = absent.get(scheme, "")
        wanted: list[tuple[str, Way, float, str, list[float]]] = [
            ("chunk to listener, p99", "most", 100.0, "ms", values.get(scheme, [])),
            ("slowest session ÷ the median", "least", 0.5, "×", slowest[scheme][1:]),
        ]
        for what, way, bar, unit, found in wanted:
            result.bars.append(
                Bar(
                    name=f"{scheme}, {what}",
                    way=way,
                    bar=bar,
                    unit=unit,
                    values=[] if why else found,
                    absent=why,
                )
            )
        result.figures.append(
            Figure(
                name=f"{scheme}, chunk to listener, median",
                unit="ms",
                values=typical[scheme][1:],
                absent=why,
                note=f"{sizes.chunks} chunks a session, one every {sizes.spacing * 1e3:g} ms",
            )
        )
    return result


class Counted:
    """A store that notes what it is given to write: when, and how much."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.writes: list[tuple[float, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _note(self, size: int) -> None:
        self.writes.append((time.perf_counter(), size))

    async def append(self, key: Key, events: Sequence[NewEvent], **rest: Any) -> Appended:
        self._note(sum(len(event.data) for event in events))
        return await self._store.append(key, events, **rest)

    async def put_draft(
        self, key: Key, message: str, offset: int, text: str, *, fence: Lease
    ) -> None:
        self._note(len(text.encode()))
        await self._store.put_draft(key, message, offset, text, fence=fence)

    async def save_snapshot(self, key: Key, snapshot: Snapshot, *, fence: Lease) -> None:
        self._note(len(snapshot.state))
        await self._store.save_snapshot(key, snapshot, fence=fence)


class Wrote(Struct, frozen=True):
    """What one streamed answer gave the store: bytes over its size, commits a second from its
    first chunk to its last, and the most in any second, beginning and end included."""

    bytes: float
    commits: float
    most: int


async def wrote(storage: str, settings: Settings) -> Wrote:
    sizes = settings.sizes
    chunks = sizes.answer // WIDTH
    async with holdfast.connect(storage) as store:
        counted: Any = Counted(store)
        model = Clock(chunks, sizes.speaking / chunks)
        async with Harness(shop(), default_model=model, store=counted) as harness:
            session = await harness.get_or_create("session")
            counted.writes.clear()
            heard: list[float] = []
            stream = session.stream(ASKED)
            async for item in stream:
                if isinstance(item, Delta):
                    heard.append(time.perf_counter())
            size = len(stream.result.text)
    times = [at for at, _ in counted.writes]
    meanwhile = [at for at in times if heard[0] <= at <= heard[-1]]
    most = max(sum(start <= at < start + 1 for at in times) for start in times)
    total = sum(written for _, written in counted.writes)
    return Wrote(total / size, len(meanwhile) / (heard[-1] - heard[0]), most)


def harness_bytes(settings: Settings) -> Result:
    """What a streamed answer of 50 KB gives the store to write."""
    sizes = settings.sizes
    title = f"A streamed answer of {sizes.answer // 1000} KB"
    result = Result(name="harness-bytes", title=title)
    found: list[Wrote] = []

    def run() -> float:
        with settings.folder() as folder:
            found.append(asyncio.run(wrote(url("sqlite", folder), settings)))
        return found[-1].bytes

    name = "bytes handed to the store ÷ the answer's"
    values, absent = race({name: run}, rounds=min(settings.rounds, 3), step=settings.step)
    why = absent.get(name, "")
    commits = [one.commits for one in found[1:]]
    rate = "commits a second while it streams"
    result.bars.append(Bar(name=name, way="most", bar=3.0, values=values.get(name, []), absent=why))
    result.bars.append(
        Bar(name=rate, way="most", bar=4.0, unit="/s", values=[] if why else commits, absent=why)
    )
    result.figures.append(
        Figure(
            name="commits in any one second, the turn's own too",
            unit="",
            values=[float(one.most) for one in found[1:]],
            note=f"{sizes.answer // WIDTH:,} chunks in about {sizes.speaking:g} s",
            absent=why,
        )
    )
    return result
