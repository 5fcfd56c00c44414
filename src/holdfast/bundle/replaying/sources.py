"""What is replayed: the events of each thread, out of a bundle or a store."""

from __future__ import annotations

import asyncio
import itertools
import os
from contextlib import aclosing
from typing import TypeAlias

from ...errors import BlobNotFound, SessionNotFound
from ...harness.session.session import Session, core_of
from ...log.catalog import Query
from ...log.events import KINDS, Event, Key, Scope
from ...stores.port import BlobRef, Store
from ..archive import Bundle
from ..check import validate_bundle
from ..redaction.manifest import Mode
from .values import body, masked, said

Recorded: TypeAlias = "Bundle | str | os.PathLike[str] | bytes | Session | tuple[Store, Scope]"
PAGE = 100


class Reading:
    """What is replayed: the events of each thread, and where its own begin."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.threads: dict[Key, tuple[list[Event], int]] = {}
        self.erased = False  # whether a log is replayed only up to what was erased in it

    async def blob(self, sha256: str) -> bytes | None:
        return None


class _Bundled(Reading):
    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle.document.mode)
        self._bundle = bundle

    async def blob(self, sha256: str) -> bytes | None:
        try:
            return await asyncio.to_thread(self._bundle.blob, sha256)
        except BlobNotFound:
            return None


class _Stored(Reading):
    def __init__(self, store: Store, scope: Scope) -> None:
        super().__init__("local")
        self._store, self._scope = store, scope

    async def blob(self, sha256: str) -> bytes | None:
        try:
            return await self._store.get_blob(self._scope, BlobRef(sha256, 0))
        except BlobNotFound:
            return None


async def read_source(source: Recorded, thread: str | None) -> Reading:
    if isinstance(source, Session):
        source = (core_of(source).live.store, core_of(source).live.key.scope)
    if isinstance(source, tuple):
        return await _stored(*source, thread)
    if not isinstance(source, Bundle):
        source = await validate_bundle(source, allow_secrets=True)
    bundle = source
    found = _Bundled(bundle)
    facts = bundle.document.session
    for about in bundle.document.threads:
        if thread in (None, about.thread):
            key = Key(facts.tenant, facts.session, about.thread)
            events = [event async for event in bundle.read(about.thread)]
            found.threads[key] = (events, about.shared)
    return _checked(found, Scope(facts.tenant, facts.session), thread)


async def _stored(store: Store, scope: Scope, thread: str | None) -> Reading:
    found = _Stored(store, scope)
    query = Query(tenant=scope.tenant, session=scope.session, order="created", newest_first=False)
    cursor: str | None = None
    while True:
        page = await store.find(query, cursor=cursor, limit=PAGE)
        for row in page.items:
            if thread in (None, row.thread):
                async with aclosing(store.read(row.key)) as read:
                    events = [event async for event in read]
                found.threads[row.key] = (events, row.parent.at if row.parent else 0)
        if (cursor := page.cursor) is None:
            return _checked(found, scope, thread)


def unreadable(found: Reading) -> list[str]:
    """What cannot be compared: where something that a model was shown is only in the log, and was
    replaced there, nobody can show it again."""
    for events, _ in found.threads.values():
        for event in events:
            if event.kind == "context.added" and masked(body(event)):
                return ["context.built"]
    return []


def _checked(found: Reading, scope: Scope, thread: str | None) -> Reading:
    if not found.threads:
        raise SessionNotFound(tenant=scope.tenant, session=scope.session, thread=thread or "main")
    for key, (events, start) in found.threads.items():
        kept = [*itertools.takewhile(_readable, events)]
        found.erased = found.erased or len(kept) < len(events)
        found.threads[key] = kept, start
    found.threads = {key: about for key, about in found.threads.items() if about[0]}
    return found


def _readable(event: Event) -> bool:
    """Whether nobody has erased it: behind such an event nothing is decided as it was."""
    return event.kind not in KINDS or "erased" not in said(event)
