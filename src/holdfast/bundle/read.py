"""`import_bundle`: a bundle as a session of a store, under any id.

The bundle is checked whole first. Then the logs are restored as they are: an import appends
nothing to them. Where they are from stands beside them, as a claim that the session holds, and by
which the same bundle is known when it comes again.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterable, Sequence
from contextlib import aclosing, suppress
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..catalog import Parent, Row
from ..codec import check_key
from ..errors import (
    Fault,
    HoldfastError,
    InvalidBundle,
    InvalidValue,
    NotContinuable,
    SessionExists,
)
from ..events import Event, Key, NewEvent, Scope
from ..store import BlobRef, Store
from ..stores.copy import base_of, restore_base
from ..stores.measure import START, link, threads_of
from ..stores.rules import numbered
from .archive import PIECE, Bundle
from .check import Checked, Source, check_bundle, order
from .contents import opened_part
from .format import BUNDLE_LIMITS, BundleLimits, Liveness, Part, Thread, event_of
from .write import CLAIM, REDACTED

Use: TypeAlias = Literal["continue", "read"]

_BASE = re.compile(r"base:[0-9a-f]{32}")  # threads that stand in for others, for a while
NOWHERE = "nowhere: it was imported to be read"  # what seals a session that is not to go on


class Imported(Struct, frozen=True, kw_only=True):
    """What became of an import. `fresh`: something was written; otherwise the session was there
    from this bundle already. `held` are names that another session holds, and that were left."""

    bundle_id: str
    tenant: str
    session: str
    fresh: bool
    purpose: Use
    liveness: Liveness
    threads: tuple[str, ...]
    events: int = 0
    blobs: int = 0
    held: tuple[str, ...] = ()

    @property
    def scope(self) -> Scope:
        return Scope(self.tenant, self.session)


class _Job(Struct, frozen=True, kw_only=True):
    """What is imported, and where to."""

    store: Store
    bundle: Bundle
    scope: Scope
    use: Use
    progress: Callable[[int], None]

    def key(self, thread: str) -> Key:
        return Key(self.scope.tenant, self.scope.session, thread)

    @property
    def place(self) -> Key:
        """A thread that stands for the session until its own are there."""
        return base_of(self.scope, hashlib.sha256(self.bundle.id.encode()).digest())


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

    All or nothing: what was written is removed when the rest fails. Cut off by a crash, the same
    call finishes it. `progress` is told of events that were written.
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
    job = _Job(
        store=store,
        bundle=checked.bundle,
        scope=scope,
        use=purpose,
        progress=progress or (lambda events: None),
    )
    return await _import(job, names=names and purpose == "continue")


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
    document = job.bundle.document
    origin = _claim_name(job)
    # In this order: what comes between is from an import of the same bundle at the same time.
    known = not await _threads(job) or origin in await job.store.claims(job.scope)
    holder = await job.store.claim(job.scope.tenant, origin, job.scope)
    if holder != job.scope:  # perhaps of an import that was cut, and is finished now
        job, known = replace(job, scope=holder), True
    written: list[Key] = []
    try:
        there = {row.thread: row for row in await _threads(job)}
        known = known and await _is_ours(job, there)
        if there and (not known or (job.use == "continue" and _sealed(there.values()))):
            raise SessionExists(
                tenant=job.scope.tenant, session=job.scope.session, thread=min(there)
            )
        missing = [thread for thread in order(document.threads) if thread.thread not in there]
        if document.mode != "local":
            mark = f"{REDACTED}{document.mode}:{job.scope.session}"
            await job.store.claim(job.scope.tenant, mark, job.scope)
        held = await _claim(job, document.session.claims) if names and missing else ()
        blobs = await _blobs(job)
        events = 0
        for thread in missing:
            events += await _restore(job, thread, written)
    except BaseException:
        await _undo(job, written, origin, known=known)
        raise
    finally:
        await job.store.delete(job.place)
    fresh = bool(missing or blobs)
    return _imported(job, job.scope, fresh=fresh, events=events, blobs=blobs, held=held)


async def _threads(job: _Job) -> list[Row]:
    """The threads that are there, but for what an import that was cut has left."""
    rows = await threads_of(job.store, job.scope)
    return [row for row in rows if _BASE.fullmatch(row.thread) is None]


async def _is_ours(job: _Job, there: Collection[str]) -> bool:
    """Whether the threads that are there are from this bundle, however far they went on: an import
    that was cut after its claim may have found the id taken."""
    mine = [thread for thread in job.bundle.document.threads if thread.thread in there]
    for thread in mine:
        last = await _last(_poured(job, thread))
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


def _claim_name(job: _Job) -> str:
    """A move has one continuation; of anything else, each id that it is imported under has one."""
    document = job.bundle.document
    name = CLAIM + document.bundle_id
    if document.purpose == "move" or job.scope.session == document.session.session:
        return name
    return f"{name}:{job.scope.session}"


def _imported(
    job: _Job,
    scope: Scope,
    *,
    fresh: bool = False,
    events: int = 0,
    blobs: int = 0,
    held: Sequence[str] = (),
) -> Imported:
    document = job.bundle.document
    return Imported(
        bundle_id=document.bundle_id,
        tenant=scope.tenant,
        session=scope.session,
        fresh=fresh,
        purpose=job.use,
        liveness=document.liveness,
        threads=tuple(thread.thread for thread in document.threads),
        events=events,
        blobs=blobs,
        held=tuple(held),
    )


async def _undo(job: _Job, written: Sequence[Key], origin: str, *, known: bool) -> None:
    """Leave nothing of an import that failed, but for what was there before it."""
    with suppress(HoldfastError):
        for key in reversed(written):
            await job.store.delete(key)
        if not await _threads(job):
            await job.store.delete(job.scope)
            for name in await job.store.claims(job.scope):
                await job.store.unclaim(job.scope.tenant, name, job.scope)
        elif not known:
            await job.store.unclaim(job.scope.tenant, origin, job.scope)


async def _claim(job: _Job, names: Sequence[str]) -> tuple[str, ...]:
    """Take the session's names; those that another session holds stay there."""
    held = []
    for name in names:
        if await job.store.claim(job.scope.tenant, name, job.scope) != job.scope:
            held.append(name)
    return tuple(held)


