"""The data that a store keeps in addition to the events: leases, drafts, snapshots, blobs,
claims."""

from __future__ import annotations

from msgspec import Raw
from msgspec.structs import replace
from pymongo.errors import DuplicateKeyError

from ...errors import BlobNotFound, LeaseLost
from ...log.events import Key, Scope, new_id
from .. import rules
from ..blobs import is_blob, is_sha256
from ..frames import packed, unpacked
from ..port import BlobRef, Draft, Holder, Lease, Snapshot
from . import entry as entries
from .batches import known_ids, named
from .entry import Document, MongoLogEntry
from .event_records import CHUNK
from .heads import MISSED, Missed, MongoHeads
from .payloads import drop_chunks, put_chunks
from .remove import check_session, has_threads
from .schema import MongoDatabase

# Leases


class Leasing:
    """One operation on a lease, including its retries. If the caller passes no mark, a new mark is
    created, so that an acquisition can be recognised after a lost reply."""

    def __init__(self, db: MongoDatabase, heads: MongoHeads, mark: str | None = None) -> None:
        self._db = db
        self._heads = heads
        self._mark = new_id() if mark is None else mark
        self._released = False

    async def acquire(self, key: Key, owner: str, ttl: float, steal: str | None) -> Lease:
        async def attempt(entry: MongoLogEntry | None, fresh: bool) -> Lease | Missed:
            entry = rules.existing(key, entry)
            now = await self._heads.lease_time(entry)
            lease, state = rules.acquire(
                entry.row, entry.lease, owner, ttl=ttl, steal=steal, mark=self._mark, now=now
            )
            if state == entry.lease:  # an earlier attempt acquired the lease
                return replace(lease, reason=steal) if fresh else MISSED
            return lease if await self._set(entry, state) else MISSED

        return await self._heads.settle(key, attempt)

    async def renew(self, lease: Lease) -> Lease:
        async def attempt(entry: MongoLogEntry | None, fresh: bool) -> Lease | Missed:
            entry = rules.existing(lease.key, entry)
            now = await self._db.clock.now()
            renewed, state = rules.renew(entry.row, entry.lease, lease, now)
            return renewed if await self._set(entry, state) else MISSED

        return await self._heads.settle(lease.key, attempt)

    async def release(self, lease: Lease, head: int | None) -> None:
        async def attempt(entry: MongoLogEntry | None, fresh: bool) -> Missed | None:
            entry = rules.existing(lease.key, entry)
            try:
                state = rules.release(entry.row, entry.lease, lease, head)
            except LeaseLost:
                if self._released and fresh:
                    return None  # an attempt without a reply may have done it
                raise
            if state == entry.lease:
                return None if fresh else MISSED
            self._released = True
            if await self._set(entry, state):
                return None
            self._released = False
            return MISSED

        await self._heads.settle(lease.key, attempt)

    async def _set(self, entry: MongoLogEntry, lease: rules.LeaseState) -> bool:
        return await self._heads.swap(entry, *entries.leased(entry, lease))


# Drafts


async def holder(heads: MongoHeads, key: Key) -> Holder | None:
    entry = await heads.read(key)
    return None if entry is None else rules.holder(entry.lease, await heads.lease_time(entry))


async def put_draft(
    heads: MongoHeads, key: Key, message: str, offset: int, text: str, *, fence: Lease
) -> None:
    """Store a piece of a draft with the token of its lease, so that a piece that arrives after the
    lease was lost has no effect."""
    entry = await heads.existing(key)
    rules.check_fence(entry.row, entry.lease, fence)
    if not entry.drafts:
        await heads.settle(key, lambda there, fresh: _mark_drafts(heads, key, there))
    id = {"log": entry.log, "message": message, "token": fence.token, "start": offset}
    piece = named(key.scope, _id=id, log=entry.log, message=message, token=fence.token, text=text)
    try:
        await heads.db.drafts.replace_one(named(key.scope, _id=id), piece, upsert=True)
    except DuplicateKeyError:  # another call inserted it at the same time
        await heads.db.drafts.replace_one(named(key.scope, _id=id), piece)


async def _mark_drafts(heads: MongoHeads, key: Key, entry: MongoLogEntry | None) -> Missed | None:
    """Record in the head that the log may have drafts, so that appends remove them."""
    entry = rules.existing(key, entry)
    if entry.drafts:
        return None
    new = entry._replace(drafts=True, version=entry.version + 1)
    update = {"$set": {"drafts": True, "version": new.version}}
    return None if await heads.swap(entry, new, update) else MISSED


async def drafts(heads: MongoHeads, key: Key) -> list[Draft]:
    entry = await heads.existing(key)
    if not entry.drafts:
        return []
    found = heads.db.drafts.find(named(key.scope, log=entry.log), hint="log")
    drafts = rules.joined_drafts(
        [
            (doc["message"], int(doc["token"]), doc["_id"]["start"], doc["text"])
            async for doc in found
        ]
    )
    done = await known_ids(heads.db, entry, [draft.message for draft in drafts]) if drafts else {}
    return [draft for draft in drafts if draft.message not in done]


# Snapshots


