"""Records of what an operation did: removals, imports, exports and restores."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from ..log.catalog import Row
from ..log.events import Event, Scope

Use: TypeAlias = Literal["continue", "read"]
Liveness: TypeAlias = Literal["continuable", "closed"]


class Remains(Struct, frozen=True):
    """Something that a removal could not reach, where it is, and what removes it."""

    where: str
    what: str
    remedy: str


class Receipt(Struct, frozen=True, kw_only=True):
    """What an erase, delete or purge removed, counted by sort, and what is left where."""

    removed: dict[str, int] = {}
    remains: tuple[Remains, ...] = ()


class PersonRecord(Struct, frozen=True, kw_only=True):
    """One event of a person's, or the row that begins one of their own sessions' threads."""

    session: str
    thread: str
    own: bool
    row: Row | None = None
    event: Event | None = None


class PersonErased(Struct, frozen=True, kw_only=True):
    """What was erased of a person, or with `dry_run` would be: their sessions, the events in the
    sessions of others, what was refused and why, and what is left where."""

    dry_run: bool
    sessions: list[str]
    events: dict[str, int]
    refused: dict[str, str]
    removed: dict[str, int]
    remains: list[Remains]


class Imported(Struct, frozen=True, kw_only=True):
    """What became of an import. `fresh`: something was written; otherwise the session was there
    from this bundle already. `held` are names that another session holds, and that were left."""

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
    """What was put back: how many files, and their bytes in all."""

    files: int
    size: int
