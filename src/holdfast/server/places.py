"""Where sessions are: each in the store that it was begun in, found again by its id alone.

Most are in the default store. One that was asked for elsewhere has an entry in the default store,
under a tenant of the server's own, that says in which. So any replica finds any session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from .. import events as ev
from ..catalog import Row
from ..errors import HeadMoved, SessionExists, SessionNotFound
from ..events import Key, NewEvent, Scope
from ..store import Store
from ..stores.registry import StoreRegistry
from .auth import Caller
from .engines import Place

TENANT = "~places:"  # + the tenant whose sessions they are


class Kept(Struct, frozen=True):
    """A store by its kind and options."""

    kind: str
    options: dict[str, Any] = {}


class Places:
    """The stores of a server, and which session is in which."""

    def __init__(self, registry: StoreRegistry, default: str) -> None:
        self._registry, self.default = registry, default

    @property
    def kinds(self) -> list[str]:
        return self._registry.kinds

    async def store(self) -> Store:
        """The default store."""
        return await self._registry.get(self.default)

    async def place(
        self, tenant: str, kind: str | None = None, options: Mapping[str, Any] | None = None
    ) -> Place:
        """A store by its kind, for a tenant (`UnknownStore`, `InvalidValue`)."""
        kind = kind or self.default
        return Place(tenant, kind, await self._registry.get(kind, options))

    def check(self, kind: str | None, options: Mapping[str, Any] | None) -> None:
        """Refuse what `place` would refuse, opening nothing."""
        self._registry.check(kind or self.default, options)

    async def find(self, caller: Caller, id: str, thread: str = "main") -> tuple[Place, Row]:
        """A session of the caller's, or of anybody's with the scope `sessions:all`, and the row
        of a thread of it. What is not theirs and what is not there are answered alike."""
        place = await self.place(caller.tenant)
        main = await place.store.row(Key(caller.tenant, id, "main"))
        if not _theirs(caller, main) and len(self.kinds) > 1:
            place = await self._elsewhere(caller.tenant, id) or place
            main = await place.store.row(Key(caller.tenant, id, "main"))
        if main is None or not _theirs(caller, main):
            raise SessionNotFound(tenant=caller.tenant, session=id, thread=thread)
        if thread == "main":
            return place, main
        row = await place.store.row(Key(caller.tenant, id, thread))
        if row is None:
            raise SessionNotFound(tenant=caller.tenant, session=id, thread=thread)
        return place, row

    async def _elsewhere(self, tenant: str, id: str) -> Place | None:
        store = await self.store()
        entry = await store.row(Key(TENANT + tenant, id, "main"))
        if entry is None:
            return None
        kept = msgspec.convert(entry.metadata.get("kept"), Kept)
        return await self.place(tenant, kept.kind, kept.options)

    async def settle(self, place: Place, id: str, options: Mapping[str, Any]) -> None:
        """Write down where a session is going to be (`SessionExists` where it is another)."""
        if place.kind == self.default and not options:
            elsewhere = await self._elsewhere(place.tenant, id) if len(self.kinds) > 1 else None
            if elsewhere is not None:
                raise SessionExists(tenant=place.tenant, session=id)
            return
        store, kept = await self.store(), Kept(place.kind, dict(options))
        if await store.row(Key(place.tenant, id, "main")) is not None:
            raise SessionExists(tenant=place.tenant, session=id)
        created = ev.SessionCreated(metadata={"kept": msgspec.to_builtins(kept)})
        event = NewEvent.of("session.created", created)
        try:
            where = Key(TENANT + place.tenant, id, "main")
            await store.append(where, [event], expected=0, create=True)
        except HeadMoved:
            known = await self._elsewhere(place.tenant, id)
            if known is not None and known.store is not place.store:
                raise SessionExists(tenant=place.tenant, session=id) from None

    async def forget(self, place: Place, id: str) -> None:
        """Forget where a session was that is gone."""
        if len(self.kinds) > 1:
            await (await self.store()).delete(Scope(TENANT + place.tenant, id))


def _theirs(caller: Caller, row: Row | None) -> bool:
    return row is not None and (row.user == caller.principal or caller.may("sessions:all"))
