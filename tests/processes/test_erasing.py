"""Beside a process that erases, or that was killed at it: nothing sound is taken for damaged, and
nothing that was acknowledged is lost."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import holdfast
from holdfast import NewEvent
from tests import forks
from tests.crash.children import ROOT
from tests.sessions import places

from .eraser import KEY

ERASED = 20  # events that the other process may blank


def begin(url: str, how: str) -> subprocess.Popen[str]:
    words = ("-m", "tests.processes.eraser", url, how)
    return forks.popen(*words, cwd=ROOT, stdout=subprocess.PIPE, text=True)


async def written(url: str, count: int) -> None:
    async with holdfast.connect(url) as store:
        events = [NewEvent.of("note.made", {"n": n, "text": "y" * 100}) for n in range(count)]
        await store.append(KEY, events, create=True)


@pytest.mark.parametrize("kind", ["file", "sqlite", "postgres", "mongodb"])
async def test_a_repair_beside_an_erasure_blanks_nothing_else(kind: str, tmp_path: Path) -> None:
    url = places.url(kind, tmp_path)
    await written(url, 400)
    async with holdfast.connect(url) as store:
        with begin(url, "40") as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "begun\n"
            while child.poll() is None:
                async for _ in store.verify(KEY, repair=True):
                    pass
        assert child.returncode == 0
        blank = [event.seq async for event in store.read(KEY) if "erased" in event.json()]
        assert blank == [*range(1, ERASED + 1)]
        assert [damage async for damage in store.verify()] == []


async def test_what_is_acknowledged_after_an_eraser_was_killed_is_there(tmp_path: Path) -> None:
    url = places.url("file", tmp_path)
    await written(url, 5)
    async with holdfast.connect(url) as store:
        await store.append(KEY, [NewEvent.of("note.made", id="6")])  # its file is open here
        with begin(url, "killed") as child:
            assert child.wait(60) == 9
        for id in ("7", "8"):
            await store.append(KEY, [NewEvent.of("note.made", id=id)])
    async with holdfast.connect(url) as store:
        ids = [event.id async for event in store.read(KEY, after=5)]
        assert ids == ["6", "7", "8"]
        assert [damage async for damage in store.verify()] == []
