"""Holds a lease, and tries every fenced write with it when told. `holder KIND FOLDER TTL`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from msgspec import Raw

from holdfast import HoldfastError, Lease, NewEvent, Snapshot, Store, key

from ..places import open_at
from .talk import hear, say

KEY = key("s")


def event(name: str) -> NewEvent:
    return NewEvent.of("note.made", {"late": True}, id=name)


async def attempts(store: Store, lease: Lease) -> dict[str, str]:
    """What became of each fenced write."""
    saved = Snapshot(log=lease.log, seq=1, version="late", state=Raw(b"{}"))
    calls = {
        "append": lambda: store.append(KEY, [event("late")], fence=lease),
        "append, expected": lambda: store.append(KEY, [event("late")], fence=lease, expected=3),
        "append, partly known": lambda: store.append(
            KEY, [event("first"), event("late")], fence=lease
        ),
        "renew": lambda: store.renew(lease),
        "release": lambda: store.release(lease),
        "release, head": lambda: store.release(lease, head=3),
        "put_draft": lambda: store.put_draft(KEY, "late", 0, "late", fence=lease),
        "save_snapshot": lambda: store.save_snapshot(KEY, saved, fence=lease),
        "erase": lambda: store.erase(KEY, [1], reason="late", fence=lease),
        "delete": lambda: store.delete(KEY, fence=lease),
    }
    found = {}
    for name, call in calls.items():
        try:
            found[name] = f"accepted: {await call()}"
        except HoldfastError as error:
            found[name] = type(error).__name__
    return found


async def main(kind: str, folder: str, ttl: str) -> None:
    store = await open_at(kind, Path(folder))
    lease = await store.acquire(KEY, "the frozen one", ttl=float(ttl))
    say(token=lease.token)
    while True:
        hear()
        say(attempts=await attempts(store, lease))


asyncio.run(main(*sys.argv[1:]))
