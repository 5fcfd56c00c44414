"""The interface of a full-text index, and the values that it takes and returns.

An index holds, for each log, the position up to which it is indexed, and the terms of each event;
it stores no text. It can be dropped at any time and rebuilt from the logs. A search reads the
events that the index finds from the store.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from ...environment import new_id
from ...log.catalog import Row
from ...log.events import Event, Key, Scope
from ...log.search import Condition, EventText, index_terms

MOST_BYTES = 1_000_000  # terms of one event


class LogPosition(Struct, frozen=True, kw_only=True):
    """The position up to which a log is indexed: event `seq`, whose link is `link`. `rewinds` lists
    the rewinds up to that event, as (number of the rewind, number of the event that it returned
    to). `epoch` changes whenever events of the session are removed; it is None during a removal."""

    log: str
    key: Key
    seq: int = 0
    link: str | None = None
    rewinds: tuple[tuple[int, int], ...] = ()
    epoch: str | None = None


class Doc(Struct, frozen=True, kw_only=True):
    """The index entry of one event. `extra` is a term that comes from another event; `crc` is the
    checksum of all terms."""

    seq: int
    at: int
    terms: str
    extra: str | None = None

    @property
    def crc(self) -> int:
        return zlib.crc32(self.terms.encode())


class KeptDoc(Struct, frozen=True, kw_only=True):
    """An index entry as read from the index: the checksum of its terms, without the terms."""

    id: int
    log: str
    seq: int
    crc: int
    extra: str | None = None


class Advance(Struct, frozen=True, kw_only=True):
    """The index entries of the next events of a log, between the positions `before` and `after`."""

    before: LogPosition
    after: LogPosition
    docs: Sequence[Doc]


class Candidate(Struct, frozen=True, kw_only=True):
    """An event that may match a query. `id` is its position in the sort order of the results."""

    id: int
    seq: int
    position: LogPosition


class NoIndex(Exception):
    """The index does not exist, for example because another process removed it."""


class TextIndex(Protocol):
    """The interface of a full-text index in one database. Every method is one transaction. All
    methods except `exists` and `create` raise `NoIndex` if the index was removed.

    An index in the store's own database is updated by the transaction that deletes or erases
    events, so that this interface is all it needs. An index elsewhere is a `SeparateTextIndex`."""

    @property
    def keeps_words(self) -> bool:
        """Whether removed terms stay in the database files until `optimize` is called."""
        ...

    async def exists(self) -> bool:
        """Return whether there is an index that this version can use."""
        ...

    async def create(self) -> bool:
        """Create the index if it does not exist. Returns False if the database does not support
        one."""
        ...

    async def reset(self) -> None:
        """Remove all entries from the index."""
        ...

    async def optimize(self) -> bool:
        """Erase removed terms from the database files. Returns False if this user may not."""
        ...

    async def claim(self, owner: str, seconds: float) -> bool:
        """Reserve the work of indexing for this process for some seconds, or release it with 0.
        Returns False if another process has reserved it."""
        ...

    async def mark(self) -> str:
        """Return the mark of the changes that are indexed, as `ChangedLogs.mark`, or a mark made by
        `no_mark` if all logs must be checked."""
        ...

    async def set_mark(self, mark: str, *, was: str) -> None:
        """Store a new mark, unless the mark is no longer `was`."""
        ...

    async def tenant(self, name: str) -> int:
        """Return the number of a tenant. Every term of the tenant's events begins with it."""
        ...

    async def positions(self, rows: Sequence[Row]) -> list[LogPosition]:
        """Return the positions up to which these logs are indexed."""
        ...

    async def logs(self) -> list[LogPosition]:
        """Return the positions of all indexed logs."""
        ...

    async def add(self, batch: Sequence[Advance]) -> int:
        """Write index entries of some logs. Logs whose position or epoch has changed meanwhile are
        skipped. Returns the number of logs that were written."""
        ...

    async def find(
        self, tenant: str, wanted: Sequence[Condition], below: int, least: int, limit: int
    ) -> list[Candidate]:
        """Return events of a tenant that match all conditions, newest first."""
        ...

    async def aclose(self) -> None:
        """Close the index."""
        ...


