"""The results of a full-text search: matches, pages of matches, and the progress of indexing."""

from __future__ import annotations

from msgspec import Struct


class Found(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A match: event `seq` of a thread, its author, and an excerpt around the first matching word.
    `marks` are the positions of all matching words in `excerpt`, as [start, end). `role` is `user`,
    `assistant` or `tool` for messages and results. `call` is set if a tool produced the text.

    See [search](../search.md).
    """

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
    """One page of search results. `cursor` is set if there may be more results, even if this page
    has fewer matches than requested or none. `behind` is true if some events are not indexed yet.
    `scanned` is true if the store has no index, so that the events themselves were read.

    See [search](../search.md).
    """

    hits: list[Found]
    cursor: str | None = None
    behind: bool = False
    scanned: bool = False


class IndexProgress(Struct, frozen=True, kw_only=True):
    """The progress of building a search index: `done` of `total` threads are indexed."""

    done: int
    total: int
