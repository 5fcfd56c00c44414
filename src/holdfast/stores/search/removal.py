"""Removes events from a separate full-text index before they are deleted or erased in the store.

A removal suspends the indexing of the session, removes the terms from the index, removes the events
from the store, and resumes the indexing. The terms are computed from the events, so the index comes
first. If a removal is interrupted, `Indexer` later indexes the session again. `Store.delete` and
`Store.erase` call this, so no caller can bypass it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from zlib import crc32

from ...environment import new_id
from ...errors import LogDamaged, LogReplaced, SessionNotFound
from ...log.events import Event, Key, Scope
from ...log.search import event_text
from ..port import Store
from .index import KeptDoc, LogPosition, NoIndex, SeparateTextIndex, terms_of
from .matching import event_at

STEP = 500  # events that are removed at a time


class UnknownTerms(Exception):
    """The terms of an indexed event cannot be computed, because its text is missing or has
    changed."""


@asynccontextmanager
async def removing(
    store: Store, index: SeparateTextIndex, target: Scope | Key, seqs: Sequence[int] | None = None
) -> AsyncGenerator[None, None]:
    """Context manager: removes a session, a thread, or events of a thread from the index. The block
    removes them from the store."""
    if not await index.exists():
        yield
        if await index.exists():  # it was created meanwhile, and may contain the removed events
            await index.reset()
        return
    scope = target.scope if isinstance(target, Key) else target
    owner = new_id()
    logs = await _buried(index, scope, owner)
    if isinstance(target, Key) and seqs is None:
        logs = [position for position in logs if position.key == target]
    names = [position.log for position in logs]
    try:
        await _remove(store, index, target, logs, seqs)
        yield
    except BaseException:
        # It is unknown which events the store removed: index the remaining events again.
        with suppress(NoIndex):
            await index.unbury(scope, owner, gone=(), again=names)
        raise
    gone = names if seqs is None else []
    with suppress(NoIndex):
        if not await index.unbury(scope, owner, gone=gone, again=()):
            await index.reset()  # the removal took so long that the session was indexed again


async def _buried(index: SeparateTextIndex, scope: Scope, owner: str) -> list[LogPosition]:
    try:
        return await index.bury(scope, owner)
    except NoIndex:
        return []  # the index was just removed


async def _remove(
    store: Store,
    index: SeparateTextIndex,
    target: Scope | Key,
    logs: Sequence[LogPosition],
    seqs: Sequence[int] | None,
) -> None:
    """Remove events from the index. If the terms of an event cannot be computed, the whole index is
    reset."""
    try:
        if isinstance(target, Key) and seqs is not None:
            await _remove_events(store, index, target, logs, set(seqs))
        else:
            for position in logs:
                await _remove_log(store, index, position)
    except UnknownTerms:
        await index.reset()
    except NoIndex:
        pass  # the whole index was removed meanwhile


async def _remove_log(store: Store, index: SeparateTextIndex, position: LogPosition) -> None:
    tenant = await index.tenant(position.key.tenant)
    while docs := await index.docs(position.log, 0, STEP):
        first, last = docs[0].seq, docs[-1].seq
        by_seq = {doc.seq: doc for doc in docs}
        events = store.read(position.key, after=first - 1, before=last + 1, log=position.log)
        found: list[tuple[KeptDoc, str]] = []
        try:
            async with aclosing(events):
                async for event in events:
                    if event.seq in by_seq:
                        found.append(_with_terms(by_seq[event.seq], event, position.key, tenant))
        except (LogDamaged, SessionNotFound, LogReplaced) as error:
            raise UnknownTerms from error
        if len(found) < len(docs):
            raise UnknownTerms
        await index.remove(found)


async def _remove_events(
    store: Store, index: SeparateTextIndex, target: Key, logs: Sequence[LogPosition], seqs: set[int]
) -> None:
    """Remove events of a thread from the index, including the entries of other threads that share
    these events."""
    tenant = await index.tenant(target.tenant)
    ids: dict[int, str] = {}
    for position in sorted(logs, key=lambda one: one.key != target):
        found: list[tuple[KeptDoc, str]] = []
        for seq in sorted(seqs):
            if seq > position.seq:
                continue
            event = await event_at(store, position.key, position.log, seq)
            if position.key == target and event is not None:
                ids[seq] = event.id
            elif event is None or ids.get(seq, event.id) != event.id:
                continue
            docs = await index.docs(position.log, seq - 1, 1)
            if docs and docs[0].seq == seq:
                if event is None:
                    raise UnknownTerms
                found.append(_with_terms(docs[0], event, position.key, tenant))
        if found:
            await index.remove(found)


def _with_terms(doc: KeptDoc, event: Event, key: Key, tenant: int) -> tuple[KeptDoc, str]:
    text = event_text(event)
    terms = "" if text is None else terms_of(text, key, tenant, doc.extra)
    if text is None or crc32(terms.encode()) != doc.crc:
        raise UnknownTerms
    return doc, terms
