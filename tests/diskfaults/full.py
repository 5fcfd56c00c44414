"""Appends to a store while files may not grow beyond a limit, as on a full disk.

Told the kind and the folder; says by one line of JSON what broke, or that nothing did.
"""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast import Appended, Key, NewEvent, SessionNotFound, Store, StoreUnavailable, key
from tests.crash.places import open_at

# Bytes that a file may have: from nothing at all to about as much as some of the files need.
LIMITS = (1, 4_096, 9_000, 20_000, 33_000, 50_000, 70_000, 120_000, 250_000, 400_000)
SIZES = (50, 3_000, 60_000, 200_000)  # the last is kept apart from its event

Logs = dict[Key, list[NewEvent]]


def limit(size: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))


def lift() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit(most)


async def check_held(store: Store, logs: Logs) -> None:
    """The logs hold exactly these events, densely numbered."""
    for name, events in logs.items():
        found = []
        try:
            found = [event async for event in store.read(name)]
        except SessionNotFound:
            assert not events, f"{name} is gone"
        assert [event.seq for event in found] == list(range(1, len(events) + 1)), name
        assert [(e.id, e.data) for e in found] == [(e.id, e.data) for e in events], name
        row = await store.row(name)
        assert (row.head if row else 0) == len(events), name


async def append_all(
    store: Store, wanted: Sequence[tuple[Key, list[NewEvent]]]
) -> list[Appended | BaseException]:
    """Append to several logs in one round of the loop, so that they share a transaction."""
    return await asyncio.gather(
        *(store.append(name, events, create=True) for name, events in wanted),
        return_exceptions=True,
    )


async def fill(store: Store, logs: Logs, size: int) -> int:
    """One round: appends under the limit `size`, then the same without; how many failed."""
    new = key(f"made at {size}")
    logs.setdefault(new, [])
    wanted = [
        (name, [NewEvent.of("note.made", {"text": "x" * length}) for _ in range(3)])
        for name, length in zip([*list(logs)[:3], new], SIZES, strict=True)
    ]
    limit(size)
    failed = 0
    for (name, events), done in zip(wanted, await append_all(store, wanted), strict=True):
        if isinstance(done, Appended):
            logs[name] = logs[name] + events
            continue
        assert isinstance(done, StoreUnavailable), repr(done)
        assert done.retryable
        assert done.__cause__ is not None
        failed += 1
    await check_held(store, logs)  # still under the limit
    lift()
    await check_held(store, logs)
    for (name, events), done in zip(wanted, await append_all(store, wanted), strict=True):
        assert isinstance(done, Appended), repr(done)
        if done.fresh:
            assert done.fresh == len(events)
            logs[name] = logs[name] + events
    await check_held(store, logs)
    return failed


async def refuse_removals(kind: str, folder: Path) -> int:
    """Deletes under many limits: each is done, or all is as before; how many failed."""
    failed = 0
    store = await open_at(kind, folder, durability="process")
    for size in range(0, 80_000, 4_000):
        main, fork = key(f"removed at {size}"), key(f"removed at {size}", "fork")
        events = [NewEvent.of("note.made", {"text": "y" * n}) for n in (10, 100, 70_000, 1_000)]
        await store.append(main, events, create=True)
        first = NewEvent.of("note.made", {"text": "forked"})
        await store.fork(main, "fork", at=2, first=first)
        logs = {main: events, fork: [*events[:2], first]}
        limit(size)
        try:
            await store.delete(main)
        except StoreUnavailable:
            failed += 1
        if await store.row(main) is None:
            logs[main] = []
        await check_held(store, logs)
        lift()
        assert [damage async for damage in store.verify()] == []
        await check_held(store, logs)
        await store.delete(main)
        await check_held(store, {**logs, main: []})
    await store.aclose()
    return failed


async def main(kind: str, folder: Path) -> list[int]:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    logs: Logs = {key(f"log {n}"): [] for n in range(3)}
    failed = []
    for size in LIMITS:
        store = await open_at(kind, folder, durability="process")
        failed.append(await fill(store, logs, size))
        assert [damage async for damage in store.verify()] == []
        await store.aclose()
    store = await open_at(kind, folder, durability="process")
    await check_held(store, logs)
    await store.aclose()
    assert await refuse_removals(kind, folder) > 0
    return failed


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], Path(sys.argv[2])))))
