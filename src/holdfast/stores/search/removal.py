"""Removes terms from an index before their events are deleted or erased in the store.

First the indexing of the session is stopped, then the terms are removed, with the texts that are
still there; then the events are removed from the store, and the session is indexed again. If that
is interrupted, the session is indexed again later (`Indexer`). No caller can bypass it, because
`Store.delete` and `Store.erase` contain it.
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
from .index import KeptDoc, LogPosition, NoIndex, TextIndex, terms_of
from .matching import event_at

STEP = 500  # events that are removed together


class UnknownTerms(Exception):
    """The terms of an event in the index cannot be computed any more."""


@asynccontextmanager
async def removing(
    store: Store, index: TextIndex, target: Scope | Key, seqs: Sequence[int] | None = None
) -> AsyncGenerator[None, None]:
    """Context manager around the removal of a session, a thread, or events of a thread, from the
    store."""
    if not await index.exists():
        yield
        if await index.exists():  # created meanwhile, so it may have read what was removed
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
        # It is not known what was removed from the store: look again at what is left.
        with suppress(NoIndex):
            await index.unbury(scope, owner, gone=(), again=names)
        raise
    gone = names if seqs is None else []
    with suppress(NoIndex):
        if not await index.unbury(scope, owner, gone=gone, again=()):
            await index.reset()  # it took so long that the session was indexed again meanwhile


async def _buried(index: TextIndex, scope: Scope, owner: str) -> list[LogPosition]:
    try:
        return await index.bury(scope, owner)
    except NoIndex:
        return []  # it was removed this moment


async def _remove(
    store: Store,
    index: TextIndex,
    target: Scope | Key,
    logs: Sequence[LogPosition],
    seqs: Sequence[int] | None,
) -> None:
    """Remove terms from the index. If the terms of an event are not known any more, everything."""
    try:
        if isinstance(target, Key) and seqs is not None:
            await _remove_events(store, index, target, logs, set(seqs))
        else:
            for position in logs:
                await _remove_log(store, index, position)
    except UnknownTerms:
        await index.reset()
    except NoIndex:
        pass  # it was removed meanwhile, with all terms


async def _remove_log(store: Store, index: TextIndex, position: LogPosition) -> None:
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
    store: Store, index: TextIndex, target: Key, logs: Sequence[LogPosition], seqs: set[int]
) -> None:
    """Remove events of a thread, also from the threads that share them."""
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
