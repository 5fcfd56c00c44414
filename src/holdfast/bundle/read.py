"""`import_bundle`: imports a bundle into a store as a session, under any id.

The whole bundle is validated first. Then the logs are restored unchanged; an import adds no events.
The session claims a name derived from the bundle, so that a second import of the same bundle is
recognized.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress

from msgspec import Struct
from msgspec.structs import asdict, replace

from ..errors import HoldfastError, InvalidBundle, InvalidValue, NotContinuable, SessionExists
from ..log.catalog import Parent, Row
from ..log.codec import check_key
from ..log.events import Event, Key, NewEvent, Scope
from ..stores.copy import base_of, restore_base
from ..stores.measure import START, link, threads_of
from ..stores.port import BlobRef, Store
from ..values.records import Imported, Use
from .archive import Bundle, EventStream, streamed
from .check import Checked, Source, check_bundle, order
from .contents import opened_part
from .faults import invalid
from .format import BUNDLE_LIMITS, Blob, BundleLimits, Document, Part, Thread, event_of
from .import_lock import ImportLock, lock_key, locked_import
from .write import CLAIM, REDACTED, Progress

_BASE = re.compile(r"base:[0-9a-f]{32}")  # temporary threads of an import
NOWHERE = "nowhere: it was imported to be read"  # the seal of a session imported with `read`


class Prepared(Struct, frozen=True, kw_only=True):
    """A validated bundle and the options of its import. No store has been used yet."""

    bundle: Bundle
    scope: Scope
    use: Use
    names: bool
    origin: str  # the claim of a session that came from this bundle


class _Job(Prepared, frozen=True, kw_only=True):
    """An import: the validated bundle, its options, and the store to write to."""

    store: Store
    progress: Progress

    def key(self, thread: str) -> Key:
        return Key(self.scope.tenant, self.scope.session, thread)

    async def claim(self, name: str) -> Scope:
        """Claim a name for the session; return the session that has it."""
        return await self.store.claim(self.scope.tenant, name, self.scope)

    async def unclaim(self) -> None:
        """Release the name that the session has claimed for this import."""
        await self.store.unclaim(self.scope.tenant, self.origin, self.scope)


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
    progress: Progress | None = None,
) -> Imported:
    """Validate a bundle, then create its session in `store`, under its own id or another.

    With `purpose="continue"` the session can be continued. The bundle must not be `replay_only`,
    must not be redacted (unless `accept_redacted` is set), and must have the purpose `copy` or
    `move` or contain nothing open. Otherwise `NotContinuable` is raised. With `purpose="read"` any
    bundle is accepted, and the threads are sealed. Importing the same bundle again returns the same
    session. Raises `SessionExists` if another session has the id. With `names=False` the session
    does not claim the names of the original.

    A failed import is undone: everything written is removed, unless the session was continued in
    the meantime. After a crash, repeat the call to finish the import. Concurrent imports wait for
    each other; `LeaseHeld` is raised after a minute. `progress` is called with the number of events
    written.

    See [bundles](../bundles.md).
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
    """Validate a bundle without a store: the first step of `import_bundle`. Use it to create a
    store only for a valid bundle, then call `import_prepared`.
    """
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
    store: Store, ready: Prepared, *, progress: Progress | None = None
) -> Imported:
    """Import a bundle that `prepare_import` has validated: the second step of `import_bundle`."""
    progress = progress or (lambda events: None)
    return await _import(_Job(**asdict(ready), store=store, progress=progress))


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


async def _import(job: _Job) -> Imported:
    while True:
        job = await _claimed(job)
        # Check the lock first: while no import holds it, none removes what is found next.
        idle = await job.store.row(lock_key(job.scope)) is None
        if idle and not any(await _missing(job)):
            return _imported(job)
        async with locked_import(job.store, job.scope) as mine:
            # Meanwhile another import may have released the claim, or used another id.
            holder = await job.claim(job.origin)
            if holder == job.scope:
                return await _fill(job, mine)


async def _claimed(job: _Job) -> _Job:
    """Claim the import and return the job. If the bundle was imported before under another id, the
    returned job uses that id.
    """
    # In this order: threads that appear in between belong to a concurrent import of this bundle.
    there = await _threads(job)
    known = not there or job.origin in await job.store.claims(job.scope)
    holder = await job.claim(job.origin)
    if holder != job.scope:
        return replace(job, scope=holder)
    if not known:
        await job.unclaim()
        raise _taken(job, there)
    return job


async def _missing(job: _Job) -> tuple[list[Thread], list[Blob]]:
    """Return the threads and blobs that are missing in the store. Raises `SessionExists` if the id
    belongs to another session, or the session is sealed.
    """
    rows = await _threads(job)
    there = {row.thread for row in rows}
    if not await _is_ours(job, there):
        await job.unclaim()
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


