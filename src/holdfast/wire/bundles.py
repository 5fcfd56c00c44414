"""What a server says of a bundle."""

from __future__ import annotations

from msgspec import Struct

from ..values.records import Imported


class BundleShown(Struct, frozen=True, kw_only=True):
    """A bundle that is whole, in a few words."""

    bundle_id: str
    created_at: str
    mode: str
    purpose: str
    liveness: str
    session: str
    agent: str | None
    user: str | None
    threads: list[str]


class BundleTaken(Imported, frozen=True, kw_only=True):
    """What became of an import by a server. `warnings` say what its session lacks there."""

    warnings: list[str] = []
