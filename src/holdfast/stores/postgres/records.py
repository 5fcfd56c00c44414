"""The data that a store keeps in addition to the events: leases, drafts, snapshots, blobs,
claims."""

from __future__ import annotations

from msgspec import Raw
from msgspec.structs import astuple

from ...errors import SessionNotFound
from ...log.events import Key, Scope
from .. import rules
from ..blobs import found_blob, is_sha256
from ..port import BlobRef, Draft, Holder, Lease, Snapshot
from ..rules import LeaseState
from .database import Link
from .log import existing, known_ids, lookup
from .tables import PostgresTables

# Leases


class AcquireCall:
    """One acquisition of a lease. If the call is repeated after a lost reply, it recognises the
    lease that it acquired."""

    def __init__(
        self, key: Key, owner: str, ttl: float, steal: str | None, mark: str | None
    ) -> None:
        self._key = key
        self._owner = owner
        self._ttl = ttl
        self._steal = steal
        self._mark = mark
        self._taken: tuple[Lease, LeaseState] | None = None

    async def __call__(self, tables: PostgresTables) -> Lease:
        entry = await tables.locked(self._key)
        if self._taken is not None and self._taken[1] == entry.lease:
            return self._taken[0]
        # Read after the lock: a lease that was renewed while we waited must not look like one from
        # a clock that was set back.
        lease, state = self._taken = rules.acquire(
            entry.row,
            entry.lease,
            self._owner,
            ttl=self._ttl,
            steal=self._steal,
            mark=self._mark,
            now=await tables.now(),
        )
        await _save_lease(tables.link, entry.id, state)
        return lease


async def renew(tables: PostgresTables, lease: Lease) -> Lease:
    entry = await tables.locked(lease.key)
    renewed, state = rules.renew(entry.row, entry.lease, lease, await tables.now())
    await _save_lease(tables.link, entry.id, state)
    return renewed


async def release(link: Link, lease: Lease, *, head: int | None = None) -> None:
    entry = await existing(link, lease.key)
    await _save_lease(link, entry.id, rules.release(entry.row, entry.lease, lease, head))


async def holder(tables: PostgresTables, key: Key) -> Holder | None:
    entry = await lookup(tables.link, key)
    return None if entry is None else rules.holder(entry.lease, await tables.now())


async def _save_lease(link: Link, id: int, state: LeaseState) -> None:
    await link.run(
        "UPDATE hf.logs SET version = version + 1, token = $2, owner = $3, since = $4, until = $5,"
        " renewed = $6, mark = $7 WHERE id = $1",
        id,
        *astuple(state),
    )


# Drafts


async def put_draft(
    link: Link, key: Key, message: str, offset: int, text: str, *, fence: Lease
) -> None:
    """Store a piece of a draft. This takes one statement if the lease is valid, which is nearly
    always the case."""
    put = await link.run(
        "INSERT INTO hf.drafts (log, message, token, start, text)"
        " SELECT id, $6, token, $7, $8 FROM hf.logs WHERE tenant = $1 AND session = $2"
        " AND thread = $3 AND log = $4 AND token = $5 AND owner IS NOT NULL FOR SHARE"
        " ON CONFLICT (log, message, token, start) DO UPDATE SET text = excluded.text",
        key.tenant,
        key.session,
        key.thread,
        fence.log,
        fence.token,
        message,
        offset,
        text.encode(),
    )
    if not put:
        entry = await existing(link, key)
        rules.check_fence(entry.row, entry.lease, fence)


async def drafts(link: Link, key: Key) -> list[Draft]:
    entry = await existing(link, key, lock="")
    found = await link.rows(
        "SELECT message, token, start, text FROM hf.drafts WHERE log = $1", entry.id
    )
    drafts = rules.joined_drafts(
        (message, token, start, text.decode()) for message, token, start, text in found
    )
    done = await known_ids(link, entry, [draft.message for draft in drafts]) if drafts else {}
    return [draft for draft in drafts if draft.message not in done]


# Snapshots


