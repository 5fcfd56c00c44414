"""`VaultStore`: a store that encrypts the content of any other store.

It wraps another store and passes encrypted data to it (`encryption.py`). Events are bound to their
numbers: an append is encrypted for the expected head, and encrypted again if another writer
appended first. The fields that lists search by stay in clear text (`catalog/encrypted_preview.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import TypeVar, TypeVarTuple

from msgspec.structs import replace

from ...errors import BlobNotFound, InvalidValue, KeyMissing, LogDamaged
from ...log.catalog import Page, Parent, Pending, PendingQuery, Query, Row, SearchQuery
from ...log.codec import LIMITS, check_data, check_size, check_stored
from ...log.conversation import REWOUND
from ...log.events import Appended, Event, Key, NewEvent, Scope
from ...values.records import Receipt
from ...values.search import IndexProgress, SearchPage
from ...values.stream_items import CaughtUp
from .. import rules
from ..blobs import blob_name, is_blob
from ..checked import CheckedStore
from ..frames import damaged
from ..pages import every_row
from ..port import Acquire, BlobRef, Damage, Draft, Lease, Snapshot, Store, StoreInfo
from ..search import no_index, scan
from ..wrapped import WrappedStore
from . import encryption
from .data_keys import DataKeyInfo, Resealed, Rings
from .drafts import VaultDrafts, opened_draft
from .key_rings import ALTERED, OVERHEAD, PLAIN, Ring, UnknownKey, Unsealed
from .keys import RESERVED, Vault

T = TypeVar("T")
P = TypeVarTuple("P")

LARGE = 1 << 20  # bytes whose encryption takes milliseconds

HEADS = 4_096  # logs whose heads are cached
SMALLER = replace(
    LIMITS,
    event_bytes=LIMITS.event_bytes // 4 * 3 - (1 << 20),
    append_bytes=LIMITS.append_bytes // 4 * 3 - (1 << 20),
    blob_bytes=LIMITS.blob_bytes - OVERHEAD,
    depth=LIMITS.depth - 1,
)


class VaultStore(WrappedStore, CheckedStore):
    """A store that encrypts its data with the keys of a vault. Open it with `holdfast.connect(url,
    vault=...)`."""

    def __init__(self, inner: Store, vault: Vault) -> None:
        super().__init__(inner)
        self._rings = Rings(inner, vault)
        self._drafts = VaultDrafts(inner)

    async def check_keys(self) -> None:
        """Raise `KeyMissing` if the vault cannot read any data of the store."""
        await self._rings.check_keys()

    async def check_tenant(self, tenant: str) -> None:
        """Raise an error if the store cannot write to this tenant: `KeyMissing`, or `InvalidValue`
        if the tenant's sessions are not encrypted. Changes nothing."""
        await self._rings.check_tenant(tenant)

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
        acquire: Acquire | None = None,
        release: Lease | None = None,
    ) -> Appended:
        size = _checked(key, events)
        ring = await self._writing(key, create=create and log is None)
        sealed = await _large(size, encryption.boxed_all, ring, key, events)
        return await self.inner.append(
            key,
            sealed,
            expected=expected,
            fence=fence,
            log=log,
            create=create,
            acquire=acquire,
            release=release,
        )

    async def _writing(self, key: Key, *, create: bool = False) -> Ring:
        """Return the data keys for writing to a log. The first log of a tenant creates a data
        key."""
        ring = await self._rings.reading(key.tenant)
        if ring.empty and not create:
            rules.found(key, await self.inner.row(key))
        return await self._rings.writing(key.tenant)

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
        events = self.inner.read(
            key,
            after=after,
            before=before,
            limit=limit,
            reverse=reverse,
            log=log,
        )
        async with aclosing(events):
            async for event in events:
                opened = await self._event(key, event)
                yield opened if inline else rules.stubbed(opened)

    async def _event(self, key: Key, event: Event) -> Event:
        try:
            ring = self._rings.known(key.tenant)
            if ring is not None and len(event.data) < LARGE:
                with suppress(UnknownKey):
                    return encryption.opened(key, event, ring)
            open = partial(encryption.opened, key, event)
            return await self._opened(key.tenant, open, len(event.data))
        except Unsealed as error:
            raise damaged(key, event.seq, error.why) from error
        except KeyMissing as error:
            raise KeyMissing(
                problem=f"event {event.seq}: {error.problem}",
                tenant=error.tenant,
                key=error.key,
                seq=event.seq,
            ) from error

    async def _opened(self, tenant: str, open: Callable[[Ring], T], size: int = 0) -> T:
        """Call `open` with the data keys of the tenant and return its result. If the data is
        encrypted with an unknown key, read the keys again and retry, because another process may
        have created it."""
        ring = await self._rings.reading(tenant)
        try:
            return await _large(size, open, ring)
        except UnknownKey as error:
            ring = await self._rings.again(tenant, error.id)
            return await _large(size, open, ring)

    async def follow(
        self, key: Key, *, after: int = 0, log: str | None = None
    ) -> AsyncGenerator[Event | CaughtUp, None]:
        events = self.inner.follow(key, after=after, log=log)
        async with aclosing(events):
            async for event in events:
                if isinstance(event, CaughtUp):
                    yield event
                else:
                    yield await self._event(key, event)

    async def fork(self, key: Key, thread: str, *, at: int, first: NewEvent) -> None:
        _checked(key, [first])
        ring = await self._writing(key)
        target = Key(key.tenant, key.session, thread)
        sealed = await _large(len(first.data), encryption.boxed, ring, target, first)
        await self.inner.fork(key, thread, at=at, first=sealed)

    async def restore(
        self, key: Key, events: AsyncIterable[Event], *, parent: Parent | None = None
    ) -> None:
        _check_place(key)
        ring = await self._rings.writing(key.tenant)

        async def all_sealed() -> AsyncGenerator[Event, None]:
            async for event in events:
                check_stored(event)
                check_size("data", event.data, SMALLER.event_bytes)
                yield await _large(len(event.data), encryption.boxed_restored, ring, key, event)

        await self.inner.restore(key, all_sealed(), parent=parent)

    async def erase(
        self, key: Key, seqs: Sequence[int], *, reason: str, fence: Lease | None = None
    ) -> Receipt:
        said = encryption.boxed_reason(await self._writing(key), key, reason)
        return await self.inner.erase(key, seqs, reason=said, fence=fence)

    async def delete(
        self, target: Scope | Key, *, fence: Lease | None = None, expected: int | None = None
    ) -> Receipt:
        _check_place(target)
        return await self.inner.delete(target, fence=fence, expected=expected)

    # The catalog

    async def row(self, key: Key) -> Row | None:
        row = await self.inner.row(key)
        if row is None:
            return None
        return await self._opened(key.tenant, partial(encryption.opened_row, key, row))

    async def rows(self, keys: Sequence[Key]) -> list[Row | None]:
        return [
            row and await self._opened(row.tenant, partial(encryption.opened_row, row.key, row))
            for row in await self.inner.rows(keys)
        ]

    async def find(self, query: Query, *, cursor: str | None = None, limit: int = 50) -> Page[Row]:
        page = await self.inner.find(query, cursor=cursor, limit=limit)
        rows = [
            await self._opened(query.tenant, partial(encryption.opened_row, row.key, row))
            for row in page.items
        ]
        return replace(page, items=rows)

    async def search(
        self, query: SearchQuery, *, cursor: str | None = None, limit: int = 20
    ) -> SearchPage:
        """Search by decrypting and reading the events, because an index of the words would reveal
        them."""
        return await scan(self, query, cursor=cursor, limit=limit)

    def reindex(self) -> AsyncGenerator[IndexProgress, None]:
        return no_index()

    async def pending(
        self, query: PendingQuery, *, cursor: str | None = None, limit: int = 50
    ) -> Page[Pending]:
        page = await self.inner.pending(query, cursor=cursor, limit=limit)
        opened = [
            await self._opened(query.tenant, partial(encryption.opened_item, item))
            for item in page.items
        ]
        return replace(page, items=opened)

    async def claim(
        self, tenant: str, name: str, owner: Scope, *, instead_of: Scope | None = None
    ) -> Scope:
        for scope in (owner, instead_of):
            if scope is not None:
                _check_place(scope)
        return await self.inner.claim(tenant, name, owner, instead_of=instead_of)

    async def unclaim(self, tenant: str, name: str, owner: Scope) -> None:
        _check_place(owner)
        await self.inner.unclaim(tenant, name, owner)

    async def claims(self, owner: Scope) -> list[str]:
        _check_place(owner)
        return await self.inner.claims(owner)

    # Drafts, blobs and snapshots

    async def put_draft(
        self, key: Key, message: str, offset: int, text: str, *, fence: Lease
    ) -> None:
        _check_place(key)
        ring = await self._writing(key)
        await self._drafts.put(ring, key, message, offset, text, fence)

    async def drafts(self, key: Key) -> list[Draft]:
        opened = [
            await self._opened(key.tenant, partial(opened_draft, key, draft))
            for draft in await self.inner.drafts(key)
        ]
        return [draft for draft in opened if draft is not None]

    async def put_blob(self, scope: Scope, data: bytes, *, sha256: str | None = None) -> BlobRef:
        check_size("data", data, SMALLER.blob_bytes)
        _check_place(scope)
        name = blob_name(data, sha256)
        ring = await self._writing(Key(scope.tenant, scope.session, "main"))
        place = ("blob", name)
        sealed = await _large(len(data), ring.encrypt_bytes, scope.session, place, data)
        await self.inner.put_blob(scope, sealed, sha256=name)
        return BlobRef(name, len(data))

    async def get_blob(self, scope: Scope, ref: BlobRef, *, checked: bool = True) -> bytes:
        sealed = await self.inner.get_blob(scope, ref, checked=False)

        def open(ring: Ring) -> bytes:
            data = ring.decrypt_bytes(scope.session, ("blob", ref.sha256), sealed)
            if checked and not is_blob(data, ref.sha256):
                raise Unsealed
            return data

        try:
            return await self._opened(scope.tenant, open, len(sealed))
        except Unsealed:
            raise BlobNotFound(
                tenant=scope.tenant, session=scope.session, sha256=ref.sha256
            ) from None

    async def blobs(self, scope: Scope) -> list[BlobRef]:
        return [
            BlobRef(ref.sha256, max(ref.size - OVERHEAD, 0))
            for ref in await self.inner.blobs(scope)
        ]

    async def save_snapshot(
        self, key: Key, snapshot: Snapshot, *, fence: Lease | None = None
    ) -> None:
        _check_place(key)
        check_data(snapshot.state)
        check_size("state", snapshot.state, LIMITS.snapshot_bytes)
        ring = await self._writing(key)
        sealed = await _large(
            10 * len(snapshot.state), encryption.boxed_snapshot, ring, key, snapshot
        )
        if sealed is not None:
            await self.inner.save_snapshot(key, sealed, fence=fence)

    async def load_snapshot(self, key: Key, version: str) -> Snapshot | None:
        snapshot = await self.inner.load_snapshot(key, version)
        if snapshot is None:
            return None
        open = partial(encryption.opened_snapshot, key, snapshot)
        return await self._opened(key.tenant, open, 10 * len(snapshot.state))

    # Upkeep

    async def reseal(self) -> list[Resealed]:
        """Encrypt the data keys of every tenant with the vault's first master key, and use new data
        keys for later writes. If `left` is empty for every tenant, the other master keys are no
        longer needed."""
        return [await self._rings.reseal(tenant) for tenant in await self._rings.tenants()]

    async def data_keys(self) -> list[DataKeyInfo]:
        """Return information about the data keys of every tenant, without the key material."""
        tenants = await self._rings.tenants()
        return [key for tenant in tenants for key in await self._rings.listed(tenant)]

    async def verify(
        self, target: Scope | Key | None = None, *, repair: bool = False
    ) -> AsyncGenerator[Damage, None]:
        """Verify the inner store, then check that its content was encrypted for its location. To
        verify a whole store, all tenants that have keys are checked."""
        if repair:  # before anything is changed: a repair needs the keys to erase events
            for tenant in await self._rings.tenants() if target is None else [target.tenant]:
                await self.check_tenant(tenant)
        async with aclosing(self.inner.verify(target, repair=repair)) as found:
            async for damage in found:
                if damage.repaired and damage.problem == "unreadable":
                    await self._say_erased(damage)
                yield damage
        async for key in self._logs(target):
            for damage in await self._unreadable(key, repair=repair):
                yield damage

    async def _say_erased(self, damage: Damage) -> None:
        """Erase an event that a repair of the inner store replaced by a placeholder, so that the
        placeholder is authenticated with the keys."""
        if damage.key is not None and damage.seq is not None:
            await self.erase(damage.key, [damage.seq], reason="damaged")

    async def _logs(self, target: Scope | Key | None) -> AsyncGenerator[Key, None]:
        if isinstance(target, Key):
            yield target
            return
        for scope in [target] if target is not None else await self._sessions():
            async for row in every_row(
                self.inner, Query(tenant=scope.tenant, session=scope.session)
            ):
                yield row.key

    async def _sessions(self) -> list[Scope]:
        return [
            row.scope
            for tenant in await self._rings.tenants()
            async for row in every_row(self.inner, Query(tenant=tenant))
        ]

    async def _unreadable(self, key: Key, *, repair: bool) -> list[Damage]:
        """Return the events of a log that were not encrypted for their location. A repair erases
        the events that were written without the keys. An event whose key is missing is kept,
        because the key may be in a backup."""
        row = await self.inner.row(key)
        if row is None:
            return []
        seq, forged = await self._first_own(row), list[int]()
        found: list[Damage] = []
        while seq < row.head:
            try:
                async with aclosing(self.read(key, after=seq)) as events:
                    async for event in events:
                        seq = event.seq
                break
            except KeyMissing as error:
                seq = error.seq or row.head
                found.append(Damage(problem="unreadable", detail=str(error), key=key, seq=seq))
            except LogDamaged as error:
                seq, cause = error.seq, error.__cause__
                if isinstance(cause, Unsealed):  # otherwise the inner store has reported it
                    if cause.why in (PLAIN, ALTERED) and not await self._is_rewind(row, seq):
                        forged.append(seq)
                    found.append(Damage(problem="unreadable", detail=cause.why, key=key, seq=seq))
        if not (repair and forged):
            return found
        await self.erase(key, forged, reason="damaged")
        return [replace(damage, repaired=damage.seq in forged) for damage in found]

    async def _is_rewind(self, row: Row, seq: int) -> bool:
        """Return whether an event is a rewind, which cannot be erased."""
        read = self.inner.read(row.key, after=seq - 1, before=seq + 1, log=row.log)
        async with aclosing(read) as events:
            return [event.kind async for event in events] == [REWOUND]

    async def _first_own(self, row: Row) -> int:
        """Return the number after which a log's own events begin. Damage of shared events is
        reported for the parent log while it exists."""
        if row.parent is None or not row.parent.at:
            return 0
        parent = await self.inner.row(Key(row.tenant, row.session, row.parent.thread))
        return 0 if parent is None else row.parent.at

    def info(self) -> StoreInfo:
        return replace(self.inner.info(), limits=SMALLER, encrypted=True)


def _checked(key: Key, events: Sequence[NewEvent]) -> int:
    """Reject an append that would be too large when encrypted. Returns the size of its data in
    bytes."""
    _check_place(key)
    for event in events:
        check_size("data", event.data, SMALLER.event_bytes)
    size = sum([len(event.data) for event in events])
    if size > SMALLER.append_bytes:
        raise InvalidValue(
            field="events",
            problem=f"has {size} bytes of data",
            remedy="append fewer events at a time",
            limit=SMALLER.append_bytes,
        )
    return size


async def _large(size: int, do: Callable[[*P], T], *given: *P) -> T:
    """Call `do` and return its result. The call runs in a thread if it processes many bytes."""
    return do(*given) if size < LARGE else await asyncio.to_thread(do, *given)


def _check_place(place: Scope | Key) -> None:
    """Reject the reserved session and tenant, in which the keys are stored."""
    if RESERVED in (place.tenant, place.session):
        raise InvalidValue(
            field="session" if place.session == RESERVED else "tenant",
            problem=f"cannot be {RESERVED!r}, which is reserved for the keys of this store",
            remedy="use another name",
        )
