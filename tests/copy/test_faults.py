"""What goes wrong under a copy: damage, a source that changes, a process that is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import Event, Key, LogDamaged, Scope, Store, StoreError, connect, key
from holdfast.stores.copy import copy_session
from holdfast.stores.memory import MemoryStore
from tests import forks

from .conftest import place
from .scene import (
    PAIRS,
    SHOP,
    answered,
    content,
    events_of,
    forked,
    new,
    rows_of,
    said,
    shop,
    sound,
    waiting,
)

MAIN = key(SHOP.session)
KEPT = [pair for pair in PAIRS if "memory" not in pair]  # what outlives a process


def forge(folder: Path, old: bytes, change: bytes) -> None:
    """Change bytes wherever they stand in the files of a store that nobody has open."""
    forged = 0
    for path in folder.rglob("*"):
        if path.is_file() and old in (data := path.read_bytes()):
            path.write_bytes(data.replace(old, change))
            forged += 1
    assert forged


@pytest.mark.parametrize("kind", ["file", "sqlite"])
@pytest.mark.parametrize("move", [False, True])
async def test_a_damaged_source_is_reported_and_nothing_is_written(
    tmp_path: Path, target: Store, kind: str, move: bool
) -> None:
    url = place(tmp_path, kind, "source")
    async with connect(url) as source:
        await shop(source)
        await source.append(MAIN, [answered("a marked text")])
    forge(tmp_path / "source", b"a marked text", b"a forged text")
    async with connect(url) as source:
        with pytest.raises(LogDamaged) as found:
            await copy_session(source, target, SHOP, move=move)
        assert (found.value.thread, found.value.seq) == ("main", 8)
        assert all(row.sealed is None for row in (await rows_of(source)).values())
    assert (await rows_of(target), await target.claims(SHOP)) == ({}, [])


async def test_an_erasure_under_the_copy_is_noticed(
    target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = MemoryStore()
    await shop(source)
    read = source.read

    async def read_changed(key: Key, *, after: int = 0, **rest: Any) -> AsyncGenerator[Event, None]:
        rows = await rows_of(target)
        if "main" in rows and key.thread == "what-if" and after == 4:
            await source.erase(key, [6], reason="now")
        async for event in read(key, after=after, **rest):
            yield event

    monkeypatch.setattr(source, "read", read_changed)
    with pytest.raises(StoreError, match="changed while it was copied"):
        await copy_session(source, target, SHOP)
    assert set(await rows_of(target)) == {"main", "side"}
    assert (await copy_session(source, target, SHOP)).status == "copied"
    assert await content(target) == await content(source)


async def test_a_target_that_keeps_something_else_is_noticed(
    source: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop(source)
    target = MemoryStore()
    restore = target.restore

    async def forgetful(key: Key, events: Any, **rest: Any) -> None:
        await restore(key, events, **rest)
        log = target._logs[key]
        log.events[-1] = replace(log.events[-1], data=answered("another").data)

    monkeypatch.setattr(target, "restore", forgetful)
    with pytest.raises(StoreError, match="differs from the source after the copy"):
        await copy_session(source, target, SHOP)


async def test_a_source_that_changes_behind_the_copy_is_noticed(
    target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = MemoryStore()
    await shop(source)
    restore = target.restore

    async def erasing(key: Key, events: Any, **rest: Any) -> None:
        await restore(key, events, **rest)
        await source.erase(key, [1], reason="now")

    monkeypatch.setattr(target, "restore", erasing)
    with pytest.raises(StoreError, match="changed while it was copied: delete the copy"):
        await copy_session(source, target, SHOP)


async def test_a_target_that_lists_it_otherwise_is_noticed(source: Store) -> None:
    await shop(source)
    with pytest.raises(StoreError, match="has a row that differs in source and target"):
        await copy_session(source, MemoryStore(project=lambda event: ()), SHOP)


async def test_a_session_that_is_written_to_gives_a_prefix(source: Store, target: Store) -> None:
    events = [answered(str(n)) for n in range(40)]
    await source.append(MAIN, [new("session.created"), *events], create=True)
    for n in range(3):
        at = 10 * (n + 1)
        await source.fork(MAIN, f"f{n}", at=at, first=forked("main", at))
    stop = asyncio.Event()

    async def write() -> int:
        count = 0
        while not stop.is_set():
            for thread in ("main", "f1"):
                await source.append(Key("main", SHOP.session, thread), [answered(str(count))])
            count += 1
            await asyncio.sleep(0)
        return count

    writing = asyncio.create_task(write())
    await asyncio.sleep(0.01)
    try:
        assert (await copy_session(source, target, SHOP)).status == "copied"
    finally:
        stop.set()
        assert await writing
    theirs, ours = await content(source), await content(target)
    for thread, copied in ours["events"].items():
        assert copied == theirs["events"][thread][: len(copied)]
    assert await sound(target)


async def test_two_copies_at_once_are_one(source: Store, target: Store) -> None:
    await shop(source)
    await waiting(source)
    for scope in (SHOP, Scope("main", "waits")):
        done = await asyncio.gather(*(copy_session(source, target, scope) for _ in range(4)))
        assert {result.status for result in done} <= {"copied", "same"}
    assert await content(target) == await content(source)
    assert len(await events_of(target, key("waits"))) == 12
    assert await sound(target)


COPY = """
import asyncio, os, sys
from holdfast import Scope, connect
from holdfast.stores.copy import copy_session

