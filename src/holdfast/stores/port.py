"""The `Store` protocol: the methods of a store, their guarantees, and the types that they use. One
adapter per database implements it.

`holdfast.testing.StoreContract` states these guarantees as tests. Every method is required, and
every key includes a tenant. All methods raise `InvalidValue` for arguments outside the limits and
`StoreUnavailable` when the backend fails.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Raw, Struct

from ..log.catalog import Page, Parent, Pending, PendingQuery, Query, Row, SearchQuery
from ..log.codec import Limits
from ..log.events import Appended, Event, Key, NewEvent, Scope, envelope
from ..values.records import Receipt
from ..values.search import IndexProgress, SearchPage
from ..values.stream_items import CaughtUp

Durability: TypeAlias = Literal["none", "process", "machine"]
Lease: TypeAlias = envelope.Lease


class Acquire(Struct, frozen=True):
    """An argument of `append`: acquire the lease in the same step, for `ttl` seconds.

    See [stores](../stores.md).
    """

    owner: str
    ttl: float = 15.0


class Draft(Struct, frozen=True):
    """The current text of a message in progress. `message` is the id of the event that will contain
    the complete message.

    See [stores](../stores.md).
    """

    message: str
    text: str
    token: int


class BlobRef(Struct, frozen=True):
    """A reference to a blob of a session: the SHA-256 that names it, and its size in bytes.

    See [stores](../stores.md).
    """

    sha256: str
    size: int


class Holder(Struct, frozen=True, kw_only=True):
    """The live lease of a log: its owner, and the times (UTC ms) at which it was acquired and at
    which it expires unless it is renewed."""

    owner: str
    since: int
    until: int


class Snapshot(Struct, frozen=True, kw_only=True):
    """The state of `log` after event `seq`, as computed by version `version` of the fold.

    See [stores](../stores.md).
    """

    log: str
    seq: int
    version: str
    state: Raw


class Damage(Struct, frozen=True, kw_only=True):
    """One problem that `verify` found. `broken` means that an event does not match the events
    before it; `unlinked` means that this cannot be checked for an event.

    See [stores](../stores.md).
    """

    problem: Literal["unreadable", "missing", "torn", "broken", "unlinked", "row", "claim"]
    detail: str
    key: Key | None = None
    seq: int | None = None
    repaired: bool = False


class StoreInfo(Struct, frozen=True, kw_only=True):
    """The properties of a store. `location` never contains a credential. `apart` is the size in
    bytes above which `read(inline=False)` omits the data of an event. `lease_with_append` says
    whether `append` takes `acquire=` and `release=`, and `acquire` takes `mark=`.

    See [stores](../stores.md).
    """

    kind: str
    location: str
    durability: Durability
    schema: int
    limits: Limits
    apart: int
    encrypted: bool = False
    lease_with_append: bool = False


class Store(Protocol):
    """A store of logs, with their rows, leases, drafts, blobs, claims and snapshots, in one
    database.

    See [stores](../stores.md).
    """

    async def append(
        self,
        key: Key,
        events: Sequence[NewEvent],
        *,
        expected: int | None = None,
        fence: Lease | None = None,
        log: str | None = None,
        create: bool = False,
        acquire: Acquire | None = None,
        release: Lease | None = None,
    ) -> Appended:
        """Append events to a log, all or none. Returns when the events are durable.

        Checks run in this order: the arguments are within the limits; the log exists and is the
        incarnation `log` (`SessionNotFound`, `LogReplaced`), or `create` is true and creates it;
        events whose id is already in the log are skipped, and their existing numbers are returned
        (if this applies to all events, the call succeeds); the log is not sealed (`SessionMoved`);
        `fence` is the newest lease (`LeaseLost`); the head is `expected` (`HeadMoved`). The content
        of a skipped event is not compared: the log keeps the first content.

        With `acquire`, the same step acquires the lease and returns it as `Appended.lease`; while
        another lease is live, nothing is written (`LeaseHeld`). If any id is already in the log,
        nothing is written and no lease is acquired: events that are not in the log get the number
        0. If all ids are in the log, `Appended.lease` is the lease that this append acquired
        earlier, if it is still the newest, so that a call whose reply was lost can be repeated.

        With `release`, which is also the fence, the same step releases the lease. If all ids are
        already in the log and this lease is still the newest, `Appended.lease` is that lease,
        because the caller still holds it.
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
        """Yield the events with after < seq < before, in order of number; with `reverse`, highest
        number first.

        A missing event, or one that does not match its hash, raises `LogDamaged` with its number
        before any later event is returned; you can continue reading after it. With `inline=False`
        the data of a payload above `info().apart` bytes is `{"apart": {"size": …, "sha256": …}}`:
        suitable for display, not for folding.
        """
        ...

    async def seqs(self, key: Key, ids: Sequence[str], *, log: str | None = None) -> dict[str, int]:
        """Return the numbers of the events with these ids, including events that the log shares.
        Ids that the log does not contain are omitted."""
        ...

    async def locate(self, tenant: str, id: str) -> list[Key]:
        """Return the logs of a tenant to which an event with this id was appended, in order of
        their keys. A fork that only shares the event is not listed while the log to which it was
        appended exists."""
        ...

    async def link(self, key: Key, seq: int, *, log: str | None = None) -> str | None:
        """Return the link of an event: 64 hexadecimal digits that bind the event to all events
        before it. The link of the newest event is `Row.link`. A link never changes, even when data
        is erased. Returns None if an older release, which did not compute links, wrote the
        event."""
        ...

    def follow(
        self, key: Key, *, after: int = 0, log: str | None = None
    ) -> AsyncGenerator[Event | CaughtUp, None]:
        """Yield the events after a number, then one `CaughtUp`, then each new event, without end.
        Each event is yielded exactly once, whichever process appends it. Raises `SessionNotFound`
        or `LogReplaced` when the log is deleted or replaced."""
        ...

    async def fork(self, key: Key, thread: str, *, at: int, first: NewEvent) -> None:
        """Create `thread` in the same session. It shares the events 1…at of this log, and `first`
        is its own first event.

        The shared events keep number, id and time, even when the parent is deleted. Repeating the
        call with the same `first` has no effect. Raises `SessionExists` if another thread has that
        name.
        """
        ...

    async def restore(
        self, key: Key, events: AsyncIterable[Event], *, parent: Parent | None = None
    ) -> None:
        """Create a log from existing events, which keep their numbers, ids and times. The log
        becomes visible when it is complete.

        With `parent`, pass only the events after `parent.at`; the earlier events are shared with
        that thread of the session.
        """
        ...

    async def erase(
        self, key: Key, seqs: Sequence[int], *, reason: str, fence: Lease | None = None
    ) -> Receipt:
        """Replace the data of events with `{"erased": reason}`, in this log and in all forks that
        share the events. The row is rebuilt and snapshots are dropped; numbers, ids, kinds and
        times do not change."""
        ...

    async def delete(
        self, target: Scope | Key, *, fence: Lease | None = None, expected: int | None = None
    ) -> Receipt:
        """Delete a session with everything it owns, or one thread. The target is hidden at once;
        events that forks share are kept until the forks are deleted. If a delete is interrupted,
        the next delete or purge completes it. Deleting a session or thread that does not exist has
        no effect. With `expected`, nothing is deleted unless the head of the thread, or of thread
        `main` of the session, is this number (`HeadMoved`)."""
        ...

    async def row(self, key: Key) -> Row | None:
        """Return the row of a log: the fields that lists show. None if the log does not exist."""
        ...

    async def rows(self, keys: Sequence[Key]) -> list[Row | None]:
        """Return the rows of several logs, in the order of the keys; None for a log that does not
        exist."""
        ...

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 50) -> Page[Row]:
        """Return a page of sessions (the rows of threads `main`), or with `query.session` of the
        threads of one session.

        Paging oldest first returns every row; rows that change meanwhile appear again at the end.
        """
        ...

    async def pending(
        self, query: PendingQuery, *, cursor: str | None = None, limit: int = 50
    ) -> Page[Pending]:
        """Return a page of the pending items of all sessions of a tenant (the inbox), oldest
        first."""
        ...

    async def search(
        self, query: SearchQuery, *, cursor: str | None = None, limit: int = 20
    ) -> SearchPage:
        """Return a page of the events of a tenant whose text matches, newest first. An event that
        forks share is returned once; erased events, and events that a rewind removed, are not.

        One call does a bounded amount of work: a page with a cursor may have fewer matches than
        `limit`, or none. A store without an index reads the events themselves
        (`SearchPage.scanned`): then the matches are sorted within each page, and the pages go
        through the sessions from the newest to the oldest.
        """
        ...

    def reindex(self) -> AsyncGenerator[IndexProgress, None]:
        """Drop the full-text index and build it again, and yield the progress. Yields nothing if
        the store has no index. The index can be dropped at any time: no other data depends on
        it."""
        ...

    async def claim(
        self, tenant: str, name: str, owner: Scope, *, instead_of: Scope | None = None
    ) -> Scope:
        """Claim a unique name for a session, or take the name over from `instead_of`. Returns the
        session that holds the name afterwards. The session does not need to exist yet."""
        ...

    async def unclaim(self, tenant: str, name: str, owner: Scope) -> None:
        """Release a name. Has no effect if `owner` does not hold the name."""
        ...

    async def claims(self, owner: Scope) -> list[str]:
        """Return the names that a session holds, in order."""
        ...

    async def runnable(self, tenant: str, *, agents: Sequence[str], limit: int = 100) -> list[Key]:
        """Return logs of these agents that need a driver and have no live lease. Logs that have
        been due for the longest time come first."""
        ...

    async def due_tenants(
        self, *, agents: Sequence[str], after: str = "", limit: int = 100
    ) -> list[str]:
        """Return the names of the tenants with due logs of these agents, in order, starting after
        the name `after`. A tenant whose due logs all have a live lease may be included; `runnable`
        omits such logs."""
        ...

    async def acquire(
        self,
        key: Key,
        owner: str,
        *,
        ttl: float = 15.0,
        steal: str | None = None,
        mark: str | None = None,
    ) -> Lease:
        """Acquire the lease for `ttl` seconds, with a token that is greater than all earlier
        tokens.

        Raises `LeaseHeld` while another lease is live, unless `steal` gives a reason. `mark`
        identifies the call, so that it can be repeated after a lost reply: a call with the same
        owner and mark returns the lease that the first call acquired, if that lease is still the
        newest and was not released.
        """
        ...

    async def renew(self, lease: Lease) -> Lease:
        """Extend the lease by another `ttl`. A lease that expired can be renewed if no other driver
        took over."""
        ...

    async def release(self, lease: Lease, *, head: int | None = None) -> None:
        """Release the lease. With `head`, raises `HeadMoved` if the log has events after this
        number."""
        ...

    async def holder(self, key: Key) -> Holder | None:
        """Return who holds the lease of a log now. None if nobody does, or if the log does not
        exist. Nothing is changed, and another driver may acquire the lease at any time."""
        ...

    async def put_draft(
        self, key: Key, message: str, offset: int, text: str, *, fence: Lease
    ) -> None:
        """Add a piece of a message in progress at `offset` (in code points). Repeating a piece has
        no effect. `message` is the id of the event that will contain the complete message."""
        ...

    async def drafts(self, key: Key) -> list[Draft]:
        """Return the drafts of messages that are not in the log yet. The text of each draft comes
        from its newest lease."""
        ...

    async def put_blob(self, scope: Scope, data: bytes, *, sha256: str | None = None) -> BlobRef:
        """Store bytes that belong to a session. Storing the same bytes again has no effect. By
        default, the blob is named by the SHA-256 of the bytes; `sha256` overrides this name, for
        example with the hash of the bytes before encryption."""
        ...

    async def get_blob(self, scope: Scope, ref: BlobRef, *, checked: bool = True) -> bytes:
        """Return the bytes of a blob of this session, or raise `BlobNotFound`. Bytes that do not
        match the hash are rejected, unless `checked` is false. Pass `checked=False` if the blob was
        stored with a `sha256` other than the hash of its bytes."""
        ...

    async def blobs(self, scope: Scope) -> list[BlobRef]:
        """Return the blobs that a session owns, in order of their hashes."""
        ...

    async def save_snapshot(
        self, key: Key, snapshot: Snapshot, *, fence: Lease | None = None
    ) -> None:
        """Store a snapshot. One snapshot is kept per log and fold version: the one with the highest
        number from the newest lease. Without `fence`, the call replaces only a snapshot with a
        lower number."""
        ...

    async def load_snapshot(self, key: Key, version: str) -> Snapshot | None:
        """Return the snapshot of this log for this fold version, if there is one. Snapshots can be
        discarded at any time."""
        ...

    def verify(
        self, target: Scope | Key | None = None, *, repair: bool = False
    ) -> AsyncGenerator[Damage, None]:
        """Recompute hashes, links, numbers, rows and claims, and yield every mismatch.

        `unreadable` is an event whose data is missing or differs from its hash. With `repair`, such
        an event is replaced by an erased event, and rows are rebuilt; links are not changed.
        """
        ...

    async def purge(self) -> Receipt:
        """Remove remains of deleted and erased data from the free pages and write-ahead logs of the
        database."""
        ...

    def info(self) -> StoreInfo:
        """Return the properties and guarantees of this store."""
        ...

    async def aclose(self) -> None:
        """Close everything that the store opened. Safe to call twice."""
        ...
