"""The tables of a store in an SQL database, as used by the shared operations.

A `LogTables` represents one transaction. Its methods are coroutines, because they wait for a
database server. With SQLite the methods never wait, and `completed` runs an operation on them as a
plain function.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, Literal, NamedTuple, ParamSpec, Protocol, TypeVar

from msgspec import Raw

from ...log.catalog import Project, Row
from ...log.events import Key, Scope
from ..rules import Extension, LeaseState
from ..verify import StoredEvent

P = ParamSpec("P")
T = TypeVar("T")

# The states of a log.
LIVE, RESTORING, DEAD = 0, 1, 2

Lock = Literal["", "FOR SHARE", "FOR UPDATE"]  # ignored by SQLite, which has one writer
Segment = tuple[int, int, int]  # a log, and the numbers that it holds: after … up to …


class LogEntry(Protocol):
    """A log as stored in the table `logs`. The log shares the events up to `shared` with `base`."""

    @property
    def id(self) -> int: ...
    @property
    def base(self) -> int | None: ...
    @property
    def shared(self) -> int: ...
    @property
    def lease(self) -> LeaseState: ...
    @property
    def row(self) -> Row: ...


E = TypeVar("E", bound=LogEntry)


class KeptHash(NamedTuple):
    """The values stored with an event: its hash and its link."""

    hash: bytes
    link: bytes | None


class LogTables(Protocol[E]):
    """The tables within one transaction."""

    @property
    def project(self) -> Project: ...

    @property
    def lossy(self) -> bool:
        """Whether a placeholder can replace a lost event."""
        ...

    async def now(self) -> int:
        """Return the time in ms."""
        ...

    # Logs

    async def lookup(self, key: Key) -> E | None:
        """Return the log with this key, if it exists."""
        ...

    async def locked(self, key: Key) -> E:
        """Return the log with this key, locked until the transaction ends. Raises `SessionNotFound`
        if the log does not exist."""
        ...

    async def entry(self, id: int) -> E:
        """Return a log that exists, in any state."""
        ...

    async def state(self, id: int, lock: Lock = "") -> int | None:
        """Return the state of a log, locked until the transaction ends; None if it does not
        exist."""
        ...

    async def segments(self, entry: E) -> list[Segment]:
        """Return which log stores which event numbers, oldest first."""
        ...

    async def begin(
        self, row: Row, *, base: int | None, shared: int, state: int, until: int = 0
    ) -> E | None:
        """Create an empty log; return None if its key is taken."""
        ...

    async def save_row(self, id: int, old: Row | None, new: Row) -> None:
        """Replace the row `old`, which is None for a log that is not listed yet."""
        ...

    # Events

    async def known_ids(self, entry: E, ids: Sequence[str]) -> dict[str, int]:
        """Return the numbers of the given ids that are in the log, including shared events."""
        ...

    async def kept(self, log: int, seq: int) -> bytes | None:
        """Return the stored link of an event of this log; None if it does not exist."""
        ...

    async def write(self, entry: E, plan: Extension) -> None:
        """Write new events, and the row after them."""
        ...

    async def events(self, key: Key, log: int, after: int, upto: int) -> list[StoredEvent]:
        """Return some of the events that a log stores, in order of number. `key` is used in error
        messages."""
        ...

    async def hashes(self, log: int, seqs: Sequence[int]) -> list[tuple[Any, ...]]:
        """Return the number, id, kind, version, hash and link of some events."""
        ...

    async def replace(self, log: int, data: Raw, kept: dict[int, KeptHash]) -> None:
        """Replace the data of some events, together with the hash and link stored for each."""
        ...

    async def erasing(self, parts: dict[int, list[int]], reason: str) -> None:
        """Prepare to erase the events with these numbers from these logs, all or none."""
        ...

    # Restores

    async def restoring(self, log: str) -> E:
        """Return the log that a restore writes to, by its incarnation."""
        ...

    async def write_restored(self, entry: E, plan: Extension, until: int) -> None:
        """Write the next events of a restore. The restore counts as interrupted after `until`."""
        ...

    async def publish(self, entry: E, key: Key) -> None:
        """Assign the key to a restored log, and list it."""
        ...

    # Snapshots, lists and claims

    async def drop_snapshots(self, log: int, *, forks: bool) -> int:
        """Drop the snapshots of a log, and with `forks` of all its forks. Returns the number of
        dropped snapshots."""
        ...

    async def has_terms(self, id: int, row: Row) -> bool:
        """Return whether the terms that lists search match the row."""
        ...

    async def pending_ids(self, id: int) -> set[str]:
        """Return the ids of a log's pending items that are listed in the inbox."""
        ...

    async def claimed(self, tenant: str, name: str) -> Scope | None:
        """Return the holder of a name."""
        ...


def completed(job: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return a plain function for an operation on tables that never wait."""

    @wraps(job)
    def call(*args: P.args, **options: P.kwargs) -> T:
        running = job(*args, **options)
        try:
            running.send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        raise AssertionError(f"{job.__name__} waits")

    return call
