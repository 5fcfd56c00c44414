"""The decisions that every store makes inside its transaction: appends, leases, forks, restores.

A store reads the current values (row, lease, known ids), calls one of these functions, and writes
the result. The order of the checks is therefore the same in every store. The functions are pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Raw, Struct

from ..errors import (
    HeadMoved,
    InvalidValue,
    LeaseHeld,
    LeaseLost,
    LogReplaced,
    SessionExists,
    SessionMoved,
    SessionNotFound,
    StoreUnavailable,
)
from ..log.catalog import SKEW, Project, Row, RowChange, apply, unseals
from ..log.catalog.encrypted_preview import size_of
from ..log.codec import LIMITS, check_count, check_data, check_name, check_size, dense
from ..log.events import Event, Key, NewEvent, new_id
from .hash_chain import Seal, link_in, linked, origin, seals
from .port import Acquire, Draft, Holder, Lease, Snapshot

SORTS = ("logs", "events", "snapshots", "drafts", "blobs", "claims")  # counted in receipts
APART = 64 << 10  # payloads above this many bytes are stored apart from their events
LONGEST_LEASE = 86_400_000  # ms
RESTORE_MS = 60_000  # after this time without progress, a restore counts as interrupted


class LeaseState(Struct, frozen=True):
    """The newest lease of a log. `owner` is None if the lease was released. `renewed` is the time
    at which the lease was acquired or last renewed. `mark` contains the token and identifies the
    call that acquired the lease. A lease that an older release wrote has `renewed` and `mark` of an
    earlier lease, or 0 and None."""

    token: int = 0
    owner: str | None = None
    since: int = 0
    until: int = 0
    renewed: int = 0
    mark: str | None = None


class LiveLeases(NamedTuple):
    """Bounds for a database query that selects live leases: the lease ends after `now` and no later
    than `latest`, and was renewed no later than `renewed`."""

    now: int
    latest: int
    renewed: int


class StoredLog(Protocol):
    """The current values of a log, as a store has read them."""

    @property
    def row(self) -> Row: ...


L = TypeVar("L", bound=StoredLog)


class Extension(Struct, frozen=True):
    """The result of an append decision. `seqs` are the numbers of all events of the call. If any
    event is new, the result also holds the values to write: the events with their hashes and links,
    the row after them, and the new state of the lease if the append changes it. `lease` is the
    lease to return to the caller."""

    seqs: tuple[int, ...]
    fresh: list[Event]
    changes: list[RowChange]
    row: Row
    hashes: list[bytes] = []
    links: list[bytes] = []
    lease_state: LeaseState | None = None
    lease: Lease | None = None


def new_row(key: Key, now: int, *, at: int = 0, base: bytes = b"") -> Row:
    """Return the row of a new log, under a new incarnation. For a fork, `at` is the number of the
    last shared event, and `base` is the link of that event."""
    log = new_id()
    return Row(
        tenant=key.tenant,
        session=key.session,
        thread=key.thread,
        log=log,
        head=at,
        created=now,
        active=now // 1000,
        link=origin(key, log, at, base).hex(),
    )


def empty_row(row: Row, shared: int) -> Row:
    """Return the row of a log without its own events, to rebuild the row by applying them again."""
    return Row(
        tenant=row.tenant,
        session=row.session,
        thread=row.thread,
        log=row.log,
        head=shared,
        created=row.created,
        active=row.created // 1000,
    )


def found(key: Key, row: Row | None, log: str | None = None) -> Row:
    """Return `row`. Raises `SessionNotFound` if it is None, and `LogReplaced` if it is not of the
    incarnation `log`."""
    if row is None:
        raise SessionNotFound(tenant=key.tenant, session=key.session, thread=key.thread)
    if log is not None and row.log != log:
        raise LogReplaced(
            tenant=key.tenant, session=key.session, thread=key.thread, known=log, log=row.log
        )
    return row


def existing(key: Key, log: L | None, incarnation: str | None = None) -> L:
    """Return `log`. Raises `SessionNotFound` if it is None, and `LogReplaced` if it is not of the
    expected incarnation."""
    found(key, log.row if log else None, incarnation)
    assert log is not None
    return log


def exists(key: Key) -> SessionExists:
    """Return the error for an attempt to create a log that already exists."""
    return SessionExists(tenant=key.tenant, session=key.session, thread=key.thread)


class AppendRequest(Struct, frozen=True, kw_only=True):
    """The arguments of an append, and the seal (hash and salt) of each event. Every attempt of the
    append uses the same request."""

    key: Key
    events: Sequence[NewEvent]
    seals: Sequence[Seal]
    expected: int | None
    fence: Lease | None
    log: str | None
    create: bool
    acquire: Acquire | None = None
    release: Lease | None = None

    @property
    def begins(self) -> bool:
        """Whether the append creates a log that does not exist."""
        return self.create and self.log is None

    @property
    def ids(self) -> list[str]:
        return [event.id for event in self.events]

    @property
    def size(self) -> int:
        """The size of the data in bytes."""
        return sum([len(event.data) for event in self.events])

    def decide(
        self, row: Row, lease: LeaseState, known: Mapping[str, int], *, project: Project, now: int
    ) -> Extension:
        """Check the append against the current values of the log, and return what to write. See
        `extend`."""
        if self.acquire is not None and known:
            return self._repeated(row, lease, known)
        done = extend(
            row,
            lease,
            self.events,
            self.seals,
            known,
            project=project,
            now=now,
            expected=self.expected,
            fence=self.fence or self.release,
            acquire=self.acquire,
        )
        if self.release is None:
            return done
        if done.fresh:
            return msgspec.structs.replace(done, lease_state=LeaseState(token=lease.token))
        held = is_newest(row, lease, self.release)
        return msgspec.structs.replace(done, lease=self.release if held else None)

    def _repeated(self, row: Row, state: LeaseState, known: Mapping[str, int]) -> Extension:
        """Return the result of an append with `acquire` if some ids are already in the log; no
        event is written. If all ids are known, the call is a repetition, and the result is the
        lease that the first call acquired."""
        assert self.acquire is not None
        lease = None
        if len(known) == len({*self.ids}):
            lease = marked_lease(row, state, self.acquire.owner, self.acquire.ttl, self.ids[0])
        seqs = tuple(known.get(id, 0) for id in self.ids)
        return Extension(seqs, [], [], row, lease=lease)


def extend(
    row: Row,
    lease: LeaseState,
    events: Sequence[NewEvent],
    seals: Sequence[Seal],
    known: Mapping[str, int],
    *,
    project: Project,
    now: int,
    expected: int | None = None,
    fence: Lease | None = None,
    acquire: Acquire | None = None,
) -> Extension:
    """Check an append to the log of `row`, and return what to write. `known` maps the ids that are
    already in the log to their numbers."""
    numbers = dict(known)
    seqs: list[int] = []
    fresh: list[Event] = []
    given: list[Seal] = []
    for event, seal in zip(events, seals, strict=True):
        seq = numbers.get(event.id)
        if seq is None:
            seq = numbers[event.id] = row.head + len(fresh) + 1
            made = event.numbered(seq, now)
            fresh.append(made)
            given.append(seal if made.data is event.data else seal.of(made))
        seqs.append(seq)
    if not fresh:
        return Extension(tuple(seqs), [], [], row)
    changes = [project(event) for event in fresh]
    if fence is None or not unseals(changes[0]):
        check_open(row)
    taken = None
    if fence is not None:
        check_fence(row, lease, fence)
    elif acquire is not None:
        taken = take_lease(
            row, lease, acquire.owner, ttl=acquire.ttl, steal=None, now=now, mark=events[0].id
        )
    if expected is not None:
        check_head(row, expected)
    done = extended(row, fresh, given, changes, tuple(seqs))
    if taken is None:
        return done
    return msgspec.structs.replace(done, lease=taken[0], lease_state=taken[1])


def extended(
    row: Row,
    fresh: Sequence[Event],
    seals: Sequence[Seal],
    changes: Sequence[RowChange],
    seqs: tuple[int, ...] = (),
) -> Extension:
    """Return what to write when these events are appended to the log of `row`."""
    links, link = linked(row, fresh, seals)
    after = apply(row, fresh, changes, link)
    hashes = [seal.hash for seal in seals]
    return Extension(seqs, list(fresh), list(changes), after, hashes, links)


def check_head(row: Row, expected: int) -> None:
    """Raise `HeadMoved` if the last event of the log does not have the number `expected`."""
    if row.head != expected:
        raise HeadMoved(
            tenant=row.tenant,
            session=row.session,
            thread=row.thread,
            expected=expected,
            head=row.head,
        )


def check_fence(row: Row, state: LeaseState, lease: Lease) -> None:
    """Raise `LeaseLost` if a lease is not the newest of this incarnation, or was released."""
    if not is_newest(row, state, lease):
        raise LeaseLost(
            tenant=row.tenant,
            session=row.session,
            thread=row.thread,
            token=lease.token,
            newest=state.token,
            owner=state.owner,
        )


def is_newest(row: Row, state: LeaseState, lease: Lease) -> bool:
    """Return whether a lease is the newest of this incarnation, and was not released."""
    return lease.log == row.log and lease.token == state.token and state.owner is not None


def live_leases(now: int) -> LiveLeases:
    """Return the bounds of leases that are live at the time `now`. If a lease ends later than its
    duration allows, the clock was set back after it was granted. Such a lease counts as expired,
    because otherwise no driver could take over until the clock catches up. A lease without a
    renewal time is assumed to have the longest possible duration."""
    return LiveLeases(now, now + SKEW + LONGEST_LEASE, now + SKEW)


def lease_left(state: LeaseState, now: int) -> int:
    """Return for how many more ms a lease is live; 0 if it has expired or was released."""
    live = live_leases(now)
    lapsed = not live.now < state.until <= live.latest or state.renewed > live.renewed
    if state.owner is None or lapsed:
        return 0
    return min(state.until - now, state.until - state.renewed)


def holder(state: LeaseState, now: int) -> Holder | None:
    """Return who holds a lease, or None if it is not live."""
    left = lease_left(state, now)
    if state.owner is None or not left:
        return None
    return Holder(owner=state.owner, since=state.since, until=now + left)


def check_lease(owner: str, ttl: float) -> None:
    """Raise `InvalidValue` for an invalid owner name or an invalid lease duration."""
    check_name("owner", owner)
    if not 0.001 <= ttl <= LONGEST_LEASE // 1000:
        raise InvalidValue(field="ttl", problem=f"is {ttl}", remedy="use 0.001 to 86,400 seconds")


def acquire(
    row: Row,
    state: LeaseState,
    owner: str,
    *,
    ttl: float = 15.0,
    steal: str | None = None,
    mark: str | None = None,
    now: int,
) -> tuple[Lease, LeaseState]:
    """Decide whether a caller gets the lease. Returns a new lease, or the lease that an earlier
    call with the same mark acquired. Raises `LeaseHeld` if another driver has the lease."""
    if mark is not None and (lease := marked_lease(row, state, owner, ttl, mark)) is not None:
        return lease, state
    return take_lease(row, state, owner, ttl=ttl, steal=steal, now=now, mark=mark)


def marked_lease(row: Row, state: LeaseState, owner: str, ttl: float, mark: str) -> Lease | None:
    """Return the newest lease if the call with this mark acquired it and it was not released."""
    if state.owner != owner or state.mark != _mark(state.token, mark):
        return None
    return Lease(
        key=row.key,
        log=row.log,
        token=state.token,
        owner=owner,
        since=state.since,
        until=state.until,
        ttl=int(ttl * 1000),
    )


def _mark(token: int, mark: str) -> str:
    """Return a mark in its stored form. It includes the token, so that the mark of an earlier lease
    does not match: older releases do not update the mark when they acquire a lease."""
    return f"{token} {mark}"


def take_lease(
    row: Row,
    state: LeaseState,
    owner: str,
    *,
    ttl: float,
    steal: str | None,
    now: int,
    mark: str | None,
) -> tuple[Lease, LeaseState]:
    """Return a new lease and its stored state. Raises `LeaseHeld` if the current lease is live and
    `steal` is None."""
    left = lease_left(state, now)
    if state.owner is not None and left and steal is None:
        raise LeaseHeld(
            tenant=row.tenant,
            session=row.session,
            thread=row.thread,
            owner=state.owner,
            since=state.since,
            left=left,
        )
    ms = int(ttl * 1000)
    # At least the current time: a store that lost its leases (a rebuilt index) still issues
    # greater tokens than before.
    token = max(state.token + 1, now)
    lease = Lease(
        key=row.key,
        log=row.log,
        token=token,
        owner=owner,
        since=now,
        until=now + ms,
        ttl=ms,
        reason=steal,
    )
    stored = None if mark is None else _mark(token, mark)
    return lease, LeaseState(token, owner, now, now + ms, now, stored)


def renew(row: Row, state: LeaseState, lease: Lease, now: int) -> tuple[Lease, LeaseState]:
    """Return the renewed lease, with the same token and a later end, and its stored state."""
    check_fence(row, state, lease)
    until = now + lease.ttl
    renewed = msgspec.structs.replace(lease, until=until)
    return renewed, msgspec.structs.replace(state, until=until, renewed=now)


def release(row: Row, state: LeaseState, lease: Lease, head: int | None) -> LeaseState:
    """Return the state of the lease after its release. Releasing the same lease again changes
    nothing."""
    if lease.log == row.log and lease.token == state.token and state.owner is None:
        return state
    check_fence(row, state, lease)
    if head is not None:
        check_head(row, head)
    return LeaseState(token=state.token)


def check_open(row: Row) -> None:
    """Raise `SessionMoved` if the log was moved to another store."""
    if row.sealed is not None:
        raise SessionMoved(tenant=row.tenant, session=row.session, thread=row.thread, to=row.sealed)


def check_at(row: Row, at: int, field: str = "at") -> None:
    """Raise `InvalidValue` if the log has no event number `at`."""
    check_count(field, at, least=1, most=row.head)


def check_delete(key: Key, row: Row | None, expected: int | None) -> None:
    """Raise `HeadMoved` if the last event of the log that is to be deleted does not have the number
    `expected`. For a log that does not exist, the number is 0."""
    if expected is None:
        return
    if row is not None:
        check_head(row, expected)
    elif expected:
        raise HeadMoved(
            tenant=key.tenant, session=key.session, thread=key.thread, expected=expected, head=0
        )


def keeps_snapshot(token: int | None, seq: int, kept: tuple[int, int] | None) -> bool:
    """Return whether a snapshot up to `seq` replaces the stored snapshot, given as (token, number).
    `token` is the token of the writer's lease. Without a lease, `seq` must be higher than the
    number of the stored snapshot."""
    if kept is None:
        return True
    return seq > kept[1] if token is None else kept <= (token, seq)


def check_snapshot(row: Row, snapshot: Snapshot) -> None:
    """Reject a snapshot that is of another incarnation, that includes events that do not exist yet,
    or that is too large."""
    found(row.key, row, snapshot.log)
    check_name("version", snapshot.version)
    check_count("seq", snapshot.seq, least=0, most=row.head)
    check_data(snapshot.state)
    check_size("state", snapshot.state, LIMITS.snapshot_bytes)


# Forks, restores and erasures


def check_fork(parent: Row, at: int, first: NewEvent, known: Mapping[str, int]) -> None:
    """Raise an error if the log was moved away, if it has no event `at`, or if its first `at`
    events include the id of `first`. `known` maps ids of the log to numbers."""
    check_open(parent)
    check_at(parent, at)
    if known.get(first.id, at + 1) <= at:
        raise InvalidValue(
            field="first",
            problem="the first event of the fork has an id that the shared history already "
            "contains",
            remedy="use a new id",
        )


def check_same_fork(
    key: Key, shared: int, known: Mapping[str, int], at: int, first: NewEvent
) -> None:
    """Raise `SessionExists` for a fork to a thread that exists, unless the same call created it:
    the thread has the same fork point and the same first event."""
    if not (shared == at > 0 and known.get(first.id) == at + 1):
        raise exists(key)


def forked(
    key: Key, at: int, first: NewEvent, left: bytes | None, *, project: Project, now: int
) -> tuple[Row, Extension]:
    """Return the row of a new fork, and what to write for its first event. `left` is the bytes
    stored with the event at which the fork leaves its parent."""
    row = new_row(key, now, at=at, base=link_in(left))
    event = first.numbered(at + 1, now)
    return row, extended(row, [event], seals([event]), [project(event)])


def check_restored(row: Row, events: Sequence[Event], known: Iterable[str]) -> None:
    """Raise `InvalidValue` if the next events of a restore are not numbered consecutively, or if an
    id occurs twice. `known` contains ids of these events that are already in the log."""
    dense(events, row.head)
    ids = {event.id for event in events}
    if len(ids) < len(events) or not ids.isdisjoint(known):
        raise InvalidValue(
            field="id", problem="two events have the same id", remedy="pass each event once"
        )


def restored(
    row: Row, shared: int, events: Sequence[Event], given: Sequence[Seal], project: Project
) -> Extension:
    """Return what to write for the next events of a restore. The log begins after event
    `shared`."""
    if row.head == shared:
        row = msgspec.structs.replace(row, created=events[0].at, active=events[0].at // 1000)
    return extended(row, events, given, [project(event) for event in events])


def check_restored_end(row: Row, shared: int) -> None:
    """Raise `InvalidValue` for a restore without events."""
    if row.head == shared:
        raise InvalidValue(field="events", problem="is empty", remedy="pass at least one event")


def restore_discarded() -> StoreUnavailable:
    """Return the error for a restore whose log was removed by another process."""
    return StoreUnavailable(
        problem="the restore paused for too long and was discarded; "
        "restore the session again from its first event"
    )


# Drafts, payloads and blobs


def joined_drafts(pieces: Iterable[tuple[str, int, int, str]]) -> list[Draft]:
    """Join pieces (message, token, start, text) into drafts. Each draft uses only the pieces of its
    newest token."""
    newest: dict[str, tuple[int, dict[int, str]]] = {}
    for message, token, start, text in pieces:
        if message not in newest or newest[message][0] < token:
            newest[message] = (token, {})
        if newest[message][0] == token:
            newest[message][1][start] = text
    return [
        Draft(message, join_draft(newest[message][1]), newest[message][0])
        for message in sorted(newest)
    ]


def join_draft(pieces: Mapping[int, str]) -> str:
    """Join the text of a draft up to its first gap. If two pieces have the same offset, the later
    piece is used."""
    text = ""
    for offset in sorted(pieces):
        if offset > len(text):
            break
        text = text[:offset] + pieces[offset] + text[offset + len(pieces[offset]) :]
    return text


def apart(event: NewEvent) -> bytes:
    """Return the stub that replaces a large payload in reads with `inline=False`: its size and
    SHA-256."""
    sha256 = hashlib.sha256(event.data).hexdigest()
    return msgspec.json.encode({"apart": {"size": size_of(event), "sha256": sha256}})


def stubbed(event: Event) -> Event:
    """Return the event with a stub in place of a large payload."""
    if len(event.data) <= APART:
        return event
    return msgspec.structs.replace(event, data=Raw(apart(event)))
