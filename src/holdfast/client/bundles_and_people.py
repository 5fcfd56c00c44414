"""What a server does for more than one session: bundles in and out, and what it holds of a
person."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Literal

from ..values.records import PersonRecord
from ..wire import ErasedPerson
from ..wire.bundles import BundleShown, BundleTaken
from .transport import Query, Transport, decoded, part

ZIP = "application/zip"
PEOPLE = "/v1/people"  # by name in the query: it may be of any characters


class Matter:
    """One matter of a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport


class Bundles(Matter):
    """Sessions as files, to keep or to take elsewhere."""

    async def export(
        self,
        id: str,
        *,
        mode: str = "sanitized",
        purpose: Literal["share", "copy"] = "share",
        form: Literal["archive", "json"] = "archive",
        threads: Sequence[str] | None = None,
        upto: int | None = None,
    ) -> bytes:
        """A session as a bundle, as `holdfast.bundle.export_bundle` makes it."""
        query: Query = {
            "mode": mode,
            "purpose": purpose,
            "form": form,
            "threads": None if threads is None else [*threads],
            "upto": upto,
        }
        return await self._transport.raw(
            "GET", f"/v1/sessions/{part(id, 'id')}/bundle", query=query
        )

    async def move(
        self, id: str, *, to: str | None = None, form: Literal["archive", "json"] = "archive"
    ) -> bytes:
        """A session as a bundle with all as it is, to go on elsewhere: at this server it is
        sealed, as moved to `to`. The same move again gives the same bundle."""
        path, query = f"/v1/sessions/{part(id, 'id')}/bundle/move", {"to": to, "form": form}
        return await self._transport.raw("POST", path, query=query)

    async def load(
        self,
        data: bytes,
        *,
        session: str | None = None,
        purpose: Literal["continue", "read"] = "continue",
        accept_redacted: bool = False,
    ) -> BundleTaken:
        """Make a session of a bundle, under its own id or another. The same bundle again is the
        same session. `warnings` say where no agent of the server serves it."""
        query: Query = {
            "session": session,
            "purpose": purpose,
            "accept_redacted": accept_redacted,
        }
        return await self._transport.call(
            "POST", "/v1/bundles", BundleTaken, body=data, query=query, media=ZIP
        )

    async def validate(self, data: bytes, *, allow_secrets: bool = False) -> BundleShown:
        """Whether a bundle is whole, and what it says of itself."""
        query: Query = {"allow_secrets": allow_secrets}
        return await self._transport.call(
            "POST", "/v1/bundles/validate", BundleShown, body=data, query=query, media=ZIP
        )


class People(Matter):
    """What there is of a person in all sessions, in every store of the server or with `store` in
    the one of this kind."""

    async def export(
        self, user: str, *, shared: bool = False, store: str | None = None
    ) -> AsyncGenerator[PersonRecord, None]:
        """All that is stored of a person, event by event; with `shared`, also what is theirs in
        the sessions of others."""
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
        """Delete a person's sessions, and erase their events in all others. A store that could
        not be reached is told in `remains`, and as `failed` in `stores`."""
        query: Query = {
            "user": user,
            "reason": reason,
            "shared": shared,
            "dry_run": dry_run,
            "store": store,
        }
        return await self._transport.call("DELETE", PEOPLE, ErasedPerson, query=query)
