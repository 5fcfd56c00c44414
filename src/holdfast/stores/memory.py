"""A store in this process's memory: the reference for the behaviour of every store.

Nothing here awaits between a check and its write, which makes each call a transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import msgspec
from msgspec import Raw

from ..errors import BlobNotFound, InvalidValue, SessionExists, SessionNotFound
from ..log import catalog
from ..log.catalog import Page, Parent, Pending, PendingQuery, Project, Query, Row
from ..log.codec import LIMITS, check_stored, dense, erased, fingerprint
from ..log.events import Appended, Event, Key, NewEvent, Scope
from ..values.records import Receipt
from ..values.stream_items import CaughtUp
from . import links, rules
from .checked import CheckedStore
from .event_loop import OwnLoop
from .notify import Wakes, follow
from .port import BlobRef, Damage, Draft, Lease, Snapshot, StoreInfo, wall_clock
from .rules import APART, Extension, LeaseState


@dataclass(eq=False)
class _Log:
    """One log; numbers up to `shared` belong to its base."""

    row: Row
    base: _Log | None = None
    shared: int = 0
    events: list[Event] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)
    links: list[bytes | None] = field(default_factory=list)
    ids: dict[str, int] = field(default_factory=dict)
    lease: LeaseState = field(default_factory=LeaseState)
    drafts: dict[str, tuple[int, dict[int, str]]] = field(default_factory=dict)
    snapshots: dict[str, tuple[int, Snapshot]] = field(default_factory=dict)

    def owner(self, seq: int) -> _Log:
        """The log that holds the event with this number."""
        log = self
        while seq <= log.shared and log.base is not None:
            log = log.base
        return log

    def event(self, seq: int) -> Event:
        log = self.owner(seq)
        return log.events[seq - log.shared - 1]

    def kept(self, seq: int) -> bytes | None:
        """The stored link of an event of this log; None if it does not exist."""
        log = self.owner(seq)
        return log.links[seq - log.shared - 1] if seq else b""

    def known(self, id: str) -> int | None:
        log, upto = self, self.row.head
        while True:
            if (seq := log.ids.get(id)) is not None and seq <= upto:
                return seq
            if log.base is None:
                return None
            log, upto = log.base, log.shared

    def add(self, plan: Extension) -> None:
        self.events.extend(plan.fresh)
        self.hashes.extend(plan.hashes)
        self.links.extend(plan.links)
        self.ids.update((event.id, event.seq) for event in plan.fresh)
        self.row = plan.row


class MemoryStore(CheckedStore):
    """Sessions that live as long as the process."""

    def __init__(
        self, *, project: Project = catalog.project, clock: Callable[[], int] = wall_clock
    ) -> None:
        self._project = project
        self._clock = clock
        self._logs: dict[Key, _Log] = {}
        self._claims: dict[tuple[str, str], Scope] = {}
        self._blobs: dict[Scope, dict[str, bytes]] = {}
        self._wakes = Wakes()
        self._own = OwnLoop("the store", free=True)

    def _log(self, key: Key, log: str | None = None) -> _Log:
        self._own.check()
        found = self._logs.get(key)
        rules.found(key, found.row if found else None, log)
        assert found is not None
        return found

    def _threads(self, scope: Scope) -> list[Key]:
        return [key for key in self._logs if key.scope == scope]

    # The log

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
        self._own.check()
        now = self._clock()
        entry = self._logs.get(key)
        if entry is None and create and log is None:
            entry = _Log(rules.new_row(key, now))
        rules.found(key, entry.row if entry else None, log)
        assert entry is not None
        known = {e.id: seq for e in events if (seq := entry.known(e.id)) is not None}
        plan = rules.extend(
            entry.row,
            entry.lease,
            events,
            links.seals(events),
            known,
            project=self._project,
            now=now,
            expected=expected,
            fence=fence,
        )
        entry.add(plan)
        for change in plan.changes:
            for op in change:
                if op.do == "drop_draft":
                    entry.drafts.pop(op.key, None)
        self._logs[key] = entry
        self._wakes.tell(key, plan)
        return Appended(plan.seqs, plan.row.head, len(plan.fresh))

    async def read(
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
        incarnation = self._log(key, log).row.log
        first, last = after + 1, self._log(key).row.head
        if before is not None:
            last = min(last, before - 1)
        numbers = range(last, first - 1, -1) if reverse else range(first, last + 1)
        for seq in numbers[:limit]:
            event = self._log(key, incarnation).event(seq)
            if not inline and len(event.data) > APART:
                event = msgspec.structs.replace(event, data=Raw(rules.apart(event)))
            yield event

    async def link(self, key: Key, seq: int, *, log: str | None = None) -> str | None:
        entry = self._log(key, log)
        rules.check_at(entry.row, seq, "seq")
        return links.ending(entry.kept(seq))

    def follow(
        self, key: Key, *, after: int = 0, log: str | None = None
    ) -> AsyncGenerator[Event | CaughtUp, None]:
        return follow(self, self._wakes, key, after, log)

    async def fork(self, key: Key, thread: str, *, at: int, first: NewEvent) -> None:
        parent = self._log(key)
        target = Key(key.tenant, key.session, thread)
        if (there := self._logs.get(target)) is not None:
            if there.shared == at > 0 and there.events[0].id == first.id:
                return
            raise SessionExists(tenant=key.tenant, session=key.session, thread=thread)
        rules.check_open(parent.row)
        rules.check_at(parent.row, at)
        if (seq := parent.known(first.id)) is not None and seq <= at:
            raise InvalidValue(
                field="first",
                problem="has the id of an event in the shared history",
                remedy="use a new id",
            )
        now = self._clock()
        row = rules.new_row(target, now, at=at, base=links.link_in(parent.kept(at)))
        fork = _Log(row, base=parent.owner(at), shared=at)
        event = first.numbered(at + 1, now)
        fork.add(rules.extended(row, [event], links.seals([event]), [self._project(event)]))
        self._logs[target] = fork

    async def restore(
        self, key: Key, events: AsyncIterable[Event], *, parent: Parent | None = None
    ) -> None:
        entry = _Log(rules.new_row(key, self._clock()))
        if parent is not None:
            base = self._log(Key(key.tenant, key.session, parent.thread))
            rules.check_at(base.row, parent.at)
            left = links.link_in(base.kept(parent.at))
            row = rules.new_row(key, self._clock(), at=parent.at, base=left)
            entry = _Log(row, base.owner(parent.at), parent.at)
        async for event in events:
            check_stored(event)
            dense([event], entry.row.head)
            if entry.known(event.id) is not None:
                raise InvalidValue(
                    field="id", problem="occurs twice", remedy="pass each event once"
                )
            if not entry.events:
                entry.row = msgspec.structs.replace(
                    entry.row, created=event.at, active=event.at // 1000
                )
            change = self._project(event)
            entry.add(rules.extended(entry.row, [event], links.seals([event]), [change]))
        if not entry.events:
            raise InvalidValue(field="events", problem="is empty", remedy="pass at least one event")
        if key in self._logs:
            raise SessionExists(tenant=key.tenant, session=key.session, thread=key.thread)
        self._logs[key] = entry
        self._wakes.wake(key)

    async def erase(
        self, key: Key, seqs: Sequence[int], *, reason: str, fence: Lease | None = None
    ) -> Receipt:
        entry = self._log(key)
        numbers = rules.check_seqs(entry.row, seqs)
        if fence is not None:
            rules.check_fence(entry.row, entry.lease, fence)
        for seq in numbers:
            holder = entry.owner(seq)
            at = seq - holder.shared - 1
            holder.events[at] = msgspec.structs.replace(holder.events[at], data=erased(reason))
            holder.links[at] = links.erased(holder.links[at], holder.hashes[at])
            holder.hashes[at] = fingerprint(holder.events[at])
        holders = {id(entry.owner(seq)) for seq in numbers}
        dropped = 0
        for log in self._logs.values():
            if id(log) in holders:
                log.row = self._rebuilt(log)
            if any(id(log.owner(seq)) in holders for seq in numbers if seq <= log.row.head):
                dropped += len(log.snapshots)
                log.snapshots.clear()
        return Receipt(removed={"payloads": len(numbers), "snapshots": dropped})

    def _rebuilt(self, log: _Log) -> Row:
        row = rules.empty_row(log.row, log.shared)
        changes = [self._project(event) for event in log.events]
        return catalog.apply(row, log.events, changes, links.ending(log.links[-1]))

    async def delete(self, target: Scope | Key, *, fence: Lease | None = None) -> Receipt:
        removed = dict.fromkeys(rules.SORTS, 0)
        if isinstance(target, Key):
            if fence is not None:
                entry = self._log(target)
                rules.check_fence(entry.row, entry.lease, fence)
            keys = [target] if target in self._logs else []
            scope = target.scope
        else:
            keys, scope = self._threads(target), target
        for key in keys:
            log = self._logs.pop(key)
            removed["logs"] += 1
            removed["events"] += len(log.events)
            removed["snapshots"] += len(log.snapshots)
            removed["drafts"] += len(log.drafts)
            self._wakes.wake(key)
        if (keys or target == scope) and not self._threads(scope):
            removed["blobs"] = len(self._blobs.pop(scope, {}))
            for name in [name for name, owner in self._claims.items() if owner == scope]:
                del self._claims[name]
                removed["claims"] += 1
        return Receipt(removed=removed)

    # The catalog

    async def row(self, key: Key) -> Row | None:
        self._own.check()
        log = self._logs.get(key)
        return _copied(log.row) if log else None

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 50) -> Page[Row]:
        self._own.check()
        rows = [log.row for log in self._logs.values() if catalog.matches(query, log.row)]

        def place(row: Row) -> tuple[int, str]:
            return (row.active if query.order == "active" else row.created), row.log

        total = len(rows) if query.total else None
        rows.sort(key=place, reverse=query.newest_first)
        if cursor is not None:
            value, tie = catalog.read_cursor(query, cursor)
            at = (value, str(tie))
            rows = [r for r in rows if (place(r) < at if query.newest_first else place(r) > at)]
        more = catalog.make_cursor(query, *place(rows[limit - 1])) if len(rows) > limit else None
        return Page(items=[_copied(row) for row in rows[:limit]], cursor=more, total=total)

    async def pending(
        self, query: PendingQuery, *, cursor: str | None = None, limit: int = 50
    ) -> Page[Pending]:
        items = [
            (item.at, f"{log.row.log}/{item.seq:020}", item)
            for log in self._logs.values()
            for item in catalog.pending_items(log.row)
            if catalog.pending_matches(query, item) and self._is_of(query.user, log.row)
        ]
        items.sort(key=lambda entry: entry[:2])
        if cursor is not None:
            at, tie = catalog.read_cursor(query, cursor)
            items = [entry for entry in items if entry[:2] > (at, tie)]
        more = catalog.make_cursor(query, *items[limit - 1][:2]) if len(items) > limit else None
        return Page(items=[item for _, _, item in items[:limit]], cursor=more)

    def _is_of(self, user: str | None, row: Row) -> bool:
        main = self._logs.get(Key(row.tenant, row.session, "main"))
        return user is None or (main is not None and main.row.user == user)

    async def claim(
        self, tenant: str, name: str, owner: Scope, *, instead_of: Scope | None = None
    ) -> Scope:
        holder = self._claims.get((tenant, name))
        if holder is None or holder == instead_of:
            holder = self._claims[tenant, name] = owner
        return holder

    async def unclaim(self, tenant: str, name: str, owner: Scope) -> None:
        if self._claims.get((tenant, name)) == owner:
            del self._claims[tenant, name]

    async def claims(self, owner: Scope) -> list[str]:
        return sorted(name for (_, name), holder in self._claims.items() if holder == owner)

    # Driving

    async def runnable(self, tenant: str, *, agents: Sequence[str], limit: int = 100) -> list[Key]:
        now = self._clock()
        due = [
            (log.row.wake, log.row.log, key)
            for key, log in self._logs.items()
            if key.tenant == tenant
            and log.row.agent in agents
            and not rules.lease_left(log.lease, now)
            and catalog.is_due(log.row, now)
        ]
        return [key for _, _, key in sorted(due)[:limit]]

    async def acquire(
        self, key: Key, owner: str, *, ttl: float = 15.0, steal: str | None = None
    ) -> Lease:
        log = self._log(key)
        lease, log.lease = rules.acquire(
            log.row, log.lease, owner, ttl=ttl, steal=steal, now=self._clock()
        )
        return lease

    async def renew(self, lease: Lease) -> Lease:
        log = self._log(lease.key)
        renewed, log.lease = rules.renew(log.row, log.lease, lease, self._clock())
        return renewed

    async def release(self, lease: Lease, *, head: int | None = None) -> None:
        log = self._log(lease.key)
        log.lease = rules.release(log.row, log.lease, lease, head)

    async def put_draft(
        self, key: Key, message: str, offset: int, text: str, *, fence: Lease
    ) -> None:
        log = self._log(key)
        rules.check_fence(log.row, log.lease, fence)
        token, pieces = log.drafts.get(message, (fence.token, {}))
        if token != fence.token:
            pieces = {}
        log.drafts[message] = (fence.token, {**pieces, offset: text})

    async def drafts(self, key: Key) -> list[Draft]:
        log = self._log(key)
        return [
            Draft(message, rules.join_draft(pieces), token)
            for message, (token, pieces) in log.drafts.items()
            if log.known(message) is None
        ]

    # Blobs and snapshots

    async def put_blob(self, scope: Scope, data: bytes, *, sha256: str | None = None) -> BlobRef:
        if not self._threads(scope):
            raise SessionNotFound(tenant=scope.tenant, session=scope.session)
        name = rules.blob_name(data, sha256)
        self._blobs.setdefault(scope, {})[name] = bytes(data)
        return BlobRef(name, len(data))

    async def get_blob(self, scope: Scope, ref: BlobRef, *, checked: bool = True) -> bytes:
        data = self._blobs.get(scope, {}).get(ref.sha256)
        if data is None or (checked and not rules.is_blob(data, ref.sha256)):
            raise BlobNotFound(tenant=scope.tenant, session=scope.session, sha256=ref.sha256)
        return data

    async def blobs(self, scope: Scope) -> list[BlobRef]:
        owned = self._blobs.get(scope, {})
        return [BlobRef(name, len(owned[name])) for name in sorted(owned)]

    async def save_snapshot(self, key: Key, snapshot: Snapshot, *, fence: Lease) -> None:
        log = self._log(key)
        rules.check_snapshot(log.row, snapshot)
        rules.check_fence(log.row, log.lease, fence)
        token, there = log.snapshots.get(snapshot.version, (0, None))
        if there is None or (token, there.seq) <= (fence.token, snapshot.seq):
            log.snapshots[snapshot.version] = (fence.token, snapshot)

    async def load_snapshot(self, key: Key, version: str) -> Snapshot | None:
        return self._log(key).snapshots.get(version, (0, None))[1]

    # Upkeep

    async def verify(
        self, target: Scope | Key | None = None, *, repair: bool = False
    ) -> AsyncGenerator[Damage, None]:
        for key, log in list(self._logs.items()):
            if target is None or target in (key, key.scope):
                for damage in self._verify_log(key, log, repair):
                    yield damage
            await asyncio.sleep(0)

    def _verify_log(self, key: Key, log: _Log, repair: bool) -> Iterator[Damage]:
        yield from self._verify_shared(key, log)
        walk = links.LinkWalk(log.row, log.shared, log.kept(log.shared))
        yield from _verify_events(key, log, log.row.head, walk)
        yield from walk.end()
        if not catalog.agrees(log.row, row := self._rebuilt(log)):
            if repair:
                log.row = row
            yield Damage(problem="row", detail="differs from its log", key=key, repaired=repair)
        for name in catalog.bound(log.row):
            if self._claims.get((key.tenant, catalog.SURFACE_CLAIM + name)) != key.scope:
                yield Damage(problem="claim", detail=f"surface {name} is not claimed", key=key)

    def _verify_shared(self, key: Key, log: _Log) -> Iterator[Damage]:
        """Check the events that deleted logs left to this one; all others are checked with their
        own log."""
        part, upto = log.base, log.shared
        while part is not None:
            if self._logs.get(part.row.key) is not part:
                walk = links.LinkWalk(log.row, part.shared, None, deleted=part.row.log)
                yield from _verify_events(key, part, upto, walk)
            upto, part = part.shared, part.base

    async def purge(self) -> Receipt:
        return Receipt()

    def info(self) -> StoreInfo:
        return StoreInfo(
            kind="memory",
            location="this process",
            durability="none",
            schema=1,
            limits=LIMITS,
            apart=APART,
        )

    async def aclose(self) -> None:
        self._logs.clear()
        self._claims.clear()
        self._blobs.clear()
        self._wakes.wake_all()


def _verify_events(key: Key, log: _Log, upto: int, walk: links.LinkWalk) -> Iterator[Damage]:
    own = zip(log.events, log.hashes, log.links, strict=True)
    for event, hash, link in islice(own, upto - log.shared):
        if fingerprint(event) == hash:
            yield from walk.look(event, hash, link)
        else:
            walk.skip(link)
            yield Damage(
                problem="unreadable", detail="differs from its hash", key=key, seq=event.seq
            )


def _copied(row: Row) -> Row:
    """A copy of the row, as another store would return it, so that changes to it stay with the
    caller."""
    return msgspec.json.decode(msgspec.json.encode(row), type=Row)
