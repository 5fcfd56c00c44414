"""What the tests of damage share: a folder to damage, the ways to do it, and short reads."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from holdfast import Damage, Event, Key, LogDamaged, NewEvent, Row, Store, key
from holdfast.stores.file import FileStore

KEY = key("s")
OTHER = key("other")
COUNT = 5  # events in the log of KEY

Spoil = Callable[[Path, int], None]


def note(n: object, **rest: Any) -> NewEvent:
    return NewEvent.of("note.made", {"n": n}, **{"id": f"note-{n}", **rest})


async def read_all(store: Store, key: Key = KEY, **bounds: Any) -> list[Event]:
    return [event async for event in store.read(key, **bounds)]


async def seqs(store: Store, key: Key = KEY) -> list[int]:
    return [event.seq for event in await read_all(store, key)]


async def row_of(store: Store, key: Key = KEY) -> Row:
    row = await store.row(key)
    assert row is not None
    return row


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[FileStore, None]:
    store = await FileStore.open(folder, durability="process")
    try:
        yield store
    finally:
        await store.aclose()


async def prepared(folder: Path) -> dict[Key, Path]:
    """A folder with two logs, closed in order; their files."""
    async with opened(folder) as store:
        await store.append(KEY, [note(n) for n in range(1, COUNT + 1)], create=True)
        await store.append(OTHER, [note(n) for n in range(1, 4)], create=True)
        return {one: await log_file(store, folder, one) for one in (KEY, OTHER)}


async def log_file(store: Store, folder: Path, key: Key) -> Path:
    row = await row_of(store, key)
    return folder / "logs" / row.log[-2:] / f"{row.log}.jsonl"


def forget_index(folder: Path) -> None:
    for path in folder.glob("index.db*"):
        path.unlink()


def only(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


async def damages(store: Store, *, repair: bool = False) -> list[Damage]:
    return [damage async for damage in store.verify(repair=repair)]


async def readable(store: Store, key: Key = KEY) -> tuple[list[Event], list[int]]:
    """All events of a log that can be read, and the numbers of the others."""
    events: list[Event] = []
    lost: list[int] = []
    after = 0
    while True:
        try:
            async for event in store.read(key, after=after):
                events.append(event)
                after = event.seq
        except LogDamaged as error:
            if (error.session, error.thread) != (key.session, key.thread) or error.seq <= after:
                raise  # it names something else
            after = error.seq
            lost.append(after)
        else:
            return events, lost


async def check_other(store: Store) -> None:
    """The log beside the damaged one is whole and goes on."""
    events = await read_all(store, OTHER)
    assert [event.json() for event in events] == [{"n": n} for n in range(1, len(events) + 1)]
    done = await store.append(OTHER, [note(len(events) + 1)])
    assert done.seqs == (len(events) + 1,)


async def check_goes_on(store: Store, head: int, key: Key = KEY) -> None:
    """The log takes events behind `head`, and reads whole and densely."""
    assert (await store.append(key, [note("next"), note("last")])).seqs == (head + 1, head + 2)
    events = await read_all(store, key)
    assert [event.seq for event in events] == list(range(1, head + 3))
    assert [event.json() for event in events[-2:]] == [{"n": "next"}, {"n": "last"}]


# Ways to damage the line of an event


def edit(path: Path, seq: int, change: Callable[[bytes], bytes]) -> None:
    """Change the line of event `seq`, its line end included, in a log that is no fork."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[seq] = change(lines[seq])
    path.write_bytes(b"".join(lines))


def swapped(old: bytes, new: bytes) -> Spoil:
    def spoil(path: Path, seq: int) -> None:
        def change(line: bytes) -> bytes:
            assert line.count(old) == 1, line
            return line.replace(old, new)

        edit(path, seq, change)

    return spoil


def cut_out(path: Path, seq: int) -> None:
    edit(path, seq, lambda line: b"")


def zeroed(path: Path, seq: int) -> None:
    edit(path, seq, lambda line: line[:20] + bytes(30) + line[50:])


def zeroed_whole(path: Path, seq: int) -> None:
    edit(path, seq, lambda line: bytes(len(line)))


def joined_to_next(by: bytes) -> Spoil:
    return lambda path, seq: edit(path, seq, lambda line: line[:-1] + by)


def split_in_two(path: Path, seq: int) -> None:
    edit(path, seq, lambda line: line[:40] + b"\n" + line[41:])


def not_text(path: Path, seq: int) -> None:
    edit(path, seq, lambda line: line[:10] + b"\xff\xfe" + line[12:])


def doubled(path: Path, seq: int) -> None:
    edit(path, seq, lambda line: line + line)
