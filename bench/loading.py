"""Loading a log to decoded payloads, per entry."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import holdfast
from holdfast import NewEvent, Store

from . import floors, peers
from .entries import turn
from .measure import Absent, Figure, Result, race, timed
from .settings import Settings
from .turns import OURS, create, url

RAW = "sqlite3 and json.loads"


async def fill(store: Store, entries: int) -> None:
    """A session of so many entries, and the event that begins it."""
    key = await create(store, "session")
    events: list[NewEvent] = []
    for number in range(entries // 4):
        events += turn(number).events()
        if len(events) == 1_000:
            await store.append(key, events)
            events = []
    if events:
        await store.append(key, events)


def load(settings: Settings) -> Result:
    """Every entry of a log, decoded, beside the plainest read of the same file."""
    entries = settings.sizes.entries
    result = Result(name="load", title=f"Load {entries:,} entries to decoded payloads")
    with settings.folder() as folder, asyncio.Runner() as runner:
        settings.step("filling")
        place = url("sqlite", folder, "process")

        async def filled() -> None:
            async with holdfast.connect(place) as store:
                await fill(store, entries)

        runner.run(filled())
        store = runner.run(_open(place))
        conn = sqlite3.connect(folder / "ours.db")
        log = floors.longest(conn)

        async def read() -> list[Any]:
            return [event.json() async for event in store.read(holdfast.key("session"))]

        def per_entry(run: Callable[[], list[Any]]) -> Callable[[], float]:
            def go() -> float:
                seconds, items = timed(run)
                if len(items) < entries:
                    raise RuntimeError(f"{len(items)} of {entries} entries")
                return seconds / entries * 1e6

            return go

        runs = {
            OURS: per_entry(lambda: runner.run(read())),
            RAW: per_entry(lambda: floors.load(conn, log)),
        }
        with closing(conn), settings.folder() as other:
            if settings.peers:
                runs[peers.OPENAI] = _openai(other, entries, per_entry)
            values, absent = race(runs, rounds=settings.rounds, step=settings.step)
        runner.run(store.aclose())
    for name in runs:
        result.figures.append(
            Figure(
                name=name,
                unit="µs/entry",
                values=values.get(name, []),
                absent=absent.get(name, ""),
            )
        )
    result.compare(OURS, RAW, "most", 1.1)
    if settings.peers:
        result.compare(OURS, peers.OPENAI, "most", 1.0)
    return result


async def _open(place: str) -> Store:
    return await holdfast.connect(place)


def _openai(
    folder: Any, entries: int, per_entry: Callable[[Callable[[], list[Any]]], Callable[[], float]]
) -> Callable[[], float]:
    try:
        return per_entry(peers.openai_load(folder, entries))
    except Absent as reason:
        told = str(reason)

        def absent() -> float:
            raise Absent(told)

        return absent
