"""Changes a store and keeps the books over its own calls of `os`: which files and folders have
changes that were not fsynced when an operation is done. `audited KIND FOLDER COUNT`.

What SQLite does below Python cannot be seen from here; of its writer the settings are reported.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import sys
from pathlib import Path
from typing import Any

from ..places import open_at
from ..world import World, after, invent, perform
from .talk import hear, say

LOGS = (".jsonl", ".jsonl.new")  # a log, and one that gets its name when it is whole

unsafe: set[str] = set()
paths: dict[int, str] = {}
connections: list[sqlite3.Connection] = []
fsyncs: list[str] = []


def keep_books() -> None:
    real_open, real_close, real_pwrite, real_fsync = os.open, os.close, os.pwrite, os.fsync
    real_write, real_replace, real_connect = os.write, os.replace, sqlite3.connect

    def open_(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        made = bool(flags & os.O_CREAT) and not os.path.exists(path)
        file = real_open(path, flags, *rest, **options)
        paths[file] = os.fspath(path)
        if made and paths[file].endswith(LOGS):
            unsafe.add(os.path.dirname(paths[file]))
        return file

    def close(file: int) -> None:
        paths.pop(file, None)
        real_close(file)

    def pwrite(file: int, *rest: Any) -> int:
        if paths[file].endswith(LOGS):
            unsafe.add(paths[file])
        return real_pwrite(file, *rest)

    def write(file: int, data: Any) -> int:
        if paths.get(file, "").endswith(LOGS):
            unsafe.add(paths[file])
        return real_write(file, data)

    def replace(old: Any, new: Any) -> None:
        real_replace(old, new)
        if os.fspath(new).endswith(LOGS):
            unsafe.add(os.path.dirname(new))
            if os.fspath(old) in unsafe:
                unsafe.remove(os.fspath(old))
                unsafe.add(os.fspath(new))

    def fsync(file: int) -> None:
        real_fsync(file)
        path = paths.get(file, "")
        if path.endswith(LOGS):
            fsyncs.append(path)
        unsafe.discard(path)

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connections.append(real_connect(*arguments, **options))
        return connections[-1]

    for name, kept in (
        ("open", open_),
        ("close", close),
        ("pwrite", pwrite),
        ("write", write),
        ("replace", replace),
        ("fsync", fsync),
    ):
        setattr(os, name, kept)
    sqlite3.connect = connect  # type: ignore[assignment]


async def main(kind: str, folder: str, count: str) -> None:
    keep_books()
    world: World = {}
    found: list[str] = []
    store = await open_at(kind, Path(folder))
    writer = connections[-1]
    (synchronous,) = writer.execute("PRAGMA synchronous").fetchone()
    (journal,) = writer.execute("PRAGMA journal_mode").fetchone()
    for number in range(int(count)):
        op = invent(random.Random(number), world, str(number), lasting=True)
        await perform(store, world, op)
        found += [f"{path} at {number}" for path in sorted(unsafe)]
        world[op.session] = after(world, op)
    await store.aclose()
    say(
        acknowledged=int(count),
        unsafe=found,
        fsyncs=len(fsyncs),
        synchronous=synchronous,
        journal=journal,
    )
    hear()


asyncio.run(main(*sys.argv[1:]))