async def main(source, target, move, after):
    count = 0
    def progress(events):
        nonlocal count
        count += events
        if count == int(after):
            os.write(1, b"!")
            os.read(0, 1)  # the one who kills us never answers
    async with connect(source) as a, connect(target) as b:
        await copy_session(a, b, Scope("main", "big"), move=move == "move", progress=progress)

asyncio.run(main(*sys.argv[1:]))
"""


def killed(*arguments: str) -> None:
    """Run a copy that is killed with SIGKILL after so many events."""
    words = ("-c", COPY, *arguments)
    with forks.popen(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"!"
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("mode", ["copy", "move"])
@pytest.mark.parametrize(("old", "new"), KEPT)
async def test_a_killed_copy_is_finished_by_the_next(
    tmp_path: Path, old: str, new: str, mode: str
) -> None:
    there, here = place(tmp_path, old, "source"), place(tmp_path, new, "target")
    big = Scope("main", "big")
    main, gone = key("big"), Key("main", "big", "gone")
    async with connect(there) as source:
        await source.append(gone, [answered(str(n)) for n in range(9)], create=True)
        await source.fork(gone, "orphan", at=7, first=forked("gone", 7))
        await source.delete(gone)
        events = [answered(str(n) + "x" * 20_000) for n in range(300)]
        await source.append(main, events, create=True)
        await source.fork(main, "fork", at=290, first=forked("main", 290))
        await source.put_blob(big, b"a picture")
        before = await content(source, big)
    # In the large log; in what the fork without a parent shared; in that fork's own.
    for after in (280, 304, 8):
        await asyncio.to_thread(killed, there, here, mode, str(after))
        async with connect(here) as target:
            for thread, events in (await content(target, big))["events"].items():
                if not thread.startswith("base:"):
                    assert events == before["events"][thread]
    async with connect(there) as source, connect(here) as target:
        done = await copy_session(source, target, big, move=mode == "move")
        assert done.status == ("moved" if mode == "move" else "copied")
        assert await content(target, big) == before
        assert await sound(target)


async def test_an_unanswered_message_of_a_fork_is_closed_in_it_alone(
    source: Store, target: Store
) -> None:
    await source.append(MAIN, [new("session.created", agent="a"), answered("x")], create=True)
    await source.fork(MAIN, "asked", at=2, first=forked("main", 2, agent="a"))
    await source.append(Key("main", SHOP.session, "asked"), [said("?")])
    done = await copy_session(source, target, SHOP)
    assert {thread.thread: thread.closed for thread in done.threads} == {"main": 0, "asked": 1}
    assert await target.runnable("main", agents=["a"]) == []
