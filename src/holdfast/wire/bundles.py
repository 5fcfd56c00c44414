"""Response types for bundles."""

from __future__ import annotations

from msgspec import Struct

from ..values.records import Imported


class BundleShown(Struct, frozen=True, kw_only=True):
    """A summary of a valid bundle."""

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
    """The result of an import. `warnings` lists problems on this server, such as an agent that it
    does not serve."""

    warnings: list[str] = []