async def _fill(job: _Job, mine: ImportLock) -> Imported:
    """Write the missing threads and blobs. If that fails, delete everything that was written."""
    document = job.bundle.document
    mark = f"{REDACTED}{document.mode}:{job.scope.session}"
    ours = {job.origin, mark, *document.session.claims}
    before = [name for name in await job.store.claims(job.scope) if name not in ours]
    written: dict[Key, int] = {}
    try:
        threads, blobs = await _missing(job)
        if document.mode != "local":
            await job.claim(mark)
        held = await _claim(job, document.session.claims) if job.names and threads else ()
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
    """Delete everything that a failed import has written. If the session was continued in the
    meantime, nothing is deleted, and repeating the call finishes the import.
    """
    with suppress(HoldfastError):
        if await mine.take_back(written) and not await _threads(job):
            for name in before:  # they were deleted with the lock
                await job.claim(name)


async def _threads(job: _Job) -> list[Row]:
    """Return the existing threads, without the temporary threads of an interrupted import."""
    rows = await threads_of(job.store, job.scope)
    return [row for row in rows if _BASE.fullmatch(row.thread) is None]


async def _is_ours(job: _Job, there: Collection[str]) -> bool:
    """Return whether the existing threads came from this bundle, even if they were continued. An
    import that was interrupted after its claim may have used the id of another session.
    """
    mine = [thread for thread in job.bundle.document.threads if thread.thread in there]
    for thread in mine:
        last = await _last(_part(job.bundle, thread))
        before = thread.head + 1
        found = await _last(
            job.store.read(job.key(thread.thread), after=thread.head - 1, before=before)
        )
        if found is None or last is None or (found.id, found.at) != (last.id, last.at):
            return False
    return bool(mine) or not there


async def _last(events: EventStream) -> Event | None:
    last = None
    async with aclosing(events):
        async for event in events:
            last = event
    return last


def _sealed(rows: Iterable[Row]) -> bool:
    return any(row.sealed is not None for row in rows)


def _origin(document: Document, scope: Scope) -> str:
    """Return the name that a session claims to record that it was imported from this bundle. For a
    move there is one name; otherwise each session id has its own.
    """
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
    """Claim the session's names. Returns the names that another session has claimed."""
    return tuple([name for name in names if await job.claim(name) != job.scope])


async def _put(job: _Job, blob: Blob) -> None:
    """Write a blob. Blobs are written before the threads, so that drivers of the threads find
    them.
    """
    data = await asyncio.to_thread(job.bundle.blob, blob.sha256)
    if await job.store.put_blob(job.scope, data) != BlobRef(blob.sha256, blob.size):
        raise _changed(f"blobs/{blob.sha256}")


# Threads


async def _part(
    bundle: Bundle, thread: Thread, *, after: int = 0, upto: int | None = None
) -> EventStream:
    """Yield the events of a thread's part with after < seq ≤ upto. Raises `InvalidBundle` at the
    end if the file was changed after it was validated.
    """
    listed = {part.name: part for part in bundle.document.parts}
    async with aclosing(streamed(_verified(bundle, listed[thread.part]))) as events:
        async for event in events:
            if upto is not None and event.seq > upto:
                return
            if event.seq > after:
                yield event


def _verified(bundle: Bundle, part: Part) -> Generator[Event, None, None]:
    with opened_part(bundle.parts, part) as file:
        while line := file.readline(-1):
            yield event_of(line)
    if file.fault() is not None:
        raise _changed(part.name)


def _changed(path: str) -> InvalidBundle:
    return invalid("tampered", path, "was changed while it was imported")


async def _restore(job: _Job, thread: Thread, written: dict[Key, int]) -> int:
    """Restore one thread and the events that it shares with its parent; return the number of its
    events.
    """
    if thread.parent is not None or thread.shared == 0:
        return await _write(job, thread, thread.parent, written)
    chain = await _chain(_part(job.bundle, thread, upto=thread.shared))
    base = base_of(job.scope, chain)
    shared = _part(job.bundle, thread, upto=thread.shared)
    await restore_base(job.store, base, shared, thread.shared)
    try:
        return await _write(job, thread, Parent(base.thread, thread.shared), written)
    finally:
        await job.store.delete(base)


async def _write(job: _Job, thread: Thread, parent: Parent | None, written: dict[Key, int]) -> int:
    after = parent.at if parent is not None else 0
    key = job.key(thread.thread)

    async def events() -> EventStream:
        last = None
        async with aclosing(_part(job.bundle, thread, after=after)) as found:
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
        if await _chain(there) != await _chain(_part(job.bundle, thread, after=after)):
            raise
        return 0
    return thread.head - after


async def _chain(events: EventStream) -> bytes:
    chain = START
    async with aclosing(events):
        async for event in events:
            chain = link(chain, event)
    return chain


def _sealing(job: _Job, last: Event) -> Event:
    """Create the event that seals a log after its last event. Exports omit this event."""
    moved = NewEvent.of("session.moved", {"to": NOWHERE}, id=f"read:{job.bundle.id}")
    return moved.numbered(last.seq + 1, last.at)
