"""The Claude Agent SDK's `SessionStore` on any Holdfast store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import SessionNotFound
from ...log.catalog import Query, Row
from ...stores.port import Store
from ..lazy_store import LazyStore
from ..retries import persist
from .keys import SUB, Aliases, SessionKeys, part, parts_of, subpath
from .reader import all_rows, count_of, entries_of, listed_summary, whole_summary
from .summaries import TranscriptSummary, fold, is_ours
from .writer import AGENT, TranscriptWriter

if TYPE_CHECKING:
    from claude_agent_sdk.types import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

T = TypeVar("T")


class ClaudeSessionStore:
    """The SDK's `SessionStore`, with all its methods, on an open Holdfast store or on the URL of a
    store.

    A URL is opened on first use, once per process, and closed by `close`. The object can then be
    used on any event loop, and with trio. A store that you pass in is not closed, and belongs to
    its event loop, unless it is a `PortalStore`. `aliases` maps project keys to other project keys,
    so that a session can continue in another working directory.

    See [Claude Agent SDK](../claude.md).
    """

    def __init__(
        self, store: Store | str, *, tenant: str = "main", aliases: Aliases | None = None
    ) -> None:
        fold(None, [])  # raises `MissingExtra` at startup, not during a conversation
        self._opening = LazyStore(store)
        self._keys = SessionKeys(tenant, aliases)
        self._writer = TranscriptWriter()

    def __repr__(self) -> str:
        return f"ClaudeSessionStore({self._opening!r}, tenant={self._keys.tenant!r})"

    async def __aenter__(self) -> ClaudeSessionStore:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def connect(self) -> None:
        """Open the store now, so that errors appear at startup. You can retry after a failure."""
        await self._opening.connect()

    async def close(self) -> None:
        """Close the store if it was opened from a URL, even while it is opening. Idempotent; the
        next use opens it again."""
        await self._opening.close()

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Append a batch to a transcript. The batch is durable when this returns.

        An entry whose uuid is already in the transcript is skipped; an entry without a uuid is
        always added. A failed batch that is sent again is stored only once. An empty batch, or a
        batch whose entries are all stored already, changes nothing. Any number of processes may
        append to one session.
        """
        await self.add(key, [(entry, None) for entry in entries])

    async def add(self, key: SessionKey, entries: Sequence[tuple[Any, str | None]]) -> int:
        """Append entries, each with an id; entries with the same id are stored once. If an id is
        None, it is derived from the entry's uuid, or generated if there is no uuid. Returns the
        number of new entries."""
        at = self._keys.key(key)
        if not entries:
            return 0
        project = self._keys.project(part(key, "project_key"))
        return await self._opening.run(
            lambda store: self._writer.append(store, at, project, entries)
        )

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return the entries of a transcript in order, exactly as they were appended. Returns None
        if it has no entries. Damaged entries are logged and skipped; erased entries are skipped."""
        at = self._keys.key(key)
        return await self._ask(lambda store: entries_of(store, at))

    async def size(self, key: SessionKey) -> int:
        """Return the number of entries of a transcript; 0 if it does not exist."""
        at = self._keys.key(key)
        return await self._ask(lambda store: count_of(store, at))

    async def delete(self, key: SessionKey) -> None:
        """Delete a session with all its transcripts, or only the transcript of a subpath. Has no
        effect if it does not exist."""
        target = self._keys.key(key) if subpath(key) is not None else self._keys.scope(key)
        await self._ask(lambda store: store.delete(target))

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a session's sub-agents, sorted."""
        scope = self._keys.scope(key)
        query = Query(tenant=scope.tenant, session=scope.session, newest_first=False)
        rows = await self._ask(lambda store: all_rows(store, query))
        return sorted(row.thread.removeprefix(SUB) for row in rows if row.thread.startswith(SUB))

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project that have a main transcript, most recently written
        first."""
        found = await self._list(project_key, listed_summary)
        return [{"session_id": id, "mtime": summary.mtime} for id, summary in found]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the SDK's summary of each session that `list_sessions` returns, in the same
        order."""
        found = await self._list(project_key, whole_summary)
        return [
            {"session_id": id, "mtime": summary.mtime, "data": summary.data or {}}
            for id, summary in found
        ]

    async def sessions(self) -> list[tuple[str, str]]:
        """Return the project key and id of every session of the tenant, including sessions that
        have only transcripts of sub-agents."""
        query = Query(tenant=self._keys.tenant, agent=AGENT, newest_first=False)
        rows = await self._ask(lambda store: all_rows(store, query))
        pairs = ((row, parts_of(row.session)) for row in rows)
        return sorted(pair for row, pair in pairs if pair is not None and pair[0] == row.workspace)

    async def _list(
        self, project_key: str, summarise: Callable[[Store, Row], Awaitable[TranscriptSummary]]
    ) -> list[tuple[str, TranscriptSummary]]:
        project = self._keys.project(project_key)
        return await self._ask(lambda store: self._summaries(store, project, summarise))

    async def _summaries(
        self,
        store: Store,
        project: str,
        summarise: Callable[[Store, Row], Awaitable[TranscriptSummary]],
    ) -> list[tuple[str, TranscriptSummary]]:
        query = Query(tenant=self._keys.tenant, workspace=project, newest_first=False)
        found: list[tuple[str, TranscriptSummary]] = []
        for row in await all_rows(store, query):
            pair = parts_of(row.session)
            if pair is None or pair[0] != project or not is_ours(row):
                continue
            try:
                found.append((pair[1], await summarise(store, row)))
            except SessionNotFound:  # deleted meanwhile
                continue
        return sorted(found, key=lambda item: (-item[1].mtime, item[0]))

    async def _ask(self, question: Callable[[Store], Awaitable[T]]) -> T:
        return await self._opening.run(lambda store: persist(lambda _: question(store)))
