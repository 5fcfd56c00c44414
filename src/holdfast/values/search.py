"""What a search returns: matches, a page of them, and the progress of a new index."""

from __future__ import annotations

from msgspec import Struct


class Found(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A match: event `seq` of a thread, its author, and the text around the first matching word.
    `marks` are the places of all matching words in `excerpt`, as [start, end). `role` is `user`,
    `assistant` or `tool` for messages and results. `call` is set if a tool produced the text."""

    session: str
    thread: str
    seq: int
    at: int
    kind: str
    excerpt: str
    marks: list[tuple[int, int]] = []
    role: str | None = None
    by: str | None = None
    call: str | None = None
    title: str | None = None


class SearchPage(Struct, frozen=True, kw_only=True):
    """One page of a search. `cursor` continues it; a page may have fewer matches than asked for, or
    none, and a cursor. `behind` says that some events are not in the index yet. `scanned` says that
    the store has no index, and that events were read one after the other."""

    hits: list[Found]
    cursor: str | None = None
    behind: bool = False
    scanned: bool = False


class IndexProgress(Struct, frozen=True, kw_only=True):
    """How many threads of how many a new index has."""

    done: int
    total: int
