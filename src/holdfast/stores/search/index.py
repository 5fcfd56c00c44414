"""The port of an index of texts, and the values that it takes and returns.

An index is a projection that can be dropped at any time. It keeps how far it is in each log, and
which events have which terms; no text. Only what it finds is read from the store.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from ...log.catalog import Row
from ...log.events import Event, Key, Scope
from ...log.search import Condition, EventText, event_text, index_terms

EDITION = 1  # of the terms and the tables: an index of another edition is dropped


class LogPosition(Struct, frozen=True, kw_only=True):
    """How far the index is in a log: up to event `seq`, whose link is `link`. `rewinds` are the
    rewinds up to there, as (number, event to which it went back). `epoch` changes whenever events
    of the session are removed; None while that is in progress."""

    log: str
    key: Key
    seq: int = 0
    link: str | None = None
    rewinds: tuple[tuple[int, int], ...] = ()
    epoch: str | None = None


class Doc(Struct, frozen=True, kw_only=True):
    """An event in the index. `extra` is a term that comes from another event; `crc` is the checksum
    of all its terms."""

    seq: int
    at: int
    terms: str
    extra: str | None = None

    @property
    def crc(self) -> int:
        return zlib.crc32(self.terms.encode())


class KeptDoc(Struct, frozen=True, kw_only=True):
    """An event as the index has it: without its terms."""

    id: int
    log: str
    seq: int
    crc: int
    extra: str | None = None


class Advance(Struct, frozen=True, kw_only=True):
    """The next events of a log: from a position to another."""

    before: LogPosition
    after: LogPosition
    docs: Sequence[Doc]


class Candidate(Struct, frozen=True, kw_only=True):
    """An event that may match. `id` is its place in the order of the results."""

    id: int
    seq: int
    position: LogPosition


class NoIndex(Exception):
    """The index was removed meanwhile."""


class TextIndex(Protocol):
    """An index of texts in one database. Every method is one transaction. All but `exists` and
    `create` raise `NoIndex` if the index was removed."""

    @property
    def keeps_words(self) -> bool:
        """Whether removed words stay in the files until `optimize`."""
        ...

    async def exists(self) -> bool:
        """Return whether there is an index that this version can use."""
        ...

    async def create(self) -> bool:
        """Create the index, unless it exists. Returns False if the database cannot have one."""
        ...

    async def reset(self) -> None:
        """Remove everything from the index."""
        ...

    async def optimize(self) -> None:
        """Remove what is left of removed terms."""
        ...

    async def claim(self, owner: str, seconds: float) -> bool:
        """Claim the work of indexing for some time. Returns False if another process has it."""
        ...

    async def mark(self, mark: str | None = None) -> str | None:
        """Return up to where the store was indexed; set it if a mark is passed."""
        ...

    async def tenant(self, name: str) -> int:
        """Return the number of a tenant, which is part of every term."""
        ...

    async def positions(self, rows: Sequence[Row]) -> list[LogPosition]:
        """Return how far the index is in these logs."""
        ...

    async def logs(self) -> list[LogPosition]:
        """Return all logs of the index."""
        ...

    async def add(self, batch: Sequence[Advance]) -> int:
        """Write the next events of some logs, except those that are not at the given position and
        epoch any more. Returns the number of logs that were written."""
        ...

    async def find(
        self, wanted: Sequence[Condition], below: int, least: int, limit: int
    ) -> list[Candidate]:
        """Return events that have these terms, newest first."""
        ...

    async def bury(self, scope: Scope, owner: str) -> list[LogPosition]:
        """Stop the indexing of a session, and return its logs."""
        ...

    async def docs(self, log: str, after: int, limit: int) -> list[KeptDoc]:
        """Return the events of a log that the index has."""
        ...

    async def remove(self, docs: Sequence[tuple[KeptDoc, str]]) -> None:
        """Remove events, given with their terms."""
        ...

    async def unbury(
        self, scope: Scope, owner: str, *, gone: Sequence[str], again: Sequence[str]
    ) -> bool:
        """Allow the indexing of a session again. The logs `gone` are removed, the logs `again` are
        indexed from the start. Returns False if `bury` was undone meanwhile, because it took too
        long."""
        ...

    async def abandoned(self, before: int) -> list[tuple[Scope, str]]:
        """Return the sessions that were buried before a time and not since, with their owners."""
        ...

    async def aclose(self) -> None:
        """Close the index."""
        ...


# Terms


def doc_of(event: Event, key: Key, tenant: int, text: EventText | None = None) -> Doc | None:
    """Return what the index keeps of an event; None if it has no text. A result names its tool if
    `text` does."""
    own = event_text(event)
    text = own if text is None else text
    if own is None or text is None:
        return None
    extra = None
    if own.tools != text.tools:
        extra = tool_term(text.tools[0])
    doc = Doc(seq=event.seq, at=event.at, terms="", extra=extra)
    return replace(doc, terms=terms_of(own, key, tenant, extra))


def terms_of(text: EventText, key: Key, tenant: int, extra: str | None) -> str:
    """Return the terms of an event, in a fixed order."""
    terms = {term for passage in text.passages for term in index_terms(passage)}
    terms.add(session_term(key.session))
    terms.update(tool_term(tool) for tool in text.tools)
    if text.role is not None:
        terms.add(role_term(text.role))
    if extra is not None:
        terms.add(extra)
    return " ".join(f"{tenant}:{term}" for term in sorted(terms))


def session_term(session: str) -> str:
    return "@" + hashlib.sha256(session.encode()).hexdigest()[:12]


def tool_term(tool: str) -> str:
    return "#" + hashlib.sha256(tool.encode()).hexdigest()[:12]


def role_term(role: str) -> str:
    return "=" + role


# The order of results

_TIE = 20  # bits
LAST = (1 << 43) - 1  # ms; later times are sorted as this one


def place_of(at: int, log: str, seq: int) -> int:
    """Return the place of an event in the order of the results: by time, then by log and number."""
    return floor_of(at) | (zlib.crc32(log.encode()) & 0xFF) << 12 | (seq & 0xFFF)


def floor_of(at: int) -> int:
    """Return the first place of a time."""
    return min(max(at, 0), LAST) << _TIE


def is_current(position: LogPosition, seq: int) -> bool:
    """Return whether no rewind removed an event, as far as the index knows."""
    last = position.seq
    for number, to in reversed(position.rewinds):
        if number <= last:
            if seq >= number:
                return True
            last = to
            if seq > to:
                return False
    return seq <= last
