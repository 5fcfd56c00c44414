"""The data keys of all tenants: read from the store, created, and re-encrypted."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from contextlib import aclosing

from msgspec import Struct

from ...errors import HoldfastError, InvalidValue, KeyMissing
from ...log.catalog import Query
from ...log.catalog.encrypted_preview import BOXED
from ...log.events import Key, Scope
from ..port import Store
from .key_rings import Claim, DataKey, Ring, claim_of, data_key, locked, new_data_key
from .keys import RESERVED, Master, Vault

TENANTS = 4_096  # tenants whose keys a process remembers
NOWHERE = 1_000  # ids of no key that it remembers of each
TENANT = "tenant:"
AGAIN = 60.0  # seconds for which a key that is nowhere is not looked for
TRIED = 8  # tenants whose keys are tried when a store is opened


class DataKeyInfo(Struct, frozen=True):
    """A data key, without itself: which master key it is encrypted with now, and which was first
    when it was made. `readable`: the vault can decrypt it."""

    tenant: str
    id: str
    master: str
    made: str
    readable: bool


class Resealed(Struct, frozen=True):
    """How many data keys of a tenant were not encrypted with the vault's first key yet, and the
    master keys of those that still are not, since the vault does not have them."""

    tenant: str
    changed: int
    left: tuple[str, ...] = ()


class Rings:
    """The data keys of the tenants of a store, read when they are first needed."""

    def __init__(self, store: Store, vault: Vault) -> None:
        self._store = store
        self._vault = vault
        self._rings: OrderedDict[str, Ring] = OrderedDict()
        self._nowhere: dict[tuple[str, str], float] = {}
        self._marked: set[str] = set()
        self._turns: dict[str, asyncio.Lock] = {}

    def known(self, tenant: str) -> Ring | None:
        """The keys of a tenant, if they were read before."""
        return self._rings.get(tenant)

    async def reading(self, tenant: str) -> Ring:
        """The keys of a tenant, to decrypt with."""
        ring = self._rings.get(tenant)
        if ring is None:
            async with self._turn(tenant):
                ring = self._rings.get(tenant) or await self._load(tenant)
        return ring

    async def again(self, tenant: str, wanted: str) -> Ring:
        """The keys of a tenant, among which `wanted` was not: as the store has them now. What is
        not there is not looked for again for a while."""
        ring = await self.reading(tenant)
        if self._nowhere.get((tenant, wanted), 0.0) < time.monotonic():
            async with self._turn(tenant):
                ring = await self._load(tenant)
            if wanted not in ring.keys and wanted not in ring.locked:
                if len(self._nowhere) >= NOWHERE:
                    self._nowhere.clear()
                self._nowhere[tenant, wanted] = time.monotonic() + AGAIN
        return ring.surely()

    async def writing(self, tenant: str) -> Ring:
        """The keys of a tenant, with one to encrypt with. A new key is created if there is none
        that was created under the vault's first master key and is encrypted with it."""
        ring = await self.reading(tenant)
        if ring.current is None or tenant not in self._marked:
            async with self._turn(tenant):
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
        """Reject a vault that can read nothing of any tenant that is tried (`KeyMissing`)."""
        tried = [await self.reading(tenant) for tenant in (await self.tenants())[:TRIED]]
        if tried and not any(ring.keys or ring.empty for ring in tried):
            raise self._unable(tried[0])

    async def check_tenant(self, tenant: str) -> None:
        """Reject a tenant that could not be written to; changes nothing."""
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
        problem = f"key {known[0]!r} of the vault is not the one that the store was encrypted with"
        return KeyMissing(problem=problem, tenant=ring.tenant, key=known[0])

    def _turn(self, tenant: str) -> asyncio.Lock:
        if len(self._turns) > TENANTS:
            self._turns = {name: turn for name, turn in self._turns.items() if turn.locked()}
        return self._turns.setdefault(tenant, asyncio.Lock())

    async def tenants(self) -> list[str]:
        """The tenants that have data keys."""
        names = await self._store.claims(Scope(RESERVED, RESERVED))
        return [name.removeprefix(TENANT) for name in names if name.startswith(TENANT)]

    async def listed(self, tenant: str) -> list[DataKeyInfo]:
        """What the store keeps of a tenant's data keys."""
        return [
            DataKeyInfo(
                tenant, claim.id, claim.master, claim.made, self._key(tenant, claim) is not None
            )
            for claim in await self._claims(tenant)
        ]

    async def reseal(self, tenant: str) -> Resealed:
        """Encrypt the data keys of a tenant with the vault's first key, and have a new one for
        what is written from now on. Cut at any moment, no key is lost."""
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
        async with self._turn(tenant):
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
        # Both: who has an old master key must not choose what new data are encrypted with.
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
                return ring  # somebody was faster
        elif not ring.keys:
            # A vault that can read nothing of a tenant writes nothing to it either.
            raise self._unable(ring)
        await self._mark(tenant)  # before there is one: nobody is to write past it
        key = new_data_key(self._vault.masters(tenant)[0], tenant)
        await self._store.claim(tenant, key.claim, Scope(tenant, RESERVED))
        return await self._load(tenant)

    async def _checked_empty(self, tenant: str) -> Ring:
        """Reject a tenant that has sessions and no keys."""
        found = await self._store.find(Query(tenant=tenant), limit=1)
        ring = await self._load(tenant)  # whoever begins an encrypted session made a key before
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
                    problem += f"claims of session {RESERVED!r}: put them back from a backup"
                    return KeyMissing(problem=problem, tenant=key.tenant, key="")
        return InvalidValue(
            field="vault",
            problem=f"tenant {key.tenant!r} has sessions here that are not encrypted",
            remedy="move them into an encrypted store: holdfast copy --move",
        )
