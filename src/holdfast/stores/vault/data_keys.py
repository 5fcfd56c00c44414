"""Reads, creates and re-encrypts the data keys of all tenants of a store."""

from __future__ import annotations

import time
from collections import OrderedDict
from contextlib import aclosing

from msgspec import Struct

from ...errors import HoldfastError, InvalidValue, KeyMissing
from ...log.catalog import Query
from ...log.catalog.encrypted_preview import BOXED
from ...log.events import Key, Scope
from ..keyed_locks import KeyedLocks
from ..port import Store
from .key_rings import Claim, DataKey, Ring, claim_of, data_key, locked, new_data_key
from .keys import RESERVED, Master, Vault

TENANTS = 4_096  # tenants whose keys are cached
NOWHERE = 1_000  # ids of missing keys that are remembered
TENANT = "tenant:"
AGAIN = 60.0  # seconds for which a missing key is not looked up again
TRIED = 8  # tenants whose keys are tried when a store is opened


class DataKeyInfo(Struct, frozen=True):
    """Information about a data key, without the key itself: the master key that encrypts it now,
    and the first master key of the vault when it was created. `readable` means that the vault can
    decrypt it."""

    tenant: str
    id: str
    master: str
    made: str
    readable: bool


class Resealed(Struct, frozen=True):
    """The result of a re-encryption for one tenant: the number of data keys that were re-encrypted
    with the vault's first key, and the names of the master keys in `left`, which encrypt the
    remaining data keys and are not in the vault."""

    tenant: str
    changed: int
    left: tuple[str, ...] = ()


