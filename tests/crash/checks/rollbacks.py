"""A power cut takes back what the index of a file store knew, and leaves the files: the index of
any earlier moment, or none, with the files of a later one holds all that was acknowledged.

A moment is the time around a commit: the files are ready and nothing was removed yet, whether or
not the index was told, or all is done.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from holdfast.stores.file.payloads import FilePayloads

from ..outcome import Outcome, Tick, quiet
from ..places import PLACES, open_at
from ..world import Op, World, after, perform
from .traces import judge

LAST = 3
INDEX = ("index.db", "index.db-wal")
PASSING = shutil.ignore_patterns("*-shm", "*.lock")


def _append(session: str, thread: str, count: int, prefix: str, size: str = "s") -> Op:
    ids = [f"{prefix}-{n}-{size}" for n in range(count)]
    return Op(do="append", session=session, thread=thread, ids=ids)


# Forks end in the midst of an append, of a log's first one and of a later one; what they share
# is trimmed twice; large payloads are shared and trimmed; names are used again.
STORY = (
    Op(do="create", session="a", ids=[f"1-{n}-{size}" for n, size in enumerate("ssslsl")]),
    _append("a", "main", 4, "2"),
    Op(do="fork", session="a", at=8, to="late", ids=["3-0-s"]),
    Op(do="fork", session="a", at=4, to="early", ids=["4-0-s"]),
    Op(do="erase", session="a", ids=["1-1-s", "2-0-s"]),
    Op(do="blob", session="a", name="5-s"),
    Op(do="claim", session="a", name="6-s"),
    Op(do="delete thread", session="a"),
    _append("a", "early", 2, "7"),
    Op(do="delete thread", session="a", thread="late"),
    Op(do="restore", session="b", ids=["8-0-s", "8-1-s", "8-2-s"]),
    Op(do="blob", session="b", name="9-s"),
    Op(do="fork", session="b", at=2, to="fork", ids=["10-0-s"]),
    Op(do="delete", session="b"),
    Op(do="restore", session="b", ids=["11-0-s", "11-1-s"]),
    Op(do="purge", session="a"),
    _append("a", "early", 3, "12"),
)


class Moment(NamedTuple):
    """A copy of the folder, what was acknowledged and under way, how many commits the index has
    seen, how many of them no power cut takes back, and whether the next is about to come."""

    folder: Path
    world: World
    under_way: list[Op]
    commits: int
    safe: int
    ready: bool


class Witness:
    """Copies the folder around each commit."""

    def __init__(self, store: Path, to: Path) -> None:
        self.moments: list[Moment] = []
        self.world: World = {}
        self.under_way: list[Op] = []
        self._store = store
        self._to = to
        self._commits = 0
        self._safe = 0

    def copy(self, *, ready: bool) -> None:
        folder = self._to / str(len(self.moments))
        shutil.copytree(self._store, folder / PLACES["file"], ignore=PASSING)
        world, under_way = dict(self.world), list(self.under_way)
        self.moments.append(Moment(folder, world, under_way, self._commits, self._safe, ready))

    @contextmanager
    def watching(self) -> Iterator[None]:
        real_committing, real_committed = FilePayloads.committing, FilePayloads.committed
        real_fsync = os.fsync

        def committing(payloads: FilePayloads, conn: sqlite3.Connection) -> None:
            real_committing(payloads, conn)
            self.copy(ready=True)

        def committed(payloads: FilePayloads) -> None:
            real_committed(payloads)
            self._commits += 1
            self.copy(ready=False)

        def fsync(file: int) -> None:
            real_fsync(file)
            if os.path.samestat(os.fstat(file), os.stat(self._store / "index.db-wal")):
                self._safe = self._commits

        with (
            patch.multiple(FilePayloads, committing=committing, committed=committed),
            patch("os.fsync", fsync),
        ):
            yield


def rollbacks(folder: Path, *, every: int = 1, tick: Tick = quiet) -> Outcome:
    """Put the index of every earlier moment to the files of each; or of the last few, and of
    every `every`-th before."""
    outcome = Outcome()
    moments = asyncio.run(_tell(folder))
    indexes = {moment.commits: moment.folder for moment in moments}
    for number, moment in enumerate(moments):
        tick(number, len(moments))
        # The index may also know of the commit that the files were made ready for.
        upto = moment.commits + moment.ready
        earlier = [commits for commits in indexes if moment.safe <= commits <= upto]
        for commits in (None, *earlier[number % every : -LAST : every], *earlier[-LAST:]):
            work = _joined(folder / "work", moment, None if commits is None else indexes[commits])
            known = "nothing" if commits is None else f"{commits} of {moment.commits} commits"
            when = f"moment {number} ({moment.under_way}), the index knows {known}"
            world, under_way = dict(moment.world), moment.under_way
            asyncio.run(judge("file", work, world, under_way, outcome, when))
            outcome.counts["indexes taken back"] += 1
    return outcome


async def _tell(folder: Path) -> list[Moment]:
    """Let the story happen; its moments."""
    place = folder / "told"
    place.mkdir()
    store = await open_at("file", place)
    witness = Witness(place / PLACES["file"], folder / "moments")
    with witness.watching():
        for op in STORY:
            witness.under_way = [op]
            await perform(store, witness.world, op)
            witness.world[op.session] = after(witness.world, op)
    await store.aclose()
    return witness.moments


def _joined(to: Path, moment: Moment, index: Path | None) -> Path:
    """The files of a moment with an index of another, as a power cut leaves them."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(moment.folder, to)
    for name in INDEX:
        (to / PLACES["file"] / name).unlink(missing_ok=True)
        if index is not None and (index / PLACES["file"] / name).exists():
            shutil.copyfile(index / PLACES["file"] / name, to / PLACES["file"] / name)
    return to