@runtime_checkable
class SeparateTextIndex(TextIndex, Protocol):
    """An index that the store's transactions do not reach, so that a removal of events has several
    steps: see `removal`."""

    async def bury(self, scope: Scope, owner: str) -> list[LogPosition]:
        """Suspend the indexing of a session before a removal, and return the positions of its
        logs."""
        ...

    async def docs(self, log: str, after: int, limit: int) -> list[KeptDoc]:
        """Return the index entries of a log."""
        ...

    async def remove(self, docs: Sequence[tuple[KeptDoc, str]]) -> None:
        """Remove index entries. The terms of each entry must be passed, because the index needs
        them to remove the entry."""
        ...

    async def unbury(
        self, scope: Scope, owner: str, *, gone: Sequence[str], again: Sequence[str]
    ) -> bool:
        """Resume the indexing of a session after a removal. The logs in `gone` are removed from the
        index, the logs in `again` are indexed from the start. Returns False if the indexing was
        already resumed, because the removal took too long."""
        ...

    async def abandoned(self, before: int) -> list[tuple[Scope, str]]:
        """Return the sessions, with their owners, whose indexing was suspended before a time and
        never resumed."""
        ...


def no_mark() -> str:
    """Return a new mark which says that all logs must be checked. Each such mark is different, so
    that `set_mark` detects that the mark was reset in the meantime."""
    return f"{_NO_MARK}{new_id()}"


def known_mark(mark: str) -> str | None:
    """Return a mark, or None if it was made by `no_mark`."""
    return None if not mark or mark.startswith(_NO_MARK) else mark


_NO_MARK = "?"


# Terms


def doc_of(
    event: Event, text: EventText, key: Key, tenant: int, tools: tuple[str, ...] | None = None
) -> Doc:
    """Return the index entry of an event with this text. The first of `tools`, if they are not the
    tools of the text, is added as an extra term."""
    extra = None if tools is None or tools == text.tools else tool_term(tools[0])
    terms = terms_of(text, key, tenant, extra)
    return Doc(seq=event.seq, at=event.at, terms=terms, extra=extra)


def terms_of(text: EventText, key: Key, tenant: int, extra: str | None) -> str:
    """Return the terms of an event as one string, in a fixed order."""
    terms = {term for passage in text.passages for term in index_terms(passage)}
    terms.add(session_term(key.session))
    terms.update(tool_term(tool) for tool in text.tools)
    if text.role is not None:
        terms.add(role_term(text.role))
    if extra is not None:
        terms.add(extra)
    joined = f"{tenant}:" + f" {tenant}:".join(sorted(terms))
    return joined if 4 * len(joined) <= MOST_BYTES else " ".join(_limited(joined.split(" ")))


def _limited(terms: list[str]) -> list[str]:
    """Return the terms without the longest, if an index could not store them all: PostgreSQL takes
    1 MiB, which only folded ligatures reach."""
    left = MOST_BYTES - sum(len(term.encode()) for term in terms)
    longest = sorted(terms, key=len, reverse=True) if left < 0 else []
    dropped = set()
    for term in longest:
        if left >= 0:
            break
        left += len(term.encode())
        dropped.add(term)
    return [term for term in terms if term not in dropped] if dropped else terms


def session_term(session: str) -> str:
    return "@" + hashlib.sha256(session.encode()).hexdigest()[:12]


def tool_term(tool: str) -> str:
    return "#" + hashlib.sha256(tool.encode()).hexdigest()[:12]


def role_term(role: str) -> str:
    return "=" + role


# The order of results

_TIE = 20  # bits
LAST = (1 << 43) - 1  # ms; later times are sorted like this time


def place_of(at: int, log: str, seq: int) -> int:
    """Return the position of an event in the sort order of the results: by time, then by log and
    number."""
    return floor_of(at) | (zlib.crc32(log.encode()) & 0xFF) << 12 | (seq & 0xFFF)


def floor_of(at: int) -> int:
    """Return the lowest position in the sort order for a time."""
    return min(max(at, 0), LAST) << _TIE


def is_current(position: LogPosition, seq: int) -> bool:
    """Return whether an event still belongs to the conversation, according to the rewinds in the
    index."""
    last = position.seq
    for number, to in reversed(position.rewinds):
        if number <= last:
            if seq >= number:
                return True
            last = to
            if seq > to:
                return False
    return seq <= last
