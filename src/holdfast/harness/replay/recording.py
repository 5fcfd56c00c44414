"""Recordings: the events to replay, by thread, from a store or a bundle."""

from __future__ import annotations

import itertools
from contextlib import aclosing

from ...errors import BlobNotFound, SessionNotFound
from ...log.events import KINDS, Event, Key, Scope
from ...stores.measure import threads_of
from ...stores.port import BlobRef, Store
from .comparison import body, masked, payload_fields
from .report import RedactionMode


class Recording:
    """The recorded events of each thread, and how many of them the thread shares with the thread
    that it was forked from."""

    def __init__(self, mode: RedactionMode = "local") -> None:
        self.mode = mode
        self.threads: dict[Key, tuple[list[Event], int]] = {}
        self.erased = False  # a log is replayed only up to its first erased event

    async def blob(self, sha256: str) -> bytes | None:
        return None

    def check(self, scope: Scope, thread: str | None) -> Recording:
        """Truncate each thread before its first erased event. Raises `SessionNotFound` if there are
        no threads."""
        if not self.threads:
            raise SessionNotFound(
                tenant=scope.tenant, session=scope.session, thread=thread or "main"
            )
        for key, (events, start) in self.threads.items():
            kept = [*itertools.takewhile(_readable, events)]
            self.erased = self.erased or len(kept) < len(events)
            self.threads[key] = kept, start
        self.threads = {key: about for key, about in self.threads.items() if about[0]}
        return self

    def unreadable(self) -> list[str]:
        """Return the kinds of events that cannot be compared. If an added context was redacted,
        `context.built` cannot be compared, because the added text is only in the log."""
        for events, _ in self.threads.values():
            for event in events:
                if event.kind == "context.added" and masked(body(event)):
                    return ["context.built"]
        return []


class _Stored(Recording):
    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__()
        self._store, self._scope = store, scope

    async def blob(self, sha256: str) -> bytes | None:
        try:
            return await self._store.get_blob(self._scope, BlobRef(sha256, 0))
        except BlobNotFound:
            return None


async def stored_recording(store: Store, scope: Scope, thread: str | None) -> Recording:
    """Read all threads of a session from a store, or one thread."""
    found = _Stored(store, scope)
    for row in await threads_of(store, scope):
        if thread in (None, row.thread):
            async with aclosing(store.read(row.key)) as read:
                events = [event async for event in read]
            found.threads[row.key] = (events, row.parent.at if row.parent else 0)
    return found.check(scope, thread)


def _readable(event: Event) -> bool:
    """Return whether an event was not erased. The replay ends at the first erased event."""
    return event.kind not in KINDS or "erased" not in payload_fields(event)
