"""`import_bundle`: a bundle as a session of a store, under any id.

The whole bundle is validated first. Then the logs are restored unchanged: an import appends no
events. A claim of the session names the bundle it came from, so that a second import of the same
bundle is recognized.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress

from msgspec import Struct
from msgspec.structs import replace

from ..errors import HoldfastError, InvalidValue, NotContinuable, SessionExists
from ..log.catalog import Parent, Row
from ..log.codec import check_key
from ..log.events import Event, Key, NewEvent, Scope
from ..stores.copy import base_of, restore_base
from ..stores.measure import START, link, threads_of
from ..stores.port import BlobRef, Store
from ..values.records import Imported, Use
from .archive import Bundle
from .check import Checked, Source, check_bundle, order
from .format import BUNDLE_LIMITS, Blob, BundleLimits, Document, Thread
from .import_batches import changed, poured
from .import_lock import ImportLock, place_of, turn
from .write import CLAIM, REDACTED

_BASE = re.compile(r"base:[0-9a-f]{32}")  # temporary threads of an import
NOWHERE = "nowhere: it was imported to be read"  # the seal of a session imported with `read`


class Prepared(Struct, frozen=True, kw_only=True):
    """A validated bundle, and how to import it. No store was used yet."""

    bundle: Bundle
    scope: Scope
    use: Use
    names: bool
    origin: str  # the claim of a session that came from this bundle


class _Job(Struct, frozen=True, kw_only=True):
    """What to import, and where."""

    store: Store
    bundle: Bundle
    scope: Scope
    use: Use
    origin: str
    progress: Callable[[int], None]

    def key(self, thread: str) -> Key:
        return Key(self.scope.tenant, self.scope.session, thread)


async def import_bundle(
    store: Store,
    source: Source,
    *,
    session: str | None = None,
    tenant: str | None = None,
    purpose: Use = "continue",
    accept_redacted: bool = False,
    names: bool = True,
    allow_secrets: bool | None = None,
    limits: BundleLimits = BUNDLE_LIMITS,
    progress: Callable[[int], None] | None = None,
) -> Imported:
    """Validate a bundle, then create its session in `store`, under its own id or another.

    To `continue` a session, the bundle must not be redacted (or pass `accept_redacted`), never be
    `replay_only`, and either have the purpose `copy` or `move` or have nothing open; otherwise
    `NotContinuable`. To `read` a session, any bundle is accepted; its threads are sealed. Importing
    the same bundle again returns the same session. `SessionExists` if another session has the id.
    With `names=False` the session does not get the claims of the original.

    An import is complete or undone: if it fails, what was written is removed, unless the session
    was continued meanwhile. After a crash, the same call finishes it. Concurrent imports wait for
    each other; `LeaseHeld` after a minute. `progress` is called with the number of events written.
    """
    ready = await prepare_import(
        source,
        session=session,
        tenant=tenant,
        purpose=purpose,
        accept_redacted=accept_redacted,
        names=names,
        allow_secrets=allow_secrets,
        limits=limits,
    )
    return await import_prepared(store, ready, progress=progress)


async def prepare_import(
    source: Source,
    *,
    session: str | None = None,
    tenant: str | None = None,
    purpose: Use = "continue",
    accept_redacted: bool = False,
    names: bool = True,
    allow_secrets: bool | None = None,
    limits: BundleLimits = BUNDLE_LIMITS,
) -> Prepared:
    """The first half of `import_bundle`, for callers that create a store only for a valid bundle:
    all checks that need no store."""
    if purpose not in ("continue", "read"):
        raise InvalidValue(
            field="purpose", problem=f"is {purpose!r}", remedy="use continue or read"
        )
    checked = await check_bundle(source, allow_secrets=allow_secrets, limits=limits)
    document = checked.bundle.document
    if purpose == "continue":
        _check_use(checked, accept_redacted=accept_redacted)
    facts = document.session
    scope = Scope(
        facts.tenant if tenant is None else tenant, facts.session if session is None else session
    )
    check_key(scope)
    return Prepared(
        bundle=checked.bundle,
        scope=scope,
        use=purpose,
        names=names and purpose == "continue",
        origin=_origin(document, scope),
    )


async def import_prepared(
    store: Store, ready: Prepared, *, progress: Callable[[int], None] | None = None
) -> Imported:
    """The second half of `import_bundle`."""
    job = _Job(
        store=store,
        bundle=ready.bundle,
        scope=ready.scope,
        use=ready.use,
        origin=ready.origin,
        progress=progress or (lambda events: None),
    )
    return await _import(job, names=ready.names)


def _check_use(checked: Checked, *, accept_redacted: bool) -> None:
    document = checked.bundle.document
    problem = None
    if document.mode == "replay_only":
        problem, remedy = "has no content", "import it with purpose='read', or replay it"
    elif document.purpose == "share" and not checked.quiet:
        problem = "was exported for sharing, and its open work may continue in the source"
        remedy = "export it with purpose='copy' or 'move', or import it with purpose='read'"
    elif accept_redacted:
        return
    elif document.mode != "local":
        problem, remedy = "is redacted", "pass accept_redacted=True, or purpose='read'"
    elif any(blob.part is None for blob in document.blobs):
        problem, remedy = "lacks blobs", "pass accept_redacted=True, or export it with attachments"
    if problem is not None:
        raise NotContinuable(bundle=document.bundle_id, problem=problem, remedy=remedy)


async def _import(job: _Job, *, names: bool) -> Imported:
    while True:
        job = await _claimed(job)
        # In this order: if nobody has the import lock, nothing that is found will be removed.
        idle = await job.store.row(place_of(job.scope)) is None
        if idle and not any(await _missing(job)):
            return _imported(job)
        async with turn(job.store, job.scope) as mine:
            # Another import may have released the claim, or used another id.
            holder = await job.store.claim(job.scope.tenant, job.origin, job.scope)
            if holder == job.scope:
                return await _fill(job, mine, names=names)


async def _claimed(job: _Job) -> _Job:
    """The import with its claim; under another id if the bundle was imported under that."""
    # In this order: threads that appear in between belong to a concurrent import of this bundle.
    there = await _threads(job)
    known = not there or job.origin in await job.store.claims(job.scope)
    holder = await job.store.claim(job.scope.tenant, job.origin, job.scope)
    if holder != job.scope:
        return replace(job, scope=holder)
    if not known:
        await job.store.unclaim(job.scope.tenant, job.origin, job.scope)
        raise _taken(job, there)
    return job


async def _missing(job: _Job) -> tuple[list[Thread], list[Blob]]:
    """The missing threads and blobs; `SessionExists` if the id belongs to another session, or the
    session is sealed."""
    rows = await _threads(job)
    there = {row.thread for row in rows}
    if not await _is_ours(job, there):
        await job.store.unclaim(job.scope.tenant, job.origin, job.scope)
        raise _taken(job, rows)
    if job.use == "continue" and _sealed(rows):
        raise _taken(job, rows)
    threads = [
        thread for thread in order(job.bundle.document.threads) if thread.thread not in there
    ]
    have = {ref.sha256 for ref in await job.store.blobs(job.scope)}
    blobs = [b for b in job.bundle.document.blobs if b.part is not None and b.sha256 not in have]
    return threads, blobs


def _taken(job: _Job, rows: Iterable[Row]) -> SessionExists:
    thread = min(row.thread for row in rows)
    return SessionExists(tenant=job.scope.tenant, session=job.scope.session, thread=thread)


async def _fill(job: _Job, mine: ImportLock, *, names: bool) -> Imported:
    """Write what is missing; if that fails, nothing."""
    document = job.bundle.document
    mark = f"{REDACTED}{document.mode}:{job.scope.session}"
    ours = {job.origin, mark, *document.session.claims}
    before = [name for name in await job.store.claims(job.scope) if name not in ours]
    written: dict[Key, int] = {}
    try:
        threads, blobs = await _missing(job)
        if document.mode != "local":
            await job.store.claim(job.scope.tenant, mark, job.scope)
        held = await _claim(job, document.session.claims) if names and threads else ()
        for blob in blobs:
            await _put(job, blob)
        events = 0
        for thread in threads:
            await mine.check()
            events += await _restore(job, thread, written)
    except BaseException:
        await _undo(job, mine, written, before)
        raise
    fresh = bool(threads or blobs)
    return _imported(job, fresh=fresh, events=events, blobs=len(blobs), held=held)


async def _undo(
    job: _Job, mine: ImportLock, written: Mapping[Key, int], before: Sequence[str]
) -> None:
    """Remove what a failed import has written, unless the session was continued meanwhile; then
    the same call finishes the import."""
    with suppress(HoldfastError):
        if await mine.take_back(written) and not await _threads(job):
            for name in before:  # they were deleted with the lock
                await job.store.claim(job.scope.tenant, name, job.scope)


async def _threads(job: _Job) -> list[Row]:
    """The existing threads, without temporary ones of an interrupted import."""
    rows = await threads_of(job.store, job.scope)
    return [row for row in rows if _BASE.fullmatch(row.thread) is None]


async def _is_ours(job: _Job, there: Collection[str]) -> bool:
    """Whether the existing threads are from this bundle, even if they were continued. An import
    that was interrupted after its claim may have used the id of another session."""
    mine = [thread for thread in job.bundle.document.threads if thread.thread in there]
    for thread in mine:
        last = await _last(poured(job.bundle, thread))
        before = thread.head + 1
        found = await _last(
            job.store.read(job.key(thread.thread), after=thread.head - 1, before=before)
        )
        if found is None or last is None or (found.id, found.at) != (last.id, last.at):
            return False
    return bool(mine) or not there


async def _last(events: AsyncGenerator[Event, None]) -> Event | None:
    last = None
    async with aclosing(events):
        async for event in events:
            last = event
    return last


def _sealed(rows: Iterable[Row]) -> bool:
    return any(row.sealed is not None for row in rows)


def _origin(document: Document, scope: Scope) -> str:
    """The claim of the import: a move has only one, other bundles have one per session id."""
    name = CLAIM + document.bundle_id
    if document.purpose == "move" or scope.session == document.session.session:
        return name
    return f"{name}:{scope.session}"


def _imported(
    job: _Job,
    *,
    fresh: bool = False,
    events: int = 0,
    blobs: int = 0,
    held: Sequence[str] = (),
) -> Imported:
    document = job.bundle.document
    return Imported(
        bundle_id=document.bundle_id,
        tenant=job.scope.tenant,
        session=job.scope.session,
        fresh=fresh,
        purpose=job.use,
        liveness=document.liveness,
        threads=tuple(thread.thread for thread in document.threads),
        events=events,
        blobs=blobs,
        held=tuple(held),
    )


async def _claim(job: _Job, names: Sequence[str]) -> tuple[str, ...]:
    """Claim the session's names; returns those that another session holds."""
    held = []
    for name in names:
        if await job.store.claim(job.scope.tenant, name, job.scope) != job.scope:
            held.append(name)
    return tuple(held)


