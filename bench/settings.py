"""How much is measured, and where."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct, field

from .servers import Servers


class Sizes(Struct, frozen=True, kw_only=True):
    """The counts of every workload."""

    turns: int = 1_000  # of one session, a round
    together: int = 32  # sessions at once
    turns_together: int = 60  # of each of them, a round
    turns_adk: int = 60  # of peers that take tens of milliseconds a turn, a round
    turns_langgraph: int = 300  # of a peer that rewrites its history, a round
    early: int = 200
    late: int = 20_000
    late_langgraph: int = 2_000
    window: int = 500
    window_langgraph: int = 25
    counted: int = 64  # appends whose rows and pages are counted
    events: int = 100_000  # of the thread that is opened
    tail: int = 511  # of them after the snapshot, the most that there can be
    entries: int = 16_000  # of the log that is loaded
    entries_shared: int = 2_000  # of the one whose end is read on a database
    tails: int = 200  # reads of the end, a round
    few: int = 1_000  # sessions in the small catalog
    many: int = 100_000  # and in the large one
    queries: int = 30  # of each sort, a round
    rounds: int = 9
    turns_mongodb: int = 400  # of one session there, a round
    late_mongodb: int = 5_000  # which has no way to write without waiting for the disk
    turns_pushed: int = 200  # of a peer that reads all that it has for each turn, a round
    shorter: int = 500  # turns that a session has when such a peer is timed
    longer: int = 2_000
    window_pushed: int = 25
    turns_harness: int = 150  # of one session, a round; fewer than the window of a model has
    late_harness: int = 2_000
    window_harness: int = 100
    left: int = 1_000  # sessions that nobody drives, to be taken up
    streams: int = 200  # sessions that stream at once
    chunks: int = 200  # of each of them
    spacing: float = 0.02  # seconds between two
    answer: int = 50_000  # bytes of the answer whose writes are counted
    speaking: float = 4.0  # seconds that it takes
    deltas: int = 8_000  # pieces of an answer
    threads: int = 1_000  # of one session
    forked: int = 20_000  # turns of the thread that is forked, of five events each
    viewers: int = 500  # of a server
    viewed: int = 50  # sessions that they watch
    stalled: int = 50  # readers that do not read
    large: int = 100  # messages that those have missed
    posts: int = 40  # messages of each session, a round; fewer than may wait in a queue
    turns_adapter: int = 500  # of one session of an adapter, a round
    turns_adapter_together: int = 100  # of each of them, beside a peer that rewrites its history
    late_adapter: int = 2_000
    window_adapter: int = 50
    hops: int = 2_000  # calls of a store from another event loop, a round
    served: int = 64  # sessions of all processes that serve one database together
    sent: int = 40  # messages of each of them, a round
    searched: int = 20_000  # sessions that are searched
    turns_searched: int = 10  # of each session between two looks at the clock
    appending: float = 8.0  # seconds of such turns, while the index is updated, a round
    idle: float = 10.0  # seconds for which an idle worker is watched
    browsed: int = 20_000  # events of a session that is shown in a browser
    consoles: int = 50  # that are open in browsers


QUICK = Sizes(
    turns=200,
    turns_together=10,
    turns_adk=12,
    turns_langgraph=50,
    late=2_000,
    late_langgraph=400,
    window=100,
    window_langgraph=10,
    counted=32,
    events=10_000,
    entries=4_000,
    entries_shared=1_000,
    tails=50,
    many=10_000,
    queries=10,
    rounds=3,
    turns_mongodb=50,
    late_mongodb=1_000,
    turns_pushed=50,
    shorter=100,
    longer=400,
    window_pushed=10,
    turns_harness=50,
    left=200,
    late_harness=500,
    chunks=50,
    speaking=1.0,
    threads=200,
    forked=1_000,
    viewers=50,
    viewed=5,
    stalled=10,
    large=20,
    posts=10,
    turns_adapter=100,
    turns_adapter_together=10,
    late_adapter=300,
    window_adapter=20,
    hops=200,
    served=16,
    sent=5,
    searched=500,
    idle=2.0,
    appending=3.0,
    browsed=4_000,
    consoles=10,
)


class Settings(Struct, kw_only=True):
    """One run of the benchmark. `step` is told of each thing about to be measured."""

    sizes: Sizes
    rounds: int
    peers: bool = True
    step: Callable[[str], None] = lambda what: None
    place: str | None = None
    before: Path | None = None  # a checkout of an earlier commit, as a contestant
    servers: Servers = field(default_factory=Servers)

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A fresh folder on a real disk (`TMPDIR`), gone afterwards."""
        path = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=self.place))
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def file_system(path: str) -> str:
    """The type of the file system that holds `path`, or "" where it cannot be told."""
    try:
        with open("/proc/mounts", encoding="utf-8") as file:
            mounts = [line.split()[1:3] for line in file]
    except OSError:
        return ""
    here = os.path.realpath(path)
    over = [(point, kind) for point, kind in mounts if _holds(point, here)]
    return max(over, key=lambda mount: len(mount[0]))[1] if over else ""


def _holds(point: str, path: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")
