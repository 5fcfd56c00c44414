"""One of several processes that do the same at once. Told by lines: `{"do": …}`; each waits at a
gate, a file that the watcher holds locked, so that all go together."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from pathlib import Path
from typing import Any

from holdfast import HeadMoved, NewEvent, key

from ..places import open_at
from .talk import hear, say


def wait_at(gate: str) -> None:
    file = os.open(gate, os.O_RDWR)
    say(at_gate=True)
    fcntl.flock(file, fcntl.LOCK_SH)
    os.close(file)


async def open_fresh(told: dict[str, Any]) -> None:
    """Open a store that is not there yet, write to it, and close it."""
    wait_at(told["gate"])
    store = await open_at(told["kind"], Path(told["folder"]))
    event = NewEvent.of("note.made", {"by": told["me"]}, id=f"by-{told['me']}")
    done = await store.append(key("s"), [event], create=True)
    await store.aclose()
    say(seqs=done.seqs)


async def append(told: dict[str, Any]) -> None:
    """Append turns to a log for some seconds or up to a number of times."""
    store = await open_at(told["kind"], Path(told["folder"]))
    wait_at(told["gate"])
    ends = time.monotonic() + told["seconds"]
    number, times, seqs = 0, [], []
    while number < told["most"] and time.monotonic() < ends:
        number += 1
        turn = [
            NewEvent.of("note.made", {"text": "x" * 700}, id=f"{told['me']}.{number}.{part}")
            for part in range(4)
        ]
        start = time.perf_counter()
        done = await store.append(key(told["session"]), turn, create=True)
        times.append(time.perf_counter() - start)
        seqs.append(done.seqs[0])
        assert done.seqs == tuple(range(seqs[-1], seqs[-1] + 4)), done
    await store.aclose()
    say(seqs=seqs, times=times)


async def race(told: dict[str, Any]) -> None:
    """Append with `expected`, round after round, by a clock of our own."""
    store = await open_at(told["kind"], Path(told["folder"]), later=told["later"])
    say(at_gate=True)
    for number in range(told["rounds"]):
        hear()
        event = NewEvent.of("note.made", {"by": told["me"]}, id=f"{told['me']}-{number}")
        try:
            done = await store.append(key("s"), [event], expected=number, create=True)
            say(won=done.seqs)
        except HeadMoved as lost:
            say(lost=[lost.expected, lost.head])
    await store.aclose()


if __name__ == "__main__":
    while True:
        told = hear()
        try:
            asyncio.run({"open": open_fresh, "append": append, "race": race}[told["do"]](told))
        except Exception as error:
            say(error=repr(error))
