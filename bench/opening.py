"""Opening a long thread in a fresh process: snapshot, tail, state. Time and memory."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import msgspec

import holdfast
from holdfast import Event, NewEvent, Snapshot
from holdfast.log.state import fold
from holdfast.state import VERSION

from .entries import turn
from .measure import Bar, Figure, Result, race
from .settings import Settings
from .turns import url

# Run in a child, so that neither memory nor caches of this process count. Imports are
# not part of it: the time is from `connect` to the state.
CHILD = """
import asyncio, json, resource, sys, time
import msgspec
import holdfast
from holdfast.state import VERSION, State, fold

def status(name):
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith(name)) / 1024
    except OSError:
        size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return size / (1 << 20 if sys.platform == "darwin" else 1 << 10)

async def main(url, with_snapshot):
    async with holdfast.connect(url) as store:
        key = holdfast.key("session")
        start, after = None, 0
        if with_snapshot:
            snapshot = await store.load_snapshot(key, VERSION)
            start = msgspec.json.decode(snapshot.state, type=State)
            after = snapshot.seq
        events = 0
        async def tail():
            nonlocal start, events
            page = []
            async for event in store.read(key, after=after):
                page.append(event)
                events += 1
                if len(page) == 512:
                    start = fold(page, start)
                    page = []
            return fold(page, start)
        state = await tail()
        seconds = time.perf_counter() - begun
        return seconds, events, state.head

before = status("VmRSS")
begun = time.perf_counter()
seconds, events, head = asyncio.run(main(sys.argv[1], sys.argv[2] == "snapshot"))
print(json.dumps({"ms": seconds * 1e3, "mb": status("VmHWM") - before,
                  "events": events, "head": head}))
"""


async def build(place: str, events: int, tail: int) -> None:
    """A thread of so many events, with a snapshot before its last `tail`."""
    async with holdfast.connect(place) as store:
        key = holdfast.key("session")
        state = None
        some: list[NewEvent] = [NewEvent.of("session.created", {"agent": "shop"})]
        head = number = 0
        while head < events:
            while len(some) < min(1_000, events - head):
                some += turn(number).events()
                number += 1
            some, rest = some[: events - head], some[events - head :]
            head = (await store.append(key, some[:1_000], create=head == 0)).head
            some = some[1_000:] + rest
        row = await store.row(key)
        assert row is not None
        page: list[Event] = []
        async for event in store.read(key, before=events - tail + 1):
            page.append(event)
            if len(page) == 1_000:
                state, page = fold(page, state), []
        state = fold(page, state)
        lease = await store.acquire(key, "bench")
        snapshot = Snapshot(
            log=row.log,
            seq=state.head,
            version=VERSION,
            state=msgspec.Raw(msgspec.json.encode(state)),
        )
        await store.save_snapshot(key, snapshot, fence=lease)
        await store.release(lease)


def opened(place: str, way: str) -> dict[str, float]:
    """What a child reports that opened the thread."""
    child = subprocess.run(
        [sys.executable, "-c", CHILD, place, way], capture_output=True, text=True, check=False
    )
    if child.returncode:
        raise RuntimeError(child.stderr.strip().splitlines()[-1])
    report: dict[str, float] = json.loads(child.stdout)
    return report


def open_long(settings: Settings) -> Result:
    """Open a long thread from its snapshot and tail; beside it, from its first event."""
    sizes = settings.sizes
    result = Result(name="open", title=f"Open a thread of {sizes.events:,} events")
    with settings.folder() as folder:
        settings.step(f"building {sizes.events:,} events")
        place = url("sqlite", folder, "process")
        asyncio.run(build(place, sizes.events, sizes.tail))
        _measure(result, settings, place, folder)
    return result


def _measure(result: Result, settings: Settings, place: str, folder: Path) -> None:
    memory: dict[str, list[float]] = {}
    snapshot, whole = f"snapshot and {settings.sizes.tail} events", "all events, no snapshot"

    def contestant(name: str, way: str) -> float:
        report = opened(place, way)
        memory.setdefault(name, []).append(report["mb"])
        return report["ms"]

    runs = {
        snapshot: lambda: contestant(snapshot, "snapshot"),
        whole: lambda: contestant(whole, "whole"),
    }
    values, absent = race(runs, rounds=settings.rounds, step=settings.step)
    for name in runs:
        why = absent.get(name, "")
        times = values.get(name, [])
        sizes = memory.get(name, [])[-len(times) :] if times else []
        result.figures.append(Figure(name=name, unit="ms", values=times, absent=why))
        result.figures.append(Figure(name=f"{name}, memory", unit="MB", values=sizes, absent=why))
    for unit, bar, name in (("ms", 100.0, snapshot), ("MB", 50.0, f"{snapshot}, memory")):
        result.bars.append(
            Bar(name=name, way="most", bar=bar, values=result.figure(name).values, unit=unit)
        )
