"""The results of operations: removals, imports, exports and restores."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from ..log.catalog import Row
from ..log.events import Event, Scope

Use: TypeAlias = Literal["continue", "read"]
Liveness: TypeAlias = Literal["continuable", "closed"]


class Remains(Struct, frozen=True):
    """Data that a deletion could not remove, its location, and how to remove it.

    See [deleting](../the-log.md#deleting-and-erasing).
    """

    where: str
    what: str
    remedy: str


class Receipt(Struct, frozen=True, kw_only=True):
    """The result of an erase, delete or purge: the number of removed records by type, and the data
    that could not be removed, with its location.

    See [deleting](../the-log.md#deleting-and-erasing).
    """

    removed: dict[str, int] = {}
    remains: tuple[Remains, ...] = ()


class PersonRecord(Struct, frozen=True, kw_only=True):
    """A record of a user's data: an event of the user, or the row of a thread in one of the user's
    sessions.

    See [deleting](../the-log.md#deleting-and-erasing).
    """

    session: str
    thread: str
    own: bool
    row: Row | None = None
    event: Event | None = None


class PersonErased(Struct, frozen=True, kw_only=True):
    """The data of a user that was erased, or that would be erased if `dry_run` is set: the user's
    sessions, and the number of the user's events in sessions of other users. `refused` maps each
    session that was not deleted to the reason, `remains` lists data that could not be removed.

    See [deleting](../the-log.md#deleting-and-erasing).
    """

    dry_run: bool
    sessions: list[str]
    events: dict[str, int]
    refused: dict[str, str]
    removed: dict[str, int]
    remains: list[Remains]


class Imported(Struct, frozen=True, kw_only=True):
    """The result of an import. `fresh` is true if something was written; otherwise the session was
    already imported from this bundle. `held` lists names that were skipped because they belong to
    another session.

    See [deleting](../the-log.md#deleting-and-erasing).
    """

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
    """The result of a restore: the number of extracted files, and their total size in bytes."""

    files: int
    size: int
