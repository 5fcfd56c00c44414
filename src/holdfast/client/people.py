"""Exports and erases the data that a server stores about a user, in all sessions."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from ..values.records import PersonRecord
from ..wire import ErasedPerson
from .transport import Query, Transport, decoded

PEOPLE = "/v1/people"  # the user name is sent in the query, since it may contain any character


class People:
    """Exports and erases all data of a user, in every store of the server, or only in the store of
    the kind `store`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def export(
        self, user: str, *, shared: bool = False, store: str | None = None
    ) -> AsyncGenerator[PersonRecord, None]:
        """Yield all stored data of a user, event by event; with `shared`, also their events in the
        sessions of other users."""
        query: Query = {"user": user, "shared": shared, "store": store}
        async with self._transport.lines(PEOPLE, query, accept="application/x-ndjson") as lines:
            async for line in lines:
                yield decoded(line, PersonRecord)

    async def erase(
        self,
        user: str,
        *,
        reason: str,
        shared: bool = True,
        dry_run: bool = False,
        store: str | None = None,
    ) -> ErasedPerson:
        """Delete a user's sessions, and erase their events in all other sessions. A store that
        could not be reached is listed in `remains`, and as `failed` in `stores`."""
        query: Query = {
            "user": user,
            "reason": reason,
            "shared": shared,
            "dry_run": dry_run,
            "store": store,
        }
        return await self._transport.call("DELETE", PEOPLE, ErasedPerson, query=query)
