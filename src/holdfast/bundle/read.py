"""`import_bundle`: a bundle as a session of a store, under any id.

The bundle is checked whole first. Then the logs are restored as they are: an import appends
nothing to them. Where they are from stands beside them, as a claim that the session holds, and by
which the same bundle is known when it comes again.
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
from .import_lock import Turn, place_of, turn
from .write import CLAIM, REDACTED

_BASE = re.compile(r"base:[0-9a-f]{32}")  # threads that stand in for others, for a while
NOWHERE = "nowhere: it was imported to be read"  # what seals a session that is not to go on


class Prepared(Struct, frozen=True, kw_only=True):
    """A bundle that was checked whole, and what is to become of it. No store was asked yet."""

    bundle: Bundle
    scope: Scope
    use: Use
    names: bool
    origin: str  # the claim of a session that came from this bundle


class _Job(Struct, frozen=True, kw_only=True):
    """What is imported, and where to."""

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
    """Check a bundle whole, then make its session in `store`, under its own id or another.

    To `continue` it, a bundle must be faithful (or `accept_redacted`), never `replay_only`, and
    either made by `copy` or `move` or have nothing open: otherwise `NotContinuable`. To `read` it,
    any will do; its threads are sealed. The same bundle again is the same session. `SessionExists`
    when the id is another session's. With `names=False` the names that it held are left.

    All or nothing: what was written is removed when the rest fails, unless somebody has gone on
    with it. Cut off by a crash, the same call finishes it. Of several at a time each waits for
    its turn, and finds what was done; `LeaseHeld` when it waited for a minute. `progress` is told
    of events that were written.
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
    """The first half of `import_bundle`, for those who make a store only for what can be imported:
    everything that can be refused without a look into one is."""
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
        problem, remedy = "holds no content", "import it with purpose='read', or replay it"
    elif document.purpose == "share" and not checked.quiet:
        problem = "was made to be shared, and what is open in it may go on in its source"
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
        # In this order: without a place, nobody is about to take back what is found then.
        idle = await job.store.row(place_of(job.scope)) is None
        if idle and not any(await _missing(job)):
            return _imported(job)
        async with turn(job.store, job.scope) as mine:
            # Whoever had the turn may have given the name up, or have it under another id.
            holder = await job.store.claim(job.scope.tenant, job.origin, job.scope)
            if holder == job.scope:
                return await _fill(job, mine, names=names)


async def _claimed(job: _Job) -> _Job:
    """The import with the claim that says where the session is from: perhaps under another id,
    where one was cut, or has been."""
    # In this order: what comes between is from an import of the same bundle at the same time.
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
    """What the session lacks of the bundle; `SessionExists` when it is another's, or sealed."""
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


async def _fill(job: _Job, mine: Turn, *, names: bool) -> Imported:
    """Write what is missing, or nothing."""
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


async def _undo(job: _Job, mine: Turn, written: Mapping[Key, int], before: Sequence[str]) -> None:
    """Leave nothing of an import that failed, but for what was there before it, and what somebody
    has gone on with: that the same call finishes."""
    with suppress(HoldfastError):
        if await mine.take_back(written) and not await _threads(job):
            for name in before:  # they went with the place
                await job.store.claim(job.scope.tenant, name, job.scope)


async def _threads(job: _Job) -> list[Row]:
    """The threads that are there, but for what an import that was cut has left."""
    rows = await threads_of(job.store, job.scope)
    return [row for row in rows if _BASE.fullmatch(row.thread) is None]


async def _is_ours(job: _Job, there: Collection[str]) -> bool:
    """Whether the threads that are there are from this bundle, however far they went on: an import
    that was cut after its claim may have found the id taken."""
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
    """A move has one continuation; of anything else, each id that it is imported under has one."""
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
    """Take the session's names; those that another session holds stay there."""
    held = []
    for name in names:
        if await job.store.claim(job.scope.tenant, name, job.scope) != job.scope:
            held.append(name)
    return tuple(held)


async def _put(job: _Job, blob: Blob) -> None:
    """Put a blob. They come before the threads, so that whoever drives those finds them."""
    data = await asyncio.to_thread(job.bundle.blob, blob.sha256)
    if await job.store.put_blob(job.scope, data) != BlobRef(blob.sha256, blob.size):
        raise changed(f"blobs/{blob.sha256}")


# Threads


async def _restore(job: _Job, thread: Thread, written: dict[Key, int]) -> int:
    """Restore one thread, so that it shares what it shared; the number of its events."""
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

    written[key] = thread.head + (job.use == "read")  # also if this is cut when it is done
    try:
        await job.store.restore(key, events(), parent=parent)
    except SessionExists:
        del written[key]
        # Something else was made here, or what comes from the same bundle by another way.
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
    """What keeps a log from going on, behind its end. An export leaves it out again."""
    moved = NewEvent.of("session.moved", {"to": NOWHERE}, id=f"read:{job.bundle.id}")
    return moved.numbered(last.seq + 1, last.at)
