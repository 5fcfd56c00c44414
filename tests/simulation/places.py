"""Real stores for the judges, and what goes wrong with each: servers are killed, frozen and cut
off, and disks that fill. Every fault strikes once, and is over when its function returns."""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random

from tests import servers
from tests.servers import Private, Wire

from ..crash.places import KINDS
from ..crash.places import url as local_url
from .ledger import now

SET = "mongodb of three"
PLACES = (SET, "postgres", *KINDS)
ROOM = 60_000  # bytes that a file may grow by on a disk that is almost full

Fault = Callable[[], None]


class Place:
    """The URL of a store, and the faults that strike it. `counts` says which ones did."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.faults: list[Fault] = []
        self.counts: Counter[str] = Counter()
        self.story: list[tuple[float, str]] = []
        self.random = Random()
        self.over = threading.Event()  # wakes a fault that lasts
        self.pids: Callable[[], Iterable[int]] = tuple  # of the workers

    def struck(self, what: str, times: int = 1, at: object = "") -> None:
        """Count a fault, and remember when it struck."""
        self.counts[what] += times
        self.story.append((now(), f"{times} {what} {at}".rstrip()))

    def last(self, least: float, most: float) -> None:
        """Return after a while, or when no more faults are wanted."""
        self.over.wait(self.random.uniform(least, most))

    def wait_until_healthy(self) -> None:
        """Return when the store is as it was before the first fault."""


class _Served(Place):
    """A store on servers, each behind a wire."""

    def __init__(self, url: str, members: list[Private], wires: list[Wire]) -> None:
        super().__init__(url)
        self.servers, self.wires = members, wires
        self.faults = [*[self.kill] * 2, *[self.freeze] * 2, self.cut, self.silence, self.lose]

    def choose(self) -> int:
        """The server that is struck."""
        return self.random.randrange(len(self.servers))

    def kill(self) -> None:
        """SIGKILL; a little later it is started again."""
        server = self.servers[number := self.choose()]
        server.kill()
        self.struck("server kills", at=number)
        self.last(0.2, 4.0)
        server.start()

    def freeze(self) -> None:
        """SIGSTOP, for longer or shorter than an election and a lease take."""
        server = self.servers[number := self.choose()]
        server.freeze()
        self.struck("server freezes", at=number)
        self.last(1.0, 7.0)
        server.thaw()

    def cut(self) -> None:
        """End connections, a few times."""
        for _ in range(self.random.randint(1, 4)):
            for wire in self.random.sample(self.wires, self.random.randint(1, len(self.wires))):
                self.struck("connections cut", wire.cut())
            self.last(0.05, 0.8)

    def silence(self) -> None:
        """Nothing passes, and nobody is told."""
        with self.random.choice(self.wires).silent():
            self.struck("silences")
            self.last(0.5, 4.0)

    def lose(self) -> None:
        """Requests are not delivered, or carried out and not answered."""
        wire = self.random.choice(self.wires)
        for _ in range(5):
            before = wire.cuts
            wire.lose(
                "request" if self.random.random() < 0.3 else "reply", self.random.randint(1, 9)
            )
            self.last(0.2, 0.6)
            wire.disarm()
            if wire.cuts > before:
                self.struck("requests or replies lost")
                self.struck("connections cut", wire.cuts - before)


class _ReplicaSet(_Served):
    def __init__(self, members: servers.ReplicaSet, folder: Path) -> None:
        super().__init__(members.url(folder), members.servers, members.wires)
        self._members, self._first = members, members.term()

    def choose(self) -> int:
        """The primary, most of the time."""
        primary = self._members.primary() if self.random.random() < 0.7 else None
        return super().choose() if primary is None else primary

    def wait_until_healthy(self) -> None:
        while not self._members.healthy():
            time.sleep(0.2)
        self.counts["elections"] = self._members.term() - self._first


class _Disk(Place):
    """A store in files of the workers. A limit on the size of files stands for a disk that is full,
    as in `tests.crash.workers.limited`."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(url)
        self._folder = folder
        self.faults = [self.fill]

    def fill(self) -> None:
        """No file grows beyond a size, for all workers."""
        sizes = [p.stat().st_size for p in self._folder.rglob("*") if p.is_file()]
        size = self.random.randrange(4_096, max(sizes, default=0) + ROOM)
        self._limit(size)
        self.struck("full disks", at=f"{size} bytes")
        self.last(0.2, 4.0)
        self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def wait_until_healthy(self) -> None:
        self._limit(resource.RLIM_INFINITY)


@contextlib.contextmanager
def place(kind: str, folder: Path) -> Iterator[Place]:
    """A store of this kind that belongs to the caller alone, running."""
    if kind == SET:
        with servers.replica_set() as members:
            yield _ReplicaSet(members, folder)
    elif kind in KINDS:
        (inside := folder / "store").mkdir()
        yield _Disk(local_url(kind, inside), inside)
    else:
        with servers.faulty(kind) as faulty:
            yield _Served(faulty.url(folder), [faulty.server], [faulty.wire])


def signal_pid(pid: int, what: int) -> None:
    """Send a signal to a process that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, what)