async def _put(job: _Job, blob: Blob) -> None:
    """Write a blob. Blobs are written before the threads, so that their drivers find them."""
    data = await asyncio.to_thread(job.bundle.blob, blob.sha256)
    if await job.store.put_blob(job.scope, data) != BlobRef(blob.sha256, blob.size):
        raise changed(f"blobs/{blob.sha256}")


# Threads


async def _restore(job: _Job, thread: Thread, written: dict[Key, int]) -> int:
    """Restore one thread and what it shares with its parent; returns the number of its events."""
    if thread.parent is not None or thread.shared == 0:
        return await _write(job, thread, thread.parent, written)
    chain = await _chain(poured(job.bundle, thread, upto=thread.shared))
    base = base_of(job.scope, chain)
    shared = poured(job.bundle, thread, upto=thread.shared)
    await restore_base(job.store, base, shared, thread.shared)
    try:
        return await _write(job, thread, Parent(base.thread, thread.shared), written)
    finally:
        await job.store.delete(base)


async def _write(job: _Job, thread: Thread, parent: Parent | None, written: dict[Key, int]) -> int:
    after = parent.at if parent is not None else 0
    key = job.key(thread.thread)

    async def events() -> AsyncGenerator[Event, None]:
        last = None
        async with aclosing(poured(job.bundle, thread, after=after)) as found:
            async for event in found:
                last = event
                yield event
                job.progress(1)
        if job.use == "read" and last is not None:
            yield _sealing(job, last)

    written[key] = thread.head + (job.use == "read")  # before the write: it may be interrupted
    try:
        await job.store.restore(key, events(), parent=parent)
    except SessionExists:
        del written[key]
        # Either another session, or a concurrent import of the same bundle.
        there = job.store.read(key, after=after, before=thread.head + 1)
        if await _chain(there) != await _chain(poured(job.bundle, thread, after=after)):
            raise
        return 0
    return thread.head - after


async def _chain(events: AsyncGenerator[Event, None]) -> bytes:
    chain = START
    async with aclosing(events):
        async for event in events:
            chain = link(chain, event)
    return chain


def _sealing(job: _Job, last: Event) -> Event:
    """The event that seals a log after its last event. An export leaves it out."""
    moved = NewEvent.of("session.moved", {"to": NOWHERE}, id=f"read:{job.bundle.id}")
    return moved.numbered(last.seq + 1, last.at)
