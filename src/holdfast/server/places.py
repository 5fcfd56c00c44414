"""Where sessions are: each in the store that it was begun in, found again by its id alone.

Most are in the default store. One that was asked for elsewhere has an entry in the default store,
under a tenant of the server's own, that says in which. So any replica finds any session, and
whoever must reach all of them knows every store that there can be some in.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from .. import events as ev
from ..catalog import Query, Row
from ..errors import HeadMoved, HoldfastError, SessionExists, SessionNotFound, UnknownStore
from ..events import Key, NewEvent, Scope
from ..store import Store
from ..stores.registry import StoreRegistry
from .auth import Caller
from .engines import Place

TENANT = "~places:"  # + the tenant whose sessions they are
BRIEFLY = 1.0  # seconds that another store has to say whether it has a session
BATCH = 500  # entries that are read at a time
OWN = ("file", "sqlite", "postgres", "mongodb")  # whose `location` names the place


class Kept(Struct, frozen=True):
    """A store by its kind and options."""

    kind: str
    options: dict[str, Any] = {}

    def __str__(self) -> str:
        more = ", ".join(f"{name}={value}" for name, value in sorted(self.options.items()))
        return f"the {self.kind} store" + (f" with {more}" if more else "")


@dataclass(frozen=True)
class Reached:
    """A store that sessions can be in: open, or why it is not."""

    kept: Kept
    outcome: Place | HoldfastError

    @property
    def place(self) -> Place:
        """The open store; raises what kept it from opening."""
        if isinstance(self.outcome, HoldfastError):
            raise self.outcome
        return self.outcome


class Places:
    """The stores of a server, and which session is in which. It has those that its settings
    name, and no others that the registry may know."""

    def __init__(self, registry: StoreRegistry, default: str) -> None:
        self._registry, self.default = registry, default

    @property
    def order(self) -> list[str]:
        """The kinds, the default first and the others as the settings name them."""
        return [*dict.fromkeys([self.default, *self._registry.named])]

    @property
    def kinds(self) -> list[str]:
        return sorted(self.order)

    @property
    def _many(self) -> bool:
        return len(self.order) > 1 or self._registry.takes_options(self.default)

    async def store(self) -> Store:
        """The default store."""
        return await self._registry.get(self.default)

    async def place(
        self, tenant: str, kind: str | None = None, options: Mapping[str, Any] | None = None
    ) -> Place:
        """A store by its kind, for a tenant (`UnknownStore`, `InvalidValue`)."""
        kind = kind or self.default
        self.check(kind, options)
        return Place(tenant, kind, await self._registry.get(kind, options))

    def check(self, kind: str | None, options: Mapping[str, Any] | None) -> None:
        """Refuse what `place` would refuse, opening nothing."""
        kind = kind or self.default
        if kind not in self.order:
            raise UnknownStore(kind=kind, available=self.kinds)
        self._registry.check(kind, options)

    async def everywhere(self, tenant: str) -> list[Reached]:
        """Every store that sessions of a tenant can be in, each once: those of the settings, and
        those with options of their own or of kinds that are no more, as their entries name them.
        The default store must answer; what is wrong with another is told."""
        wanted = {_name(kept): kept for kept in map(Kept, self.order)}
        async for entry in self._entries(tenant):
            if (kept := self._kept(entry)) is not None:
                wanted.setdefault(_name(kept), kept)
        found: list[Reached] = []
        for kept in wanted.values():
            try:
                place = await self.place(tenant, kept.kind, kept.options)
            except HoldfastError as error:
                found.append(Reached(kept, error))
                continue
            known = (one.outcome for one in found)
            if not any(isinstance(one, Place) and _same(one, place) for one in known):
                found.append(Reached(kept, place))
        return found

    async def _entries(self, tenant: str) -> AsyncGenerator[Row, None]:
        store, cursor = await self.store(), None
        query = Query(tenant=TENANT + tenant, order="created", newest_first=False)
        while True:
            page = await store.find(query, cursor=cursor, limit=BATCH)
            for entry in page.items:
                yield entry
            if (cursor := page.cursor) is None:
                return

    def _kept(self, entry: Row) -> Kept | None:
        """Which store an entry names; None for one that went with its process."""
        kept = msgspec.convert(entry.metadata.get("kept"), Kept)
        return None if kept.kind == "memory" and kept.kind not in self.order else kept

    async def find(self, caller: Caller, id: str, thread: str = "main") -> tuple[Place, Row]:
        """A session of the caller's, or of anybody's with the scope `sessions:all`, and the row
        of a thread of it. What is not theirs and what is not there are answered alike."""
        place = Place(caller.tenant, self.default, await self.store())
        main = await place.store.row(Key(caller.tenant, id, "main"))
        if self._many and (main is None or main.sealed is not None or not _theirs(caller, main)):
            place, main = await self._living(caller, id) or (place, main)
        if main is None or not _theirs(caller, main):
            raise SessionNotFound(tenant=caller.tenant, session=id, thread=thread)
        if thread == "main":
            return place, main
        row = await place.store.row(Key(caller.tenant, id, thread))
        if row is None:
            raise SessionNotFound(tenant=caller.tenant, session=id, thread=thread)
        return place, row

    async def _living(self, caller: Caller, id: str) -> tuple[Place, Row] | None:
        """Where a session of the caller's goes on that is not in the default store, or was moved
        from there. One that was moved from all of them is where it was found first."""
        named, found = await self._elsewhere(caller.tenant, id), list[tuple[Place, Row]]()
        if named is not None:
            row = await named.store.row(Key(caller.tenant, id, "main"))
            found += [(named, row)] if row is not None else []
        found += await self._unnamed(caller.tenant, id, named)
        mine = [(place, row) for place, row in found if _theirs(caller, row)]
        return next((one for one in mine if one[1].sealed is None), mine[0] if mine else None)

    async def _unnamed(self, tenant: str, id: str, named: Place | None) -> list[tuple[Place, Row]]:
        """Where a session is that no entry, or another one, names: in the other stores of the
        settings, but for one that is away or slow to say so."""
        found = []
        for kind in self.order[1:]:
            try:
                async with asyncio.timeout(BRIEFLY):
                    place = await self.place(tenant, kind)
                    other = named is None or place.store is not named.store
                    row = await place.store.row(Key(tenant, id, "main")) if other else None
            except (HoldfastError, TimeoutError):
                continue
            found += [(place, row)] if row is not None else []
        return found

    async def _elsewhere(self, tenant: str, id: str) -> Place | None:
        store = await self.store()
        entry = await store.row(Key(TENANT + tenant, id, "main"))
        if entry is None or (kept := self._kept(entry)) is None:
            return None
        return await self.place(tenant, kept.kind, kept.options)

    async def settle(self, place: Place, id: str, options: Mapping[str, Any]) -> None:
        """Write down where a session is going to be (`SessionExists` where it is another)."""
        if place.kind == self.default and not options:
            named = await self._elsewhere(place.tenant, id) if self._many else None
            if named is not None or await self._unnamed(place.tenant, id, None):
                raise SessionExists(tenant=place.tenant, session=id)
            return
        store, kept = await self.store(), Kept(place.kind, dict(options))
        if await store.row(Key(place.tenant, id, "main")) is not None:
            raise SessionExists(tenant=place.tenant, session=id)
        created = ev.SessionCreated(metadata={"kept": msgspec.to_builtins(kept)})
        event = NewEvent.of("session.created", created)
        where = Key(TENANT + place.tenant, id, "main")
        try:
            await store.append(where, [event], expected=0, create=True)
        except HeadMoved:
            known = await self._elsewhere(place.tenant, id)
            if known is None:  # the store that it names went with its process
                await store.delete(Scope(where.tenant, id))
                await store.append(where, [event], expected=0, create=True)
            elif known.store is not place.store:
                raise SessionExists(tenant=place.tenant, session=id) from None

    async def forget(self, place: Place, id: str) -> None:
        """Forget where a session was that is gone. One of the same id in another store is not
        meant."""
        if not self._many:
            return
        store = await self.store()
        entry = await store.row(Key(TENANT + place.tenant, id, "main"))
        if entry is None or (kept := self._kept(entry)) is None or kept.kind not in self.order:
            return
        if _same(await self.place(place.tenant, kept.kind, kept.options), place):
            await store.delete(Scope(TENANT + place.tenant, id))


def _name(kept: Kept) -> bytes:
    return msgspec.json.encode(kept, order="deterministic")


def _same(one: Place, other: Place) -> bool:
    """Whether two are one store: options may say how it is used, and not which it is."""
    if one.store is other.store:
        return True
    first, second = one.store.info(), other.store.info()
    return (first.kind, first.location) == (second.kind, second.location) and first.kind in OWN


def _theirs(caller: Caller, row: Row | None) -> bool:
    return row is not None and (row.user == caller.principal or caller.may("sessions:all"))
