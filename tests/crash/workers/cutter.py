"""Carries out one operation of the scene and kills itself at a given step of it.

A step is a change of the file system or a commit: the functions of `os` and the connections of
`sqlite3` are wrapped here, in the process that is to die, so that the product holds no hook. Runs
each operation in a fork of itself, which spares the start of an interpreter. Told by lines
`{"kind", "folder", "do", "step", "half", "opening"}`; answers with how many steps there were.
"""

from __future__ import annotations

import asyncio
import builtins
import json
import os
import signal
import sqlite3
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..places import open_at
from ..scene import OPS, Scene
from .talk import hear, say

CHANGES = ("pwrite", "write", "fsync", "ftruncate", "replace", "unlink", "rmdir", "mkdir")
WRITES = ("pwrite", "write")
COMMITS = ("COMMIT", "VACUUM", "PRAGMA wal_checkpoint")


class Steps:
    """Counts, and dies at the last one."""

    def __init__(self, last: int, half: bool) -> None:
        self.names: list[str] = []
        self.armed = False
        self._last = last
        self._half = half

    def take(self, name: str, halfway: Callable[[], object] | None = None) -> None:
        if not self.armed:
            return
        self.names.append(name)
        if len(self.names) == self._last:
            if self._half and halfway is not None:
                halfway()
            os.kill(os.getpid(), signal.SIGKILL)


def lay_traps(steps: Steps) -> None:
    for name in CHANGES:
        setattr(os, name, _trapped(steps, name, getattr(os, name)))
    _trap_opening(steps)
    _trap_commits(steps)


def _trapped(steps: Steps, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def trap(*arguments: Any, **options: Any) -> Any:
        halfway = None
        if name in WRITES:
            file, data, *rest = arguments
            halfway = lambda: real(file, memoryview(data)[: len(data) // 2], *rest)  # noqa: E731
        steps.take(name, halfway)
        return real(*arguments, **options)

    return trap


def _trap_opening(steps: Steps) -> None:
    really_open = os.open

    def open_(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & (os.O_CREAT | os.O_TRUNC):
            steps.take("open")
        return really_open(path, flags, *rest, **options)

    os.open = open_

    def write_bytes(self: Path, data: bytes) -> int:
        # As the real one does it: make the file, then fill it.
        file = os.open(self, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        written = os.write(file, data)
        os.close(file)
        return written

    Path.write_bytes = write_bytes  # type: ignore[assignment, method-assign]


def _trap_commits(steps: Steps) -> None:
    class Trapped(sqlite3.Connection):
        writes = False

        def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
            if sql.startswith("BEGIN IMMEDIATE"):
                self.writes = True
            if sql.startswith(COMMITS) and (self.writes or sql != "COMMIT"):
                self.writes = False
                steps.take(sql)
            return super().execute(sql, *rest)

    really_connect = sqlite3.connect
    sqlite3.connect = lambda *a, **o: really_connect(*a, **{"factory": Trapped, **o})


async def carry_out(told: dict[str, Any], steps: Steps) -> None:
    folder = Path(told["folder"])
    steps.armed = told["opening"]
    store = await open_at(told["kind"], folder)
    if not told["opening"]:
        scene = Scene.load(folder.parent)
        steps.armed = True
        await OPS[told["do"]](store, scene)
        steps.armed = False
    await store.aclose()


def in_a_fork(told: dict[str, Any]) -> dict[str, Any]:
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer: dict[str, Any] = {}
        steps = Steps(told["step"], told["half"])
        really_write = os.write
        try:
            lay_traps(steps)
            asyncio.run(carry_out(told, steps))
        except BaseException:
            answer["error"] = traceback.format_exc()
        really_write(write_end, json.dumps({**answer, "steps": steps.names}).encode())
        os._exit(0)
    os.close(write_end)
    with builtins.open(read_end, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    return {"killed": os.WIFSIGNALED(status), **json.loads(said or b"{}")}


if __name__ == "__main__":
    while True:
        say(**in_a_fork(hear()))