async def _blobs(job: _Job) -> int:
    """Put the blobs that are not there. They come before the threads, so that whoever drives those
    finds them; until then a thread that wants no driver holds their place."""
    have = {ref.sha256 for ref in await job.store.blobs(job.scope)}
    blobs = [b for b in job.bundle.document.blobs if b.part is not None and b.sha256 not in have]
    if blobs:
        await restore_base(job.store, job.place, _none(), 0)
    for blob in blobs:
        data = await asyncio.to_thread(job.bundle.blob, blob.sha256)
        if await job.store.put_blob(job.scope, data) != BlobRef(blob.sha256, blob.size):
            raise _changed(f"blobs/{blob.sha256}")
    return len(blobs)


async def _none() -> AsyncGenerator[Event, None]:
    for event in list[Event]():
        yield event


# Threads


async def _restore(job: _Job, thread: Thread, written: list[Key]) -> int:
    """Restore one thread, so that it shares what it shared; the number of its events."""
    if thread.parent is not None or thread.shared == 0:
        return await _write(job, thread, thread.parent, written)
    chain = await _chain(_poured(job, thread, upto=thread.shared))
    base = base_of(job.scope, chain)
    await restore_base(job.store, base, _poured(job, thread, upto=thread.shared), thread.shared)
    try:
        return await _write(job, thread, Parent(base.thread, thread.shared), written)
    finally:
        await job.store.delete(base)


async def _write(job: _Job, thread: Thread, parent: Parent | None, written: list[Key]) -> int:
    after = parent.at if parent is not None else 0
    key = job.key(thread.thread)

    async def events() -> AsyncGenerator[Event, None]:
        last = None
        async with aclosing(_poured(job, thread, after=after)) as found:
            async for event in found:
                last = event
                yield event
                job.progress(1)
        if job.use == "read" and last is not None:
            yield _sealing(job, last)

    try:
        await job.store.restore(key, events(), parent=parent)
    except SessionExists:
        # Somebody imports the same bundle at the same time, or something else was made here.
        there = job.store.read(key, after=after, before=thread.head + 1)
        if await _chain(there) != await _chain(_poured(job, thread, after=after)):
            raise
        return 0
    written.append(key)
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
    return numbered(moved, last.seq + 1, last.at)


async def _poured(
    job: _Job, thread: Thread, *, after: int = 0, upto: int | None = None
) -> AsyncGenerator[Event, None]:
    """The events of a thread's part with after < seq ≤ upto. `InvalidBundle` at the end, if the
    file was changed since it was checked."""
    listed = {part.name: part for part in job.bundle.document.parts}
    pieces = _pieces(job.bundle, listed[thread.part])
    try:
        while some := await asyncio.to_thread(next, pieces, None):
            for event in some:
                if upto is not None and event.seq > upto:
                    return
                if event.seq > after:
                    yield event
    finally:
        await asyncio.to_thread(pieces.close)


def _pieces(bundle: Bundle, part: Part) -> Generator[list[Event], None, None]:
    some: list[Event] = []
    size = 0
    with opened_part(bundle.parts, part) as file:
        while line := file.readline(-1):
            some.append(event_of(line))
            size += len(line)
            if size > PIECE:
                yield some
                some, size = [], 0
    if file.fault() is not None:
        raise _changed(part.name)
    if some:
        yield some


def _changed(path: str) -> InvalidBundle:
    fault = Fault(code="tampered", path=path, problem="was changed while it was imported")
    return InvalidBundle(faults=[fault])
