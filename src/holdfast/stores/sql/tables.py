"""`LogTables`: the interface to the tables of an SQL database, used by the operations that the
SQLite and PostgreSQL stores share.

A `LogTables` represents one transaction. Its methods are coroutines, because they wait for a
database server. With SQLite the methods never wait, and `completed` turns an operation on them into
a plain function.
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
Segment = tuple[int, int, int]  # a log, and the range of events that it stores: after < seq <= upto


class LogEntry(Protocol):
    """A row of the table `logs`. The log shares the events up to number `shared` with the log
    `base`."""

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
    """The hash and the link that are stored with an event."""

    hash: bytes
    link: bytes | None


class LogTables(Protocol[E]):
    """Reads and writes the tables of a store within one transaction."""

    @property
    def project(self) -> Project: ...

    @property
    def lossy(self) -> bool:
        """Whether this store replaces lost events with placeholders."""
        ...

    async def now(self) -> int:
        """Return the current time in ms."""
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
        """Return the log with this id, in any state. The log must exist."""
        ...

    async def state(self, id: int, lock: Lock = "") -> int | None:
        """Return the state of a log, locked until the transaction ends; None if it does not
        exist."""
        ...

    async def segments(self, entry: E) -> list[Segment]:
        """Return which logs store the events of this log, as (log, after, upto), oldest first."""
        ...

    async def begin(
        self, row: Row, *, base: int | None, shared: int, state: int, until: int = 0
    ) -> E | None:
        """Create an empty log; return None if its key is taken."""
        ...

    async def save_row(self, id: int, old: Row | None, new: Row) -> None:
        """Replace the row `old` with `new`. `old` is None if the log is not in the indexes yet."""
        ...

    # Events

    async def known_ids(self, entry: E, ids: Sequence[str]) -> dict[str, int]:
        """Return the numbers of the events with these ids that are in the log or shared with it."""
        ...

    async def kept(self, log: int, seq: int) -> bytes | None:
        """Return the bytes with the link of an event that this log stores; None if it has no
        link."""
        ...

    async def write(self, entry: E, plan: Extension) -> None:
        """Write new events, and the log's row after these events."""
        ...

    async def events(self, key: Key, log: int, after: int, upto: int) -> list[StoredEvent]:
        """Return some of the events that a log stores, in order of number. `key` is used in error
        messages."""
        ...

    async def hashes(self, log: int, seqs: Sequence[int]) -> list[tuple[Any, ...]]:
        """Return the number, id, kind, version, hash and link of these events."""
        ...

    async def replace(self, log: int, data: Raw, kept: dict[int, KeptHash]) -> None:
        """Replace the data of some events, together with the hash and link stored for each."""
        ...

    async def erasing(self, parts: dict[int, list[int]], reason: str) -> None:
        """Prepare the erasure of events, given as numbers by log, so that a crash cannot leave only
        some of them erased."""
        ...

    # Restores

    async def restoring(self, log: str) -> E:
        """Return the log of a restore in progress, given its incarnation. Raises `StoreUnavailable`
        if it was discarded."""
        ...

    async def write_restored(self, entry: E, plan: Extension, until: int) -> None:
        """Write the next events of a restore. The restore counts as interrupted after `until`."""
        ...

    async def publish(self, entry: E, key: Key) -> None:
        """Assign the key to a restored log, and add it to the indexes."""
        ...

    # Snapshots, lists and claims

    async def drop_snapshots(self, log: int, *, forks: bool) -> int:
        """Drop the snapshots of a log, and with `forks` of all its forks. Returns the number of
        dropped snapshots."""
        ...

    async def has_terms(self, id: int, row: Row) -> bool:
        """Return whether the entries of a log in the table `terms` match its row."""
        ...

    async def pending_ids(self, id: int) -> set[str]:
        """Return the ids of a log's pending items that are listed in the inbox."""
        ...

    async def claimed(self, tenant: str, name: str) -> Scope | None:
        """Return the session that holds a name; None if it is not claimed."""
        ...


def completed(job: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Turn an operation on tables that never wait into a plain function, without `await`."""

    @wraps(job)
    def call(*args: P.args, **options: P.kwargs) -> T:
        running = job(*args, **options)
        try:
            running.send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        raise AssertionError(f"{job.__name__} must not wait")

    return call
