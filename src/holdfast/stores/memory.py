"""`MemoryStore`, a store in the memory of this process. Its behaviour is the reference for all
stores.

No method awaits between a check and the write that depends on it, so each call is a transaction.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from ..environment import wall_clock
from ..errors import SessionNotFound
from ..log import catalog
from ..log.catalog import Page, Parent, Pending, PendingQuery, Project, Query, Row
from ..log.codec import LIMITS, erased, fingerprint
from ..log.events import Event, Key, NewEvent, Scope
from ..values.records import Receipt, Remains
from ..values.stream_items import CaughtUp
from . import erasure, hash_chain, paging, rules
from .base import BaseStore
from .blobs import blob_name, found_blob
from .event_loop import OwnLoop
from .notify import Wakes, follow
from .paging import Fetch, ReadBounds
from .port import BlobRef, Damage, Draft, Holder, Lease, Snapshot, StoreInfo
from .rules import APART, AppendRequest, Extension, LeaseState
from .verify import LogRange, StoredEvent, check_log


@dataclass(eq=False)
class _Log:
    """One log in memory. Events with numbers up to `shared` are kept in `base`, from which it was
    forked."""

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
        """Return the log that holds the event with this number."""
        log = self
        while seq <= log.shared and log.base is not None:
            log = log.base
        return log

    def event(self, seq: int) -> Event:
        log = self.owner(seq)
        return log.events[seq - log.shared - 1]

    def kept(self, seq: int) -> bytes | None:
        """Return the bytes with the link of an event; None if the event has no link."""
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

    def known_ids(self, ids: Sequence[str]) -> dict[str, int]:
        return {id: seq for id in ids if (seq := self.known(id)) is not None}

    def add(self, plan: Extension) -> None:
        self.events.extend(plan.fresh)
        self.hashes.extend(plan.hashes)
        self.links.extend(plan.links)
        self.ids.update((event.id, event.seq) for event in plan.fresh)
        self.row = plan.row


class MemoryStore(BaseStore[_Log]):
    """A store that keeps sessions in memory for the lifetime of the process."""

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
        return rules.existing(key, self._logs.get(key), log)

    def _threads(self, scope: Scope) -> list[Key]:
        return [key for key in self._logs if key.scope == scope]

    # The log

    async def _append(self, request: AppendRequest) -> Extension:
        self._own.check()
        now = self._clock()
        log = self._logs.get(request.key)
        if log is None and request.begins:
            log = _Log(rules.new_row(request.key, now))
        log = rules.existing(request.key, log, request.log)
        known = log.known_ids(request.ids)
        plan = request.decide(log.row, log.lease, known, project=self._project, now=now)
        log.add(plan)
        log.lease = plan.lease_state or log.lease
        for change in plan.changes:
            for op in change:
                if op.do == "drop_draft":
                    log.drafts.pop(op.key, None)
        self._logs[request.key] = log
        self._wakes.tell(request.key, plan)
        return plan

    def _fetch(self) -> Fetch:
        return self._page

    async def _page(self, key: Key, bounds: ReadBounds) -> paging.Page:
        log = self._log(key, bounds.log)
        first, last = bounds.after + 1, bounds.upto(log.row.head)
        numbers = range(last, first - 1, -1) if bounds.reverse else range(first, last + 1)
        events = [log.event(seq) for seq in numbers[: bounds.page]]
        if not bounds.inline:
            events = [rules.stubbed(event) for event in events]
        return log.row.log, events, None

    async def seqs(self, key: Key, ids: Sequence[str], *, log: str | None = None) -> dict[str, int]:
        return self._log(key, log).known_ids(ids)

    async def locate(self, tenant: str, id: str) -> list[Key]:
        self._own.check()
        found = [
            key for key, log in self._logs.items() if key.tenant == tenant and self._holds(log, id)
        ]
        return sorted(found)

    def _holds(self, log: _Log, id: str) -> bool:
        """Return whether an event with this id was appended to this log, or to a deleted log from
        which this log was forked."""
        if (seq := log.known(id)) is None:
            return False
        holder = log.owner(seq)
        return holder is log or self._logs.get(holder.row.key) is not holder

    async def link(self, key: Key, seq: int, *, log: str | None = None) -> str | None:
        entry = self._log(key, log)
        rules.check_at(entry.row, seq, "seq")
        return hash_chain.ending(entry.kept(seq))

    def follow(
        self, key: Key, *, after: int = 0, log: str | None = None
    ) -> AsyncGenerator[Event | CaughtUp, None]:
        return follow(self, self._wakes, key, after, log)

    async def fork(self, key: Key, thread: str, *, at: int, first: NewEvent) -> None:
        parent = self._log(key)
        target = Key(key.tenant, key.session, thread)
        if (there := self._logs.get(target)) is not None:
            known = there.known_ids([first.id])
            rules.check_same_fork(target, there.shared, known, at, first)
            return
        rules.check_fork(parent.row, at, first, parent.known_ids([first.id]))
        row, plan = rules.forked(
            target, at, first, parent.kept(at), project=self._project, now=self._clock()
        )
        fork = _Log(row, base=parent.owner(at), shared=at)
        fork.add(plan)
        self._logs[target] = fork

    async def _begin_restore(self, key: Key, parent: Parent | None) -> _Log:
        if parent is None:
            return _Log(rules.new_row(key, self._clock()))
        base = self._log(Key(key.tenant, key.session, parent.thread))
        rules.check_at(base.row, parent.at)
        left = hash_chain.link_in(base.kept(parent.at))
        row = rules.new_row(key, self._clock(), at=parent.at, base=left)
        return _Log(row, base.owner(parent.at), parent.at)

    async def _restore_some(self, restore: _Log, events: list[Event]) -> _Log:
        known = restore.known_ids([event.id for event in events])
        rules.check_restored(restore.row, events, known)
        given = hash_chain.seals(events)
        restore.add(rules.restored(restore.row, restore.shared, events, given, self._project))
        return restore

    async def _end_restore(self, key: Key, restore: _Log) -> None:
        rules.check_restored_end(restore.row, restore.shared)
        if key in self._logs:
            raise rules.exists(key)
        self._logs[key] = restore

    async def _discard(self, restore: _Log, error: BaseException) -> None:
        pass  # the restored log is garbage-collected

    def _restored(self, key: Key) -> None:
        self._wakes.wake(key)

    async def _erase(
        self, key: Key, seqs: Sequence[int], *, reason: str, fence: Lease | None = None
    ) -> dict[str, int]:
        entry = self._log(key)
        numbers = erasure.check_erase(entry.row, entry.lease, seqs, fence)
        places = [(seq, entry.owner(seq)) for seq in numbers]
        erasure.check_erasable(
            (
                seq,
                holder.events[seq - holder.shared - 1].kind,
                holder.links[seq - holder.shared - 1],
            )
            for seq, holder in places
        )
        for seq, holder in places:
            at = seq - holder.shared - 1
            holder.events[at] = msgspec.structs.replace(holder.events[at], data=erased(reason))
            holder.links[at] = hash_chain.erased(holder.links[at], holder.hashes[at])
            holder.hashes[at] = fingerprint(holder.events[at])
        holders = {id(entry.owner(seq)) for seq in numbers}
        dropped = 0
        for log in self._logs.values():
            if id(log) in holders:
                log.row = self._rebuilt(log)
            if any(id(log.owner(seq)) in holders for seq in numbers if seq <= log.row.head):
                dropped += len(log.snapshots)
                log.snapshots.clear()
        return {"payloads": len(numbers), "snapshots": dropped}

    def _rebuilt(self, log: _Log) -> Row:
        row = rules.empty_row(log.row, log.shared)
        changes = [self._project(event) for event in log.events]
        return catalog.apply(row, log.events, changes, hash_chain.ending(log.links[-1]))

    async def _hide(
        self, target: Scope | Key, fence: Lease | None, expected: int | None
    ) -> tuple[Counter[str], list[str]]:
        removed: Counter[str] = Counter()
        first = target if isinstance(target, Key) else Key(target.tenant, target.session, "main")
        there = self._logs.get(first)
        rules.check_delete(first, there.row if there else None, expected)
        if isinstance(target, Key):
            if fence is not None:
                entry = self._log(target)
                rules.check_fence(entry.row, entry.lease, fence)
            keys = [target] if target in self._logs else []
            scope = target.scope
        else:
            keys, scope = self._threads(target), target
        deleted = [self._logs.pop(key) for key in keys]
        for log in deleted:
            removed["logs"] += 1
            removed["events"] += len(log.events)
            removed["snapshots"] += len(log.snapshots)
            removed["drafts"] += len(log.drafts)
            self._wakes.wake(log.row.key)
        if (keys or target == scope) and not self._threads(scope):
            removed["blobs"] = len(self._blobs.pop(scope, {}))
            for name in [name for name, owner in self._claims.items() if owner == scope]:
                del self._claims[name]
                removed["claims"] += 1
        return removed, [log.row.log for log in deleted]

    async def _sweep(self, scope: Scope | None) -> None:
        pass  # deleted logs are garbage-collected when no fork refers to them

    async def _shared_still(self, scope: Scope, deleted: Sequence[str]) -> list[Remains]:
        return []

    def _left_behind(self) -> tuple[Remains, ...]:
        return ()

    # The catalog

    async def row(self, key: Key) -> Row | None:
        self._own.check()
        log = self._logs.get(key)
        return _copied(log.row) if log else None

    async def rows(self, keys: Sequence[Key]) -> list[Row | None]:
        return [await self.row(key) for key in keys]

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

    async def due_tenants(
        self, *, agents: Sequence[str], after: str = "", limit: int = 100
    ) -> list[str]:
        now = self._clock()
        found = {
            key.tenant
            for key, log in self._logs.items()
            if key.tenant > after and log.row.agent in agents and catalog.is_due(log.row, now)
        }
        return sorted(found)[:limit]

    async def acquire(
        self,
        key: Key,
        owner: str,
        *,
        ttl: float = 15.0,
        steal: str | None = None,
        mark: str | None = None,
    ) -> Lease:
        log = self._log(key)
        lease, log.lease = rules.acquire(
            log.row, log.lease, owner, ttl=ttl, steal=steal, mark=mark, now=self._clock()
        )
        return lease

    async def renew(self, lease: Lease) -> Lease:
        log = self._log(lease.key)
        renewed, log.lease = rules.renew(log.row, log.lease, lease, self._clock())
        return renewed

    async def release(self, lease: Lease, *, head: int | None = None) -> None:
        log = self._log(lease.key)
        log.lease = rules.release(log.row, log.lease, lease, head)

    async def holder(self, key: Key) -> Holder | None:
        self._own.check()
        log = self._logs.get(key)
        return rules.holder(log.lease, self._clock()) if log else None

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
        name = blob_name(data, sha256)
        self._blobs.setdefault(scope, {})[name] = bytes(data)
        return BlobRef(name, len(data))

    async def get_blob(self, scope: Scope, ref: BlobRef, *, checked: bool = True) -> bytes:
        data = self._blobs.get(scope, {}).get(ref.sha256)
        return found_blob(scope, ref, data, checked=checked)

    async def blobs(self, scope: Scope) -> list[BlobRef]:
        owned = self._blobs.get(scope, {})
        return [BlobRef(name, len(owned[name])) for name in sorted(owned)]

    async def save_snapshot(
        self, key: Key, snapshot: Snapshot, *, fence: Lease | None = None
    ) -> None:
        log = self._log(key)
        rules.check_snapshot(log.row, snapshot)
        if fence is not None:
            rules.check_fence(log.row, log.lease, fence)
        token = fence.token if fence is not None else None
        kept = log.snapshots.get(snapshot.version)
        if rules.keeps_snapshot(token, snapshot.seq, kept and (kept[0], kept[1].seq)):
            log.snapshots[snapshot.version] = (token or (kept[0] if kept else 0), snapshot)

    async def load_snapshot(self, key: Key, version: str) -> Snapshot | None:
        return self._log(key).snapshots.get(version, (0, None))[1]

    # Upkeep

    async def verify(
        self, target: Scope | Key | None = None, *, repair: bool = False
    ) -> AsyncGenerator[Damage, None]:
        for key, log in list(self._logs.items()):
            if target is None or target in (key, key.scope):
                for damage in await self._verify_log(log, repair):
                    yield damage
            await asyncio.sleep(0)

    async def _verify_log(self, log: _Log, repair: bool) -> list[Damage]:
        found = await check_log(_MemoryCheck(self, log))
        if not repair or not any(damage.problem == "row" for damage in found):
            return found
        log.row = self._rebuilt(log)
        return [msgspec.structs.replace(d, repaired=d.problem == "row") for d in found]

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
            lease_with_append=True,
        )

    async def aclose(self) -> None:
        self._logs.clear()
        self._claims.clear()
        self._blobs.clear()
        self._wakes.wake_all()


class _MemoryCheck:
    """Reads a log in memory for `verify.check_log`."""

    lossy = False

    def __init__(self, store: MemoryStore, log: _Log) -> None:
        self._store = store
        self._log = log
        self.row = log.row

    async def parts(self) -> list[LogRange]:
        found = [LogRange(self._log, self._log.shared, self.row.head)]
        part, upto = self._log.base, self._log.shared
        while part is not None:
            if self._store._logs.get(part.row.key) is not part:
                found.append(LogRange(part, part.shared, upto, part.row.log))
            upto, part = part.shared, part.base
        return found[::-1]

    async def left(self) -> bytes | None:
        return self._log.kept(self._log.shared)

    async def events(self, part: LogRange, after: int) -> list[StoredEvent]:
        log: _Log = part.log
        own = zip(log.events, log.hashes, log.links, strict=True)
        return [
            StoredEvent(*one) for one in islice(own, after - log.shared, part.upto - log.shared)
        ]

    async def rebuilt(self) -> Row:
        return self._store._rebuilt(self._log)

    async def is_indexed(self, row: Row) -> bool:
        return True

    async def claimed(self, tenant: str, name: str) -> Scope | None:
        return self._store._claims.get((tenant, name))


def _copied(row: Row) -> Row:
    """Return a copy of the row, so that the caller's changes do not affect the store."""
    return msgspec.json.decode(msgspec.json.encode(row), type=Row)
