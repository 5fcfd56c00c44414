"""Bundles of a server: export, move, import and validate sessions as files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..wire.bundles import BundleShown, BundleTaken
from .transport import Query, Transport, part

ZIP = "application/zip"


class Bundles:
    """Exports sessions of a server as files, and imports them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

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
        """Export a session as a bundle, as `holdfast.bundle.export_bundle` does."""
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
        """Export a session as a complete bundle, to continue it on another server. The session is
        sealed on this server and marked as moved to `to`. Repeating the call returns the same
        bundle."""
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
        """Import a bundle as a session, under its own id or another. Importing the same bundle
        again returns the same session. `warnings` lists problems on the server, such as an agent
        that it does not serve."""
        query: Query = {
            "session": session,
            "purpose": purpose,
            "accept_redacted": accept_redacted,
        }
        return await self._transport.call(
            "POST", "/v1/bundles", BundleTaken, body=data, query=query, media=ZIP
        )

    async def validate(self, data: bytes, *, allow_secrets: bool = False) -> BundleShown:
        """Check that a bundle is complete and valid, and return its summary."""
        query: Query = {"allow_secrets": allow_secrets}
        return await self._transport.call(
            "POST", "/v1/bundles/validate", BundleShown, body=data, query=query, media=ZIP
        )
