"""Finds the store of each session. A session stays in the store that it was created in, and clients
need only its id.

Most sessions are in the default store. For a session in another store, the default store has an
entry under a reserved tenant, which contains the name of that store. So every replica finds every
session, and an operation on all sessions knows every store that may contain sessions.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

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
from ...stores.pages import every_row
from ...stores.port import Store
from ...stores.registry import StoreRegistry
from ..auth.callers import Caller
from ..engines import TenantStore
from .absence_guard import AbsenceGuard
from .circuit_breaker import CircuitBreaker
from .create_lock import turn
from .store_names import StoreNames

T = TypeVar("T")
TENANT = "~places:"  # + the tenant of the sessions
OWN = ("file", "sqlite", "postgres", "mongodb")  # stores that `location` identifies


class StoreChoice(Struct, frozen=True):
    """The kind and the options that select a store."""

    kind: str
    options: dict[str, Any] = {}

    def __str__(self) -> str:
        more = ", ".join(f"{name}={value}" for name, value in sorted(self.options.items()))
        return f"the {self.kind} store" + (f" with {more}" if more else "")


@dataclass(frozen=True)
class StoreOutcome:
    """The result of opening a store that may contain sessions: the open store, or the error."""

    kept: StoreChoice
    outcome: TenantStore | HoldfastError

    @property
    def place(self) -> TenantStore:
        """Return the open store. Raises the error that occurred when it was opened."""
        if isinstance(self.outcome, HoldfastError):
            raise self.outcome
        return self.outcome


class SessionLocator:
    """Opens the stores in the settings of a server, and finds the store of each session.

    While a store that may contain a session is unavailable, the session is not reported as missing
    for `unsure` seconds.
    """

    def __init__(
        self, registry: StoreRegistry, default: str, *, unsure: float | None = None
    ) -> None:
        self._registry, self.default = registry, default
        self.lookups, self.lists = CircuitBreaker(), CircuitBreaker()
        self.doubt = AbsenceGuard(self.lookups, unsure)
        self.naming = StoreNames()

    @property
    def order(self) -> list[str]:
        """The kinds of the stores: the default first, then the others in the order of the
        settings."""
        return [*dict.fromkeys([self.default, *self._registry.named])]

    @property
    def kinds(self) -> list[str]:
        return sorted(self.order)

    @property
    def _many(self) -> bool:
        return len(self.order) > 1 or self._registry.takes_options(self.default)

    async def store(self) -> Store:
        """Return the default store."""
        return await self._registry.get(self.default)

    async def place(
        self, tenant: str, kind: str | None = None, options: Mapping[str, Any] | None = None
    ) -> TenantStore:
        """Return a store by its kind, for a tenant. Raises `UnknownStore` or `InvalidValue`."""
        kind = kind or self.default
        self.check(kind, options)
        store = await self._registry.get(kind, options)
        await self.naming.learn(kind, store)
        return TenantStore(tenant, kind, store)

    def check(self, kind: str | None, options: Mapping[str, Any] | None) -> None:
        """Raise the same errors as `place`, without opening a store."""
        kind = kind or self.default
        if kind not in self.order:
            raise UnknownStore(kind=kind, available=self.kinds)
        self._registry.check(kind, options)

    async def everywhere(self, tenant: str) -> list[StoreOutcome]:
        """Return every store that may contain sessions of a tenant, each once: the stores of the
        settings, and further stores that are recorded for sessions, with other options or of a kind
        that the settings no longer have. The default store must respond; for any other store, the
        result may contain an error."""
        wanted = {_name(kept): kept for kept in map(StoreChoice, self.order)}
        query = Query(tenant=TENANT + tenant, order="created", newest_first=False)
        async for entry in every_row(await self.store(), query):
            if (kept := self._kept(entry)) is not None:
                wanted.setdefault(_name(kept), kept)
        found: list[StoreOutcome] = []
        for kept in wanted.values():
            try:
                place = await self.place(tenant, kept.kind, kept.options)
            except HoldfastError as error:
                found.append(StoreOutcome(kept, error))
                continue
            known = (one.outcome for one in found)
            if not any(isinstance(one, TenantStore) and same(one, place) for one in known):
                found.append(StoreOutcome(kept, place))
        return found

    def _kept(self, entry: Row | None) -> StoreChoice | None:
        """Return the store that an entry names, or None for a memory store of an earlier
        process."""
        if entry is None:
            return None
        kept = msgspec.convert(entry.metadata.get("kept"), StoreChoice)
        return None if kept.kind == "memory" and kept.kind not in self.order else kept

    async def find(
        self, caller: Caller, id: str, thread: str = "main", *, sure: bool = True
    ) -> tuple[TenantStore, Row]:
        """Return the store of a session and the row of one of its threads. The session must belong
        to the caller, unless the caller has the scope `sessions:all`; otherwise, and if it does not
        exist, raise `SessionNotFound`. While a store that may have the session is unavailable,
        raise `StoreUnavailable` instead, unless `sure` is False."""
        place = TenantStore(caller.tenant, self.default, await self.store())
        main = await place.store.row(Key(caller.tenant, id, "main"))
        if self._many and (main is None or main.sealed is not None or not _theirs(caller, main)):
            first = [(place, main)] if main is not None else []
            place, main = await self._living(caller, id, first, sure) or (place, None)
        row = main if _theirs(caller, main) else None
        if row is not None and thread != "main":
            row = await place.store.row(Key(caller.tenant, id, thread))
        if row is None:
            raise SessionNotFound(tenant=caller.tenant, session=id, thread=thread)
        return place, row

    async def _living(
        self, caller: Caller, id: str, first: list[tuple[TenantStore, Row]], sure: bool
    ) -> tuple[TenantStore, Row] | None:
        """Return a session of the caller that was created in, or moved to, a store other than the
        default. If the session is sealed in every store, return the store to which it was moved
        last."""
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

    async def ask(
        self,
        breaker: CircuitBreaker,
        tenant: str,
        kind: str,
        look: Callable[[Store], Awaitable[T]],
    ) -> tuple[TenantStore, T] | HoldfastError:
        """Call `look` with a store and return the result. Returns the error if the store is
        unavailable."""

        async def work() -> tuple[TenantStore, T]:
            place = await self.place(tenant, kind)  # may open the store
            return place, await look(place.store)

        try:
            return await breaker.ask(kind, work)
        except LogDamaged:
            raise
        except (StoreError, MissingExtra) as error:
            return error

    async def others(
        self, scope: Scope, kinds: Sequence[str], breaker: CircuitBreaker
    ) -> tuple[list[tuple[TenantStore, Row]], list[str]]:
        """Query the stores of these kinds for a session. Returns the stores that have it, and the
        kinds that are unavailable."""
        found: list[tuple[TenantStore, Row]] = []
        away: list[str] = []
        key = Key(scope.tenant, scope.session, "main")
        for kind in kinds:
            told = await self.ask(breaker, scope.tenant, kind, lambda store: store.row(key))
            if isinstance(told, HoldfastError):
                away.append(kind)
                continue
            place, row = told
            if row is None:
                self.doubt.gone(scope, kind)
            else:
                found.append((place, row))
                self.doubt.found(scope, kind)
        return found, away

    async def _elsewhere(self, tenant: str, id: str) -> TenantStore | None:
        store = await self.store()
        kept = self._kept(await store.row(Key(TENANT + tenant, id, "main")))
        return None if kept is None else await self.place(tenant, kept.kind, kept.options)

    @asynccontextmanager
    async def creation(
        self,
        place: TenantStore,
        id: str,
        options: Mapping[str, Any] | None = None,
        *,
        sure: bool,
        repeated: bool = False,
    ) -> AsyncGenerator[None, None]:
        """Context manager in which a session is created. It records the store of the session, and
        prevents other processes from creating a session with this id in another store. If the
        creation fails, the record is removed. A `repeated` request is allowed to find the session
        that it created earlier."""
        async with self._lock(place.tenant, id):
            main = Key(place.tenant, id, "main")
            if not repeated or await place.store.row(main) is None:
                await self.settle(place, id, options or {}, sure=sure)
            try:
                yield
            except HoldfastError:
                if await place.store.row(main) is None:
                    await self.forget(place, id)
                raise

    @asynccontextmanager
    async def _lock(self, tenant: str, id: str) -> AsyncGenerator[None, None]:
        if not self._many:
            yield
            return
        async with turn(await self.store(), Scope(TENANT + tenant, id)):
            yield

    async def settle(
        self, place: TenantStore, id: str, options: Mapping[str, Any], *, sure: bool = True
    ) -> None:
        """Record the store of a new session. Raises `SessionExists` if another store contains the
        session, and `StoreUnavailable` if that cannot be determined, unless `sure` is False."""
        if place.kind == self.default and not options:
            await self._settle_here(Scope(place.tenant, id), sure)
            return
        store, kept = await self.store(), StoreChoice(place.kind, dict(options))
        if await store.row(Key(place.tenant, id, "main")) is not None:
            raise SessionExists(tenant=place.tenant, session=id)
        created = ev.SessionCreated(metadata={"kept": msgspec.to_builtins(kept)})
        event = NewEvent.of("session.created", created)
        where = Key(TENANT + place.tenant, id, "main")
        try:
            await store.append(where, [event], expected=0, create=True)
        except HeadMoved:
            known = await self._elsewhere(place.tenant, id)
            if known is None:  # an entry for the memory store of an earlier process
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

    async def forget(self, place: TenantStore, id: str) -> None:
        """Remove the record of a session that was deleted from a store. A session with the same
        id in another store keeps its record."""
        if not self._many:
            return
        self.doubt.gone(Scope(place.tenant, id), place.kind)
        store, scope = await self.store(), Scope(TENANT + place.tenant, id)
        kept = self._kept(await store.row(Key(scope.tenant, id, "main")))
        if kept is None or kept.kind not in self.order:
            return
        if same(await self.place(place.tenant, kept.kind, kept.options), place):
            await store.delete(scope)


def _name(kept: StoreChoice) -> bytes:
    return msgspec.json.encode(kept, order="deterministic")


def same(one: TenantStore, other: TenantStore) -> bool:
    """Return whether two `TenantStore` objects refer to the same store. Their options may differ,
    since some options only say how a store is used."""
    if one.store is other.store:
        return True
    first, second = one.store.info(), other.store.info()
    return (first.kind, first.location) == (second.kind, second.location) and first.kind in OWN


def rank(row: Row) -> tuple[bool, int]:
    """Sort key for several rows of one session. The highest is the row that is not sealed, or else
    the row that was sealed last, which has the most events."""
    return row.sealed is None, 0 if row.sealed is None else row.head


def _theirs(caller: Caller, row: Row | None) -> bool:
    return row is not None and (row.user == caller.principal or caller.may("sessions:all"))