async def save_snapshot(
    heads: MongoHeads, key: Key, snapshot: Snapshot, *, fence: Lease | None = None
) -> None:
    """Store a snapshot, unless `rules.keeps_snapshot` prefers the stored one. The filter implements
    that rule."""
    entry = await heads.existing(key)
    rules.check_snapshot(entry.row, snapshot)
    id = {"log": entry.log, "version": snapshot.version}
    fields = {"log": entry.log, "seq": snapshot.seq, "state": packed(snapshot.state)}
    update: Document = {"$set": fields}
    if fence is None:
        older: list[Document] = [{"seq": {"$lt": snapshot.seq}}]
        update["$setOnInsert"] = {"token": 0}
    else:
        rules.check_fence(entry.row, entry.lease, fence)
        fields["token"] = fence.token
        older = [
            {"token": {"$lt": fence.token}},
            {"token": fence.token, "seq": {"$lte": snapshot.seq}},
        ]
    where = named(key.scope, _id=id, **{"$or": older})
    try:
        await heads.db.snapshots.update_one(where, update, upsert=True)
    except DuplicateKeyError:
        # A snapshot exists that is not older, or was just created and may be older.
        await heads.db.snapshots.update_one(where, update)


async def load_snapshot(heads: MongoHeads, key: Key, version: str) -> Snapshot | None:
    entry = await heads.existing(key)
    id = {"log": entry.log, "version": version}
    doc = await heads.db.snapshots.find_one(named(key.scope, _id=id), hint="_id_")
    state = None if doc is None else unpacked(doc["state"])
    if doc is None or state is None:
        return None
    return Snapshot(log=entry.log, seq=int(doc["seq"]), version=version, state=Raw(state))


# Blobs


def _blob_id(scope: Scope, sha256: str) -> dict[str, str]:
    return {"tenant": scope.tenant, "session": scope.session, "sha256": sha256}


async def put_blob(db: MongoDatabase, scope: Scope, data: bytes, sha256: str) -> BlobRef:
    """Store a blob: first its bytes, then the document that makes it visible."""
    await check_session(db, scope)
    ref = BlobRef(sha256, len(data))
    id = _blob_id(scope, sha256)
    if await db.blobs.find_one(named(scope, _id=id), {"_id": 1}, hint="_id_"):
        return ref
    write, at = new_id(), await db.clock.now()
    pieces = [[data[start : start + CHUNK]] for start in range(0, len(data), CHUNK)]
    await put_chunks(db, scope, None, write, pieces)
    doc = named(
        scope, _id=id, sha256=sha256, size=len(data), write=write, chunks=len(pieces), at=at
    )
    try:
        await db.blobs.insert_one(doc)
    except DuplicateKeyError:
        there = await db.blobs.find_one(named(scope, _id=id), {"write": 1}, hint="_id_")
        if there is None or there["write"] != write:
            await drop_chunks(db, scope, write)
    if not await has_threads(db, scope):
        # The session was deleted meanwhile, perhaps before this insert: remove the blob again.
        await db.blobs.delete_one(named(scope, _id=id, write=write))
        await drop_chunks(db, scope, write)
        await check_session(db, scope)
    return ref


async def get_blob(db: MongoDatabase, scope: Scope, ref: BlobRef, *, checked: bool = True) -> bytes:
    missing = BlobNotFound(tenant=scope.tenant, session=scope.session, sha256=ref.sha256)
    if not is_sha256(ref.sha256):
        raise missing
    doc = await db.blobs.find_one(named(scope, _id=_blob_id(scope, ref.sha256)), hint="_id_")
    if doc is None or not await has_threads(db, scope):
        raise missing
    ids = [f"{doc['write']}/{n}" for n in range(doc["chunks"])]
    parts: dict[str, bytes] = {}
    async for chunk in db.chunks.find(named(scope, _id={"$in": ids}), {"parts": 1}, hint="_id_"):
        parts[chunk["_id"]] = chunk["parts"][0]
    data = b"".join(parts.get(id, b"") for id in ids)
    if checked and not is_blob(data, ref.sha256):
        raise missing
    return data


async def blobs(db: MongoDatabase, scope: Scope) -> list[BlobRef]:
    if not await has_threads(db, scope):
        return []
    found = db.blobs.find(named(scope), {"sha256": 1, "size": 1}, sort=[("sha256", 1)])
    return [BlobRef(doc["sha256"], doc["size"]) async for doc in found.hint("session")]


# Claims


async def claim(
    db: MongoDatabase, tenant: str, name: str, owner: Scope, *, instead_of: Scope | None = None
) -> Scope:
    """Claim a name by compare-and-set, if it is free or held by `instead_of`. Returns the session
    that then holds it."""
    id = {"tenant": tenant, "name": name}
    while True:
        fields = {"tenant": tenant, "session": owner.session, "at": await db.clock.now()}
        holder = await claimed(db, tenant, name)
        if holder is None:
            try:
                await db.claims.insert_one({"_id": id, **fields})
            except DuplicateKeyError:
                continue
            return owner
        if holder not in (instead_of, owner):
            return holder
        # Also if the owner already holds it, so that a delete in progress treats the claim as new.
        taken = await db.claims.update_one({"_id": id, "session": holder.session}, {"$set": fields})
        if taken.matched_count:
            return owner


async def claimed(db: MongoDatabase, tenant: str, name: str) -> Scope | None:
    """Return the session that has claimed a name, or None."""
    doc = await db.claims.find_one({"_id": {"tenant": tenant, "name": name}})
    return None if doc is None else Scope(tenant, doc["session"])


async def unclaim(db: MongoDatabase, tenant: str, name: str, owner: Scope) -> None:
    await db.claims.delete_one({"_id": {"tenant": tenant, "name": name}, "session": owner.session})


async def claims(db: MongoDatabase, owner: Scope) -> list[str]:
    found = db.claims.find(named(owner), {"_id": 1}, hint="session")
    return sorted([doc["_id"]["name"] async for doc in found])
