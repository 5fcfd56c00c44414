"""The port: what a store keeps and promises. One adapter per database implements it.

`holdfast.testing.StoreContract` states these promises as tests. Every method is
required; none takes a key without its tenant. All raise `InvalidValue` for what is
outside the limits and `StoreUnavailable` when the backend fails.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Raw, Struct

from ..log.catalog import Page, Parent, Pending, PendingQuery, Query, Row
from ..log.codec import Limits
from ..log.events import Appended, Event, Key, NewEvent, Scope
from ..values.records import Receipt
from ..values.stream_items import CaughtUp

Durability: TypeAlias = Literal["none", "process", "machine"]


def wall_clock() -> int:
    """UTC in ms."""
    return time.time_ns() // 1_000_000


class Lease(Struct, frozen=True, kw_only=True):
    """The right to drive a thread until `until` (ms). Handed to writes as `fence=`."""

    key: Key
    log: str
    token: int
    owner: str
    since: int
    until: int
    ttl: int
    reason: str | None = None


class Draft(Struct, frozen=True):
    """The text so far of a message in flight; `message` is the id of the event to come."""

    message: str
    text: str
    token: int


class BlobRef(Struct, frozen=True):
    """Names a blob within its session."""

    sha256: str
    size: int


class Snapshot(Struct, frozen=True, kw_only=True):
    """A fold of `log` up to `seq`, by the fold called `version`."""

    log: str
    seq: int
    version: str
    state: Raw


class Damage(Struct, frozen=True, kw_only=True):
    """One problem that `verify` found. `broken` is an event that does not follow from the events
    before it; `unlinked` is an event for which that cannot be checked."""

    problem: Literal["unreadable", "missing", "torn", "broken", "unlinked", "row", "claim"]
    detail: str
    key: Key | None = None
    seq: int | None = None
    repaired: bool = False


class StoreInfo(Struct, frozen=True, kw_only=True):
    """What a store is. `location` never holds a credential."""

    kind: str
    location: str
    durability: Durability
    schema: int
    limits: Limits
    apart: int
    encrypted: bool = False


class Store(Protocol):
    """Logs, rows, leases, drafts, blobs, claims and snapshots in one database."""

    async def append(
        self,
        key: Key,
        events: Sequence[NewEvent],
        *,
        expected: int | None = None,
        fence: Lease | None = None,
        log: str | None = None,
        create: bool = False,
    ) -> Appended:
        """Add events at the end of a log, all or none; returns when they are durable.

        Checked in this order: limits; the log exists and is the incarnation `log`
        (`SessionNotFound`, `LogReplaced`), or `create` begins it; ids already known are
        skipped and report their numbers, and if all are, that is success; not sealed
        (`SessionMoved`); `fence` is the newest lease (`LeaseLost`); the head is
        `expected` (`HeadMoved`). An id means its first content.
        """
        ...

    def read(
        self,
        key: Key,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        reverse: bool = False,
        log: str | None = None,
        inline: bool = True,
    ) -> AsyncGenerator[Event, None]:
        """The events with after < seq < before, in order of number.

        An event that does not agree with its hash, or is missing, raises `LogDamaged` with its
        number before anything behind it is given; reading on behind it works. With
        `inline=False` the data of a payload above `info().apart` bytes is
        `{"apart": {"size": …, "sha256": …}}`: fit to show, not to fold.
        """
        ...

    async def link(self, key: Key, seq: int, *, log: str | None = None) -> str | None:
        """The link of an event: 64 hexadecimal digits that bind it to all events before it. The
        newest event's link is `Row.link`. It never changes, also when data is erased. None if an
        older program wrote the event."""
        ...

    def follow(
        self, key: Key, *, after: int = 0, log: str | None = None
    ) -> AsyncGenerator[Event | CaughtUp, None]:
        """The events after a number, then one `CaughtUp`, then each new event, for ever.

        Nothing is missed or repeated, whichever process appends. Ends with
        `SessionNotFound` or `LogReplaced` when the log goes.
        """
        ...

    async def fork(self, key: Key, thread: str, *, at: int, first: NewEvent) -> None:
        """Begin `thread` in the same session: it shares events 1…at and adds `first`.

        The shared events keep number, id and time, also when the parent goes. Repeating
        the call with the same `first` is a no-op; another thread there is `SessionExists`.
        """
        ...

    async def restore(
        self, key: Key, events: AsyncIterable[Event], *, parent: Parent | None = None
    ) -> None:
        """Write a whole log, keeping numbers, ids and times; visible only when complete.

        With `parent`, the events are those after `parent.at`, and the rest is shared with
        that thread of the session.
        """
        ...

    async def erase(
        self, key: Key, seqs: Sequence[int], *, reason: str, fence: Lease | None = None
    ) -> Receipt:
        """Replace the data of events by `{"erased": reason}`, here and in all forks; the
        row is projected anew, snapshots are dropped, numbers, ids, kinds and times stay."""
        ...

    async def delete(self, target: Scope | Key, *, fence: Lease | None = None) -> Receipt:
        """Remove a session with all that it owns, or one thread. Hidden at once; what forks share
        stays until they go. Interrupted, it is finished by the next delete or purge. Deleting what
        is not there removes nothing."""
        ...

    async def row(self, key: Key) -> Row | None:
        """What lists show of a log."""
        ...

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 50) -> Page[Row]:
        """Sessions (rows of threads `main`), or with `query.session` the threads of one.

        A walk oldest first sees every row, those touched meanwhile again at its end.
        """
        ...

    async def pending(
        self, query: PendingQuery, *, cursor: str | None = None, limit: int = 50
    ) -> Page[Pending]:
        """The inbox over all sessions of a tenant, oldest first."""
        ...

    async def claim(
        self, tenant: str, name: str, owner: Scope, *, instead_of: Scope | None = None
    ) -> Scope:
        """Take a unique name for a session, or take it over from `instead_of`, and return
        the holder. The session may not exist yet."""
        ...

    async def unclaim(self, tenant: str, name: str, owner: Scope) -> None:
        """Give a name up; nothing happens when `owner` does not hold it."""
        ...

    async def claims(self, owner: Scope) -> list[str]:
        """The names that a session holds, in order."""
        ...

    async def runnable(self, tenant: str, *, agents: Sequence[str], limit: int = 100) -> list[Key]:
        """Logs of these agents that want a driver and have no live lease, longest due first."""
        ...

    async def acquire(
        self, key: Key, owner: str, *, ttl: float = 15.0, steal: str | None = None
    ) -> Lease:
        """Take the lease for `ttl` seconds, with a token above all earlier ones.

        `LeaseHeld` while another lives, unless `steal` gives a reason.
        """
        ...

    async def renew(self, lease: Lease) -> Lease:
        """Extend the lease by another `ttl`. A lease that expired can be renewed if no other driver
        took over."""
        ...

    async def release(self, lease: Lease, *, head: int | None = None) -> None:
        """Give the lease back; with `head`, only if nothing came after it (`HeadMoved`)."""
        ...

    async def put_draft(
        self, key: Key, message: str, offset: int, text: str, *, fence: Lease
    ) -> None:
        """Add a piece of a message in progress at `offset` (code points). Repeating a piece has no
        effect. `message` is the id of the event that will complete it."""
        ...

    async def drafts(self, key: Key) -> list[Draft]:
        """The drafts whose message is not in the log, each by its newest lease."""
        ...

    async def put_blob(self, scope: Scope, data: bytes, *, sha256: str | None = None) -> BlobRef:
        """Keep bytes that belong to a session; the same bytes are kept once. With `sha256` they
        are kept under that name, which is then that of what they were made from."""
        ...

    async def get_blob(self, scope: Scope, ref: BlobRef, *, checked: bool = True) -> bytes:
        """The bytes of a blob of this session (`BlobNotFound`), unless they are not what they
        were; one that was kept under another name is asked for with `checked=False`."""
        ...

    async def blobs(self, scope: Scope) -> list[BlobRef]:
        """The blobs that a session owns, in order of their hashes."""
        ...

    async def save_snapshot(self, key: Key, snapshot: Snapshot, *, fence: Lease) -> None:
        """Keep one snapshot per log and fold version, the furthest by the newest lease."""
        ...

    async def load_snapshot(self, key: Key, version: str) -> Snapshot | None:
        """The snapshot of this log by this fold version. Snapshots are disposable."""
        ...

    def verify(
        self, target: Scope | Key | None = None, *, repair: bool = False
    ) -> AsyncGenerator[Damage, None]:
        """Recompute hashes, links, numbers, rows and claims, and report what does not agree.

        `unreadable` is an event whose data are gone or differ from their hash. With
        `repair` it is replaced by an erased one, and rows are rebuilt; links stay as they are.
        """
        ...

    async def purge(self) -> Receipt:
        """Remove what deletes and erases left in free pages and logs of the backend."""
        ...

    def info(self) -> StoreInfo:
        """What this store is and holds to."""
        ...

    async def aclose(self) -> None:
        """Close what the store opened. Safe to call twice."""
        ...