async def save_snapshot(
    link: Link, key: Key, snapshot: Snapshot, *, fence: Lease | None = None
) -> None:
    entry = await existing(link, key)
    rules.check_snapshot(entry.row, snapshot)
    if fence is not None:
        rules.check_fence(entry.row, entry.lease, fence)
    found = await link.row(
        "SELECT token, seq FROM hf.snapshots WHERE log = $1 AND version = $2",
        entry.id,
        snapshot.version,
    )
    kept = None if found is None else (found["token"], found["seq"])
    token = None if fence is None else fence.token
    if not rules.keeps_snapshot(token, snapshot.seq, kept):
        return
    await link.run(
        "INSERT INTO hf.snapshots (log, version, token, seq, state)"
        " VALUES ($1, $2, $3, $4, $5) ON CONFLICT (log, version) DO UPDATE"
        " SET token = excluded.token, seq = excluded.seq, state = excluded.state",
        entry.id,
        snapshot.version,
        token or (kept[0] if kept else 0),
        snapshot.seq,
        b"j" + bytes(snapshot.state),
    )


async def load_snapshot(link: Link, key: Key, version: str) -> Snapshot | None:
    entry = await existing(link, key, lock="")
    found = await link.row(
        "SELECT seq, state FROM hf.snapshots WHERE log = $1 AND version = $2", entry.id, version
    )
    if found is None or found["state"][:1] != b"j":
        return None
    state = Raw(found["state"][1:])
    return Snapshot(log=entry.row.log, seq=found["seq"], version=version, state=state)


# Blobs


async def put_blob(link: Link, scope: Scope, data: bytes, sha256: str) -> BlobRef:
    if not await _exists(link, scope):
        raise SessionNotFound(tenant=scope.tenant, session=scope.session)
    await link.run(
        "INSERT INTO hf.blobs (tenant, session, sha256, size, data) VALUES ($1, $2, $3, $4, $5)"
        " ON CONFLICT DO NOTHING",
        scope.tenant,
        scope.session,
        sha256,
        len(data),
        b"b" + data,
    )
    return BlobRef(sha256, len(data))


async def _exists(link: Link, scope: Scope) -> bool:
    """Return whether the session has a thread. If so, the thread is locked against deletion until
    the transaction ends."""
    found = await link.value(
        "SELECT 1 FROM hf.logs WHERE tenant = $1 AND session = $2 LIMIT 1 FOR SHARE",
        scope.tenant,
        scope.session,
    )
    return found is not None


async def get_blob(link: Link, scope: Scope, ref: BlobRef, *, checked: bool = True) -> bytes:
    column = None
    if is_sha256(ref.sha256):
        column = await link.value(
            "SELECT data FROM hf.blobs WHERE tenant = $1 AND session = $2 AND sha256 = $3",
            scope.tenant,
            scope.session,
            ref.sha256,
        )
    data = None if column is None else bytes(column[1:])
    return found_blob(scope, ref, data, checked=checked)


async def blobs(link: Link, scope: Scope) -> list[BlobRef]:
    found = await link.rows(
        "SELECT sha256, size FROM hf.blobs WHERE tenant = $1 AND session = $2 ORDER BY sha256",
        scope.tenant,
        scope.session,
    )
    return [BlobRef(sha256, size) for sha256, size in found]


# Claims


async def claim(
    link: Link, tenant: str, name: str, owner: Scope, *, instead_of: Scope | None = None
) -> Scope:
    """Claim a name, if it is free or held by `instead_of`, in one statement, so that only one of
    several callers succeeds."""
    session = await link.value(
        "INSERT INTO hf.claims AS c (tenant, name, session) VALUES ($1, $2, $3)"
        " ON CONFLICT (tenant, name) DO UPDATE SET session ="
        " CASE WHEN c.session = $4 THEN excluded.session ELSE c.session END RETURNING session",
        tenant,
        name,
        owner.session,
        instead_of.session if instead_of is not None and instead_of.tenant == tenant else None,
    )
    return Scope(tenant, session)


async def unclaim(link: Link, tenant: str, name: str, owner: Scope) -> None:
    await link.run(
        "DELETE FROM hf.claims WHERE tenant = $1 AND name = $2 AND session = $3",
        tenant,
        name,
        owner.session,
    )


async def claims(link: Link, owner: Scope) -> list[str]:
    found = await link.rows(
        "SELECT name FROM hf.claims WHERE tenant = $1 AND session = $2 ORDER BY name",
        owner.tenant,
        owner.session,
    )
    return [record["name"] for record in found]
