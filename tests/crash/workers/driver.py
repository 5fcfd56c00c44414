"""Drives one log, round after round: takes the lease, runs what is there, and gives the lease
back only if nothing came since. `driver KIND FOLDER`."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from holdfast import HeadMoved, Lease, NewEvent, Store, key

from ..places import open_at
from .talk import hear, say

KEY = key("s")


async def drive(store: Store, lease: Lease, after: int) -> tuple[int, list[str]]:
    """Run until the log has nothing new; the last number, and the messages that were seen."""
    seen: list[str] = []
    while True:
        async for event in store.read(KEY, after=after):
            after = event.seq
            if event.kind == "message.received":
                seen.append(event.id)
        run = [NewEvent.of("run.started"), NewEvent.of("run.finished")]
        try:
            done = await store.append(KEY, run, expected=after, fence=lease)
        except HeadMoved:
            continue
        return done.head, seen


async def one_round(store: Store, after: int) -> tuple[int, list[str], int]:
    lease = await store.acquire(KEY, "driver")
    after, seen = await drive(store, lease, after)
    say(driving=True)
    await asyncio.sleep(random.uniform(0, 0.004))  # the race is anywhere in this time
    refused = 0
    while True:
        try:
            await store.release(lease, head=after)
            return after, seen, refused
        except HeadMoved:
            refused += 1
            after, more = await drive(store, lease, after)
            seen += more


async def main(kind: str, folder: str) -> None:
    store = await open_at(kind, Path(folder))
    after = 0
    while True:
        hear()
        after, seen, refused = await one_round(store, after)
        say(seen=seen, refused=refused)


asyncio.run(main(*sys.argv[1:]))