class Rings:
    """The data keys of the tenants of a store. The keys of a tenant are read on first use, and
    cached."""

    def __init__(self, store: Store, vault: Vault) -> None:
        self._store = store
        self._vault = vault
        self._rings: OrderedDict[str, Ring] = OrderedDict()
        self._nowhere: dict[tuple[str, str], float] = {}
        self._marked: set[str] = set()
        self._turns = KeyedLocks[str]()

    def known(self, tenant: str) -> Ring | None:
        """Return the data keys of a tenant if they are cached, else None."""
        return self._rings.get(tenant)

    async def reading(self, tenant: str) -> Ring:
        """Return the data keys of a tenant for decryption."""
        ring = self._rings.get(tenant)
        if ring is None:
            async with self._turns.of(tenant):
                ring = self._rings.get(tenant) or await self._load(tenant)
        return ring

    async def again(self, tenant: str, wanted: str) -> Ring:
        """Read the data keys of a tenant again, because the key `wanted` was not found, and return
        them. If it is still missing, it is not looked up again for some time."""
        ring = await self.reading(tenant)
        if self._nowhere.get((tenant, wanted), 0.0) < time.monotonic():
            async with self._turns.of(tenant):
                ring = await self._load(tenant)
            if wanted not in ring.keys and wanted not in ring.locked:
                if len(self._nowhere) >= NOWHERE:
                    self._nowhere.clear()
                self._nowhere[tenant, wanted] = time.monotonic() + AGAIN
        return ring.surely()

    async def writing(self, tenant: str) -> Ring:
        """Return the data keys of a tenant, including a key for encryption. A new key is created
        unless the tenant has a key that was created under the vault's first master key and is
        encrypted with it."""
        ring = await self.reading(tenant)
        if ring.current is None or tenant not in self._marked:
            async with self._turns.of(tenant):
                ring = await self._load(tenant)
                if ring.current is None:
                    ring = await self._make(ring)
                await self._mark(tenant)
        return ring

    async def _mark(self, tenant: str) -> None:
        """Register the tenant as one that has keys, so that a rotation includes it."""
        await self._store.claim(RESERVED, TENANT + tenant, Scope(RESERVED, RESERVED))
        if len(self._marked) >= TENANTS:
            self._marked.clear()
        self._marked.add(tenant)

    async def check_keys(self) -> None:
        """Check the keys of some tenants. Raises `KeyMissing` if the vault can decrypt none of
        them."""
        tried = [await self.reading(tenant) for tenant in (await self.tenants())[:TRIED]]
        if tried and not any(ring.keys or ring.empty for ring in tried):
            raise self._unable(tried[0])

    async def check_tenant(self, tenant: str) -> None:
        """Raise an error if the store cannot write to this tenant. Changes nothing."""
        ring = await self.reading(tenant)
        if ring.empty:
            await self._checked_empty(tenant)
        elif not ring.keys:
            raise self._unable(ring)

    def _unable(self, ring: Ring) -> KeyMissing:
        names = sorted(set(ring.locked.values()))
        known = [name for name in names if self._master(ring.tenant, name)]
        if not known:
            return locked(ring.tenant, names[0])
        problem = f"the vault's key {known[0]!r} is not the key that this store was encrypted with"
        return KeyMissing(problem=problem, tenant=ring.tenant, key=known[0])

    async def tenants(self) -> list[str]:
        """Return the tenants that have data keys."""
        names = await self._store.claims(Scope(RESERVED, RESERVED))
        return [name.removeprefix(TENANT) for name in names if name.startswith(TENANT)]

    async def listed(self, tenant: str) -> list[DataKeyInfo]:
        """Return information about the data keys of a tenant, read from the store."""
        return [
            DataKeyInfo(
                tenant, claim.id, claim.master, claim.made, self._key(tenant, claim) is not None
            )
            for claim in await self._claims(tenant)
        ]

    async def reseal(self, tenant: str) -> Resealed:
        """Encrypt the data keys of a tenant with the vault's first key, and create a new data key
        for later writes. No key is lost if this is interrupted."""
        first, owner = self._vault.masters(tenant)[0], Scope(tenant, RESERVED)
        found = [(claim, self._key(tenant, claim)) for claim in await self._claims(tenant)]
        done = {key.id for claim, key in found if key and claim.master == first.name}
        changed: set[str] = set()
        for claim, key in found:
            if key is None or claim.master == first.name:
                continue
            if key.id not in done:
                await self._store.claim(tenant, claim_of(first, tenant, key), owner)
                done.add(key.id)
            await self._store.unclaim(tenant, claim.name, owner)
            changed.add(key.id)
        async with self._turns.of(tenant):
            ring = await self._load(tenant)
        if not ring.locked:
            await self.writing(tenant)
        return Resealed(tenant, len(changed), tuple(sorted(set(ring.locked.values()))))

    async def _claims(self, tenant: str) -> list[Claim]:
        names = await self._store.claims(Scope(tenant, RESERVED))
        return [claim for claim in map(Claim.parse, names) if claim is not None]

    def _key(self, tenant: str, claim: Claim) -> DataKey | None:
        master = self._master(tenant, claim.master)
        return master and data_key(master, tenant, claim)

    def _master(self, tenant: str, name: str) -> Master | None:
        return next((key for key in self._vault.masters(tenant) if key.name == name), None)

    async def _load(self, tenant: str) -> Ring:
        keys: dict[str, DataKey] = {}
        locked: dict[str, str] = {}
        for claim in await self._claims(tenant):
            key = self._key(tenant, claim)
            if key is None:
                locked[claim.id] = claim.master
            elif key.id not in keys or key.master == self._vault.masters(tenant)[0].name:
                keys[key.id] = key
        first = self._vault.masters(tenant)[0].name
        # Compare both, so that the owner of an old master key cannot choose the key for new data.
        able = [key for key in keys.values() if (key.made, key.master) == (first, first)]
        ring = Ring(
            tenant,
            keys,
            current=max(able, default=None),
            locked={id: name for id, name in locked.items() if id not in keys},
        )
        self._rings[tenant] = ring
        self._rings.move_to_end(tenant)
        if len(self._rings) > TENANTS:
            self._rings.popitem(last=False)
        return ring

    async def _make(self, ring: Ring) -> Ring:
        tenant = ring.tenant
        if ring.empty:
            ring = await self._checked_empty(tenant)
            if ring.current is not None:
                return ring  # another process was faster
        elif not ring.keys:
            # A vault that cannot read any data of a tenant must not write to it either.
            raise self._unable(ring)
        await self._mark(
            tenant
        )  # before the key is created, so that every tenant with a key is registered
        key = new_data_key(self._vault.masters(tenant)[0], tenant)
        await self._store.claim(tenant, key.claim, Scope(tenant, RESERVED))
        return await self._load(tenant)

    async def _checked_empty(self, tenant: str) -> Ring:
        """Check that a tenant without data keys has no sessions, and return its empty ring."""
        found = await self._store.find(Query(tenant=tenant), limit=1)
        ring = await self._load(tenant)  # every encrypted session began after a key was created
        if found.items and ring.empty:
            raise await self._without_keys(found.items[0].key)
        return ring

    async def _without_keys(self, key: Key) -> HoldfastError:
        async with aclosing(self._store.read(key, limit=1)) as events:
            async for event in events:
                if event.v > BOXED:
                    problem = (
                        f"the store has lost the data keys of tenant {key.tenant!r}, which are "
                    )
                    problem += f"claims of session {RESERVED!r}: restore them from a backup"
                    return KeyMissing(problem=problem, tenant=key.tenant, key="")
        return InvalidValue(
            field="vault",
            problem=f"tenant {key.tenant!r} has sessions in this store that are not encrypted",
            remedy="move them to an encrypted store with `holdfast copy --move`",
        )
