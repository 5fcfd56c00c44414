"""Where sessions are: each in the store that it was begun in, found again by its id alone.

Most are in the default store. One that was asked for elsewhere has an entry in the default store,
under a tenant of the server's own, that says in which. So any replica finds any session, and
whoever must reach all of them knows every store that there can be some in.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from ...errors import (
    HeadMoved,
    HoldfastError,
    LogDamaged,
    MissingExtra,
    SessionExists,
    SessionNotFound,
    StoreError,
    UnknownStore,
)
from ...log import events as ev
from ...log.catalog import Query, Row
from ...log.events import Key, NewEvent, Scope
from ...stores.port import Store
from ...stores.registry import StoreRegistry
from ..auth.callers import Caller
from ..engines import Place
from .absence_guard import Doubt
from .circuit_breaker import Reaching
from .create_lock import turn
from .store_names import Naming

TENANT = "~places:"  # + the tenant whose sessions they are
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
    name, and no others that the registry may know. `unsure` is for how many seconds it is in doubt
    what only a store may know that is away."""

    def __init__(
        self, registry: StoreRegistry, default: str, *, unsure: float | None = None
    ) -> None:
        self._registry, self.default = registry, default
        self.lookups, self.lists = Reaching(), Reaching()
        self.doubt = Doubt(self.lookups, unsure)
        self.naming = Naming()

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
        store = await self._registry.get(kind, options)
        await self.naming.learn(kind, store)
        return Place(tenant, kind, store)

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
            if not any(isinstance(one, Place) and same(one, place) for one in known):
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

    async def find(
        self, caller: Caller, id: str, thread: str = "main", *, sure: bool = True
    ) -> tuple[Place, Row]:
        """A session of the caller's, or of anybody's with the scope `sessions:all`, and the row
        of a thread of it. What is not theirs and what is not there are answered alike; so are
        both while a store cannot be asked that may have it (`StoreUnavailable`), unless the caller
        need not be `sure`."""
        place = Place(caller.tenant, self.default, await self.store())
        main = await place.store.row(Key(caller.tenant, id, "main"))
        if self._many and (main is None or main.sealed is not None or not _theirs(caller, main)):
            first = [(place, main)] if main is not None else []
            place, main = await self._living(caller, id, first, sure) or (place, None)
        if main is None or not _theirs(caller, main):
            raise SessionNotFound(tenant=caller.tenant, session=id, thread=thread)
        if thread == "main":
            return place, main
        row = await place.store.row(Key(caller.tenant, id, thread))
        if row is None:
            raise SessionNotFound(tenant=caller.tenant, session=id, thread=thread)
        return place, row

    async def _living(
        self, caller: Caller, id: str, first: list[tuple[Place, Row]], sure: bool
    ) -> tuple[Place, Row] | None:
        """Where a session of the caller's goes on that is not in the default store, or was moved
        from there. One that was moved from all of them is where it was last."""
        named, found = await self._elsewhere(caller.tenant, id), [*first]
        if named is not None:
            row = await named.store.row(Key(caller.tenant, id, "main"))
            if row is not None and row.sealed is None and _theirs(caller, row):
                return named, row
            found += [(named, row)] if row is not None else []
        more, away = await self.others(Scope(caller.tenant, id), self.order[1:], self.lookups)
        found += [one for one in more if named is None or one[0].store is not named.store]
        mine = [(place, row) for place, row in found if _theirs(caller, row)]
        best = max(mine, key=lambda one: rank(one[1]), default=None)
        if sure and (best is None or best[1].sealed is not None):
            self.doubt.check(away, Scope(caller.tenant, id))
        return best

    async def others(
        self, scope: Scope, kinds: Sequence[str], reaching: Reaching
    ) -> tuple[list[tuple[Place, Row]], list[str]]:
        """Where a session is among some stores, whatever entries say, and which of these could
        not be asked."""
        found: list[tuple[Place, Row]] = []
        away: list[str] = []

        async def look(kind: str) -> tuple[Place, Row | None]:
            place = await self.place(scope.tenant, kind)
            return place, await place.store.row(Key(scope.tenant, scope.session, "main"))

        for kind in kinds:
            try:
                place, row = await reaching.ask(kind, partial(look, kind))
            except LogDamaged:
                raise
            except (StoreError, MissingExtra):
                away.append(kind)
                continue
            if row is not None:
                found.append((place, row))
                self.doubt.found(scope, kind)
            else:
                self.doubt.gone(scope, kind)
        return found, away

    async def _elsewhere(self, tenant: str, id: str) -> Place | None:
        store = await self.store()
        entry = await store.row(Key(TENANT + tenant, id, "main"))
        if entry is None or (kept := self._kept(entry)) is None:
            return None
        return await self.place(tenant, kept.kind, kept.options)

    @asynccontextmanager
    async def beginning(self, tenant: str, id: str) -> AsyncGenerator[None, None]:
        """While a session is settled and begun: meanwhile nobody begins one of its id elsewhere."""
        if not self._many:
            yield
            return
        async with turn(await self.store(), Scope(TENANT + tenant, id)):
            yield

    async def settle(
        self, place: Place, id: str, options: Mapping[str, Any], *, sure: bool = True
    ) -> None:
        """Write down where a session is going to be (`SessionExists` where it is another;
        `StoreUnavailable` where that cannot be known, unless the caller need not be `sure`)."""
        if place.kind == self.default and not options:
            await self._settle_here(Scope(place.tenant, id), sure)
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

    async def _settle_here(self, scope: Scope, sure: bool) -> None:
        if not self._many:
            return
        named = await self._elsewhere(scope.tenant, scope.session)
        found, away = await self.others(scope, self.order[1:], self.lookups)
        if named is not None or found:
            raise SessionExists(tenant=scope.tenant, session=scope.session)
        if sure:
            self.doubt.check(away, scope)

    async def forget(self, place: Place, id: str) -> None:
        """Forget where a session was that is gone. One of the same id in another store is not
        meant."""
        if not self._many:
            return
        self.doubt.gone(Scope(place.tenant, id), place.kind)
        store = await self.store()
        entry = await store.row(Key(TENANT + place.tenant, id, "main"))
        if entry is None or (kept := self._kept(entry)) is None or kept.kind not in self.order:
            return
        if same(await self.place(place.tenant, kept.kind, kept.options), place):
            await store.delete(Scope(TENANT + place.tenant, id))


def _name(kept: Kept) -> bytes:
    return msgspec.json.encode(kept, order="deterministic")


def same(one: Place, other: Place) -> bool:
    """Whether two are one store: options may say how it is used, and not which it is."""
    if one.store is other.store:
        return True
    first, second = one.store.info(), other.store.info()
    return (first.kind, first.location) == (second.kind, second.location) and first.kind in OWN


def rank(row: Row) -> tuple[bool, int]:
    """Which of several rows of one session is the session: the one that goes on, or else the one
    that was sealed last, which has the most events."""
    return row.sealed is None, 0 if row.sealed is None else row.head


def _theirs(caller: Caller, row: Row | None) -> bool:
    return row is not None and (row.user == caller.principal or caller.may("sessions:all"))
