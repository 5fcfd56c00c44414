"""Records of the results of operations: removals, imports, exports and restores."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from ..log.catalog import Row
from ..log.events import Event, Scope

Use: TypeAlias = Literal["continue", "read"]
Liveness: TypeAlias = Literal["continuable", "closed"]


class Remains(Struct, frozen=True):
    """Data that a deletion could not remove, its location, and how to remove it."""

    where: str
    what: str
    remedy: str


class Receipt(Struct, frozen=True, kw_only=True):
    """The data that an erase, delete or purge removed, counted by type, and the remaining data with
    its location."""

    removed: dict[str, int] = {}
    remains: tuple[Remains, ...] = ()


class PersonRecord(Struct, frozen=True, kw_only=True):
    """One event of a user, or the row of a thread of one of their sessions."""

    session: str
    thread: str
    own: bool
    row: Row | None = None
    event: Event | None = None


class PersonErased(Struct, frozen=True, kw_only=True):
    """The data of a user that was erased, or that would be erased if `dry_run` is set: their
    sessions, and the number of their events in the sessions of other users. `refused` maps each
    session that was not deleted to the reason, `remains` is the data that is left."""

    dry_run: bool
    sessions: list[str]
    events: dict[str, int]
    refused: dict[str, str]
    removed: dict[str, int]
    remains: list[Remains]


class Imported(Struct, frozen=True, kw_only=True):
    """The result of an import. `fresh` is true if something was written; otherwise the session was
    already imported from this bundle. `held` lists names that belong to another session and were
    skipped."""

    bundle_id: str
    tenant: str
    session: str
    fresh: bool
    purpose: Use
    liveness: Liveness
    threads: tuple[str, ...]
    events: int = 0
    blobs: int = 0
    held: tuple[str, ...] = ()

    @property
    def scope(self) -> Scope:
        return Scope(self.tenant, self.session)


class Restored(Struct, frozen=True, kw_only=True):
    """The number of extracted files, and their total bytes."""

    files: int
    size: int
