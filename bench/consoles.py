"""Consoles that are open in many browsers: the streams that each of them follows, and what they
cost the server while it answers messages."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator

from .measure import Figure, Result, race
from .served import ROOT, Line, served
from .settings import Settings
from .turns import url
from .viewers import MESSAGE, posted

OPEN = "messages a second, {} consoles open"
ALONE = "messages a second, none open"
SEEN = "watched"  # a session that each console shows


async def follow(port: int, path: str, there: asyncio.Event) -> None:
    """Read a stream to its end."""
    line = await Line.open(port)
    await line.send("GET", path, accept="text/event-stream")
    status, _ = await line.head()
    if status != 200:
        raise RuntimeError(f"a stream was answered with {status}")
    while block := await line.reader.readuntil(b"\n\n"):
        if b"event: caught_up" in block:
            there.set()


async def watch(port: int, consoles: int) -> None:
    """Open the streams of so many consoles, say so, and read them until the process is ended: each
    shows a session, with the number of pending items in the head of the page."""
    line = await Line.open(port)
    await line.ask("PUT", f"/v1/sessions/{SEEN}")
    await line.close()
    paths = ["/v1/changes", f"/v1/sessions/{SEEN}/events?after=now"] * consoles
    there = [asyncio.Event() for _ in paths]
    async with asyncio.TaskGroup() as reading:
        for path, event in zip(paths, there, strict=True):
            reading.create_task(follow(port, path, event))
        for event in there:
            await event.wait()
        print("open", flush=True)


@contextlib.contextmanager
def opened(port: int, consoles: int) -> Iterator[None]:
    """Context manager with so many consoles, in a process of their own."""
    words = [sys.executable, "-m", "bench.consoles", str(port), str(consoles)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "open\n":
                raise RuntimeError("the consoles did not open")
            yield
        finally:
            process.kill()


def throughput(settings: Settings, result: Result) -> None:
    """Add how many messages the server answers a second, with consoles open and without."""
    sizes = settings.sizes
    many = OPEN.format(sizes.consoles)

    def run() -> float:
        path = f"{MESSAGE}?wait=true"
        return asyncio.run(posted(port, path, sizes.together, 3 * sizes.posts))

    def run_open() -> float:
        with opened(port, sizes.consoles):
            return run()

    with settings.folder() as folder, served("ours", url("sqlite", folder)) as (port, _):
        runs = {many: run_open, ALONE: run}
        values, absent = race(runs, rounds=settings.rounds, step=settings.step)
    note = f"{sizes.together} sessions at once, each message with its answer"
    for name in (many, ALONE):
        each, why = values.get(name, []), absent.get(name, "")
        result.figures.append(Figure(name=name, unit="/s", values=each, absent=why, note=note))
    result.compare(many, ALONE, "least", 0.95)


if __name__ == "__main__":
    asyncio.run(watch(int(sys.argv[1]), int(sys.argv[2])))
