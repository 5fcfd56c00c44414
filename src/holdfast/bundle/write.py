"""`export_bundle`: exports a session from any store as a bundle, in memory or to a file.

The logs are read twice: first to measure them, then to redact and summarize them event by event.
Summaries are built from redacted events, so they never show withheld content. If a secret that was
found in one value still occurs in another, the export is repeated with that secret added to the
rules. Memory does not grow with the log. Everything except the calls of the store runs in a thread.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypedDict, Unpack, get_args, overload

import msgspec
from msgspec.structs import replace

from ..errors import InvalidValue
from ..log.catalog import SURFACE_CLAIM, Parent
from ..log.codec import check_count, check_key, check_name
from ..log.events import Event, Key, Scope
from ..stores.copy import check_place, seal, unseal
from ..stores.measure import MeasuredLog, closing, measured, placed, prefix, survey, threads_of
from ..stores.port import Store
from ..webhooks.records import TENANT as WEBHOOKS
from .archive import PIECE, Bundle, WrittenBundle, save
from .blob_renames import renamed
from .format import BUNDLE_LIMITS, Blob, Purpose, Section, Thread, line_of
from .redaction.manifest import Mode
from .redaction.review import Review
from .redaction.scrub import Scrub, ScrubConfig
from .sections import Digest
from .spool import Spool, check_path
from .summary import DocumentBuilder, ExportFacts

if TYPE_CHECKING:
    from ..harness import Session

CLAIM = "bundle:"  # + a bundle's id: the claim of a session that was imported from it
REDACTED = "redacted:"  # + the mode of that bundle and the session id, if it was redacted
MODES: tuple[Mode, ...] = ("local", "sanitized", "replay_only")  # least redacted first


Origin: TypeAlias = "Session | tuple[Store, Scope]"
Progress: TypeAlias = Callable[[int], None]
ForkedLog: TypeAlias = tuple[MeasuredLog, Parent | None]  # a log and where it was forked


class ExportOptions(TypedDict, total=False):
    """The options of `export_bundle`, except the mode and the file."""

    purpose: Purpose
    threads: Collection[str] | None
    upto: int | None
    attachments: bool | None
    scrub: ScrubConfig | None
    move_to: str | None
    actor: str | None
    progress: Progress | None


@overload
async def export_bundle(
    session: Origin,
    mode: Mode = "sanitized",
    *,
    to: None = None,
    **options: Unpack[ExportOptions],
) -> Bundle: ...


@overload
async def export_bundle(
    session: Origin, mode: Mode = "sanitized", *, to: str | Path, **options: Unpack[ExportOptions]
) -> WrittenBundle: ...


async def export_bundle(
    session: Origin,
    mode: Mode = "sanitized",
    *,
    purpose: Purpose = "share",
    threads: Collection[str] | None = None,
    upto: int | None = None,
    to: str | Path | None = None,
    attachments: bool | None = None,
    scrub: ScrubConfig | None = None,
    move_to: str | None = None,
    actor: str | None = None,
    progress: Progress | None = None,
) -> Bundle | WrittenBundle:
    """Export a session as a bundle; with `to`, into a file: a single JSON file if the name ends in
    `.json`, else an archive. The same log yields the same bundle.

    `mode` selects the content, `purpose` the intended use. `share` exports the log unchanged.
    `copy` closes pending items and runs, so that the copy can continue. `move` exports everything
    unchanged and seals the source, which is marked as moved to `move_to` by `actor`. Raises
    `LeaseHeld` while the session has a driver. If the export fails, the source is unsealed.

    `threads` are the threads to export, by default all. `upto` is the last event to export of
    thread `main`, or of the single thread in `threads`. `attachments` includes blobs; the default
    is only in mode `local`. `progress` is called with the number of events read.

    See [bundles](../bundles.md).
    """
    store, scope = origin_of(session)
    _check(mode, purpose, threads, upto, move_to)
    await _check_faithful(store, scope, mode)
    job = _Job(
        store=store,
        scope=scope,
        mode=mode,
        purpose=purpose,
        upto=upto,
        threads=threads,
        blobs=mode == "local" if attachments is None else attachments,
        scrub=await asyncio.to_thread(_scrub, mode, scrub),
        config=scrub,
        progress=progress or (lambda events: None),
    )
    path = None if to is None else Path(to)
    await asyncio.to_thread(check_path, path)
    return await (
        _move(job, path, move_to or "a bundle", actor) if purpose == "move" else _export(job, path)
    )


async def _check_faithful(store: Store, scope: Scope, mode: Mode) -> None:
    """Raise `InvalidValue` for a mode that is less strict than the mode of the bundle from which
    the session was imported.
    """
    for name in await store.claims(scope):
        came = name.split(":")[1] if name.startswith(REDACTED) else "local"
        if came in MODES and MODES.index(mode) < MODES.index(came):
            raise InvalidValue(
                field="mode",
                problem=f"is {mode}, but the session was imported from a {came} bundle",
                remedy=f"export it as {came}",
            )


class _Job(msgspec.Struct, frozen=True, kw_only=True):
    """The session to export, and the options."""

    store: Store
    scope: Scope
    mode: Mode
    purpose: Purpose
    upto: int | None
    threads: Collection[str] | None
    blobs: bool
    scrub: Scrub
    config: ScrubConfig | None
    review: Review | None = None
    known: dict[str, str] = {}  # secrets from earlier attempts
    attempts: int = 4  # attempts left, including this one
    progress: Progress


async def _move(
    job: _Job, path: Path | None, name: str, actor: str | None
) -> Bundle | WrittenBundle:
    """Seal and export the session. This is repeated if a thread was created in the meantime."""
    rows = await threads_of(job.store, job.scope)
    for row in rows:
        check_place(row, name)
    opened: set[str] = set()
    try:
        while True:
            opened |= {row.thread for row in rows if row.sealed is None}
            await seal(job.store, job.scope, name, actor)
            made = await _export(job, path)
            rows = await threads_of(job.store, job.scope)
            if all(row.sealed is not None for row in rows):
                return made
    except BaseException:
        await unseal(job.store, job.scope, name, "the export failed", threads=opened)
        raise


def _scrub(mode: Mode, config: ScrubConfig | None, review: Review | None = None) -> Scrub:
    # A local bundle is not redacted, so it needs no detector.
    return Scrub(mode, ScrubConfig(detector=False) if mode == "local" else config, review)


async def review_bundle(
    session: Origin,
    *,
    threads: Collection[str] | None = None,
    upto: int | None = None,
    attachments: bool | None = None,
    scrub: ScrubConfig | None = None,
    progress: Progress | None = None,
) -> Review:
    """List the values that a sanitized bundle of the session would redact, and the possible
    secrets. Nothing is written, and the session is not changed.

    See [bundles](../bundles.md).
    """
    store, scope = origin_of(session)
    _check("sanitized", "share", threads, upto, None)
    review = Review()
    job = _Job(
        store=store,
        scope=scope,
        mode="sanitized",
        purpose="share",
        upto=upto,
        threads=threads,
        blobs=bool(attachments),
        scrub=await asyncio.to_thread(_scrub, "sanitized", scrub, review),
        config=scrub,
        review=review,
        progress=progress or (lambda events: None),
    )
    await _export(job, None)
    return review


def origin_of(session: Origin) -> tuple[Store, Scope]:
    """Return the store and the scope (tenant and id) of the session to export."""
    if isinstance(session, tuple):
        store, scope = session
    else:
        store, scope = session._core.host.store, session.key.scope
    check_key(scope)
    if scope.tenant.startswith(WEBHOOKS):
        raise InvalidValue(
            field="session",
            problem="is a webhook endpoint, whose log has its secrets",
            remedy="add the endpoint again where you need it",
        )
    return store, scope


def _check(
    mode: Mode,
    purpose: Purpose,
    threads: Collection[str] | None,
    upto: int | None,
    move_to: str | None,
) -> None:
    for name, value, known in (("mode", mode, Mode), ("purpose", purpose, Purpose)):
        if value not in get_args(known):
            allowed = ", ".join(get_args(known))
            raise InvalidValue(field=name, problem=f"is {value!r}", remedy=f"use {allowed}")
    if threads is not None and (isinstance(threads, str) or not threads):
        raise InvalidValue(
            field="threads",
            problem=f"is {threads!r}",
            remedy="pass a list with at least one thread",
        )
    if upto is not None:
        check_count("upto", upto, least=1)
        if threads is not None and len(set(threads)) != 1:
            raise InvalidValue(
                field="upto",
                problem=f"was passed for {len(set(threads))} threads",
                remedy="pass exactly one thread",
            )
    if purpose == "move" and (mode != "local" or threads is not None or upto is not None):
        raise InvalidValue(
            field="purpose",
            problem="is move, which needs the whole session unchanged",
            remedy="pass mode='local' without threads and upto, or purpose='copy'",
        )
    if move_to is not None:
        check_name("move_to", move_to)
        if purpose != "move":
            raise InvalidValue(
                field="move_to",
                problem=f"is {move_to!r}, but purpose is {purpose!r}",
                remedy="pass it only with purpose='move'",
            )


async def _export(job: _Job, path: Path | None) -> Bundle | WrittenBundle:
    logs = await _logs(job)
    blobs = len(await job.store.blobs(job.scope)) if job.blobs else 0
    _few("threads", len(logs), BUNDLE_LIMITS.threads)
    _few("blobs", 2 * len(logs) + blobs, BUNDLE_LIMITS.parts)
    while (made := await _attempt(job, logs, path)) is None:
        job = await asyncio.to_thread(_next_attempt, job)
    return made


async def _attempt(
    job: _Job, logs: Sequence[ForkedLog], path: Path | None
) -> Bundle | WrittenBundle | None:
    """Try to build the bundle; None if a secret that was found in one value still occurs in
    another. The last attempt always returns the bundle: a secret that remains then is part of the
    structure, such as a field name.
    """
    spool = await asyncio.to_thread(Spool, path)
    try:
        bundle = await _bundle(job, logs, spool)
        checked = job.mode == "sanitized" and job.attempts > 1
        if checked and await asyncio.to_thread(job.scrub.remains, _lines(bundle)):
            return None
        return bundle if path is None else await asyncio.to_thread(save, bundle, path)
    finally:
        await asyncio.to_thread(spool.close)


def _lines(bundle: Bundle) -> Iterator[Iterable[bytes]]:
    yield [msgspec.json.encode(bundle.raw)]
    for name in bundle.parts.names():
        with bundle.parts.open(name) as part:
            yield part


def _next_attempt(job: _Job) -> _Job:
    """Return the same export, with all secrets found so far added to the rules."""
    if job.review is not None:
        job.review.clear()
    known = {**job.known, **job.scrub.found}
    scrub = _scrub(job.mode, job.config, job.review)
    scrub.learn(known)
    attempts = job.attempts - 1
    return replace(job, known=known, scrub=scrub, attempts=attempts, progress=lambda events: None)


def _few(field: str, count: int, limit: int) -> None:
    if count > limit:
        raise InvalidValue(
            field=field,
            problem=f"the bundle would have {count} parts or threads, but the limit is {limit}",
            remedy="export fewer threads, or omit attachments",
            limit=limit,
        )


async def _logs(job: _Job) -> list[ForkedLog]:
    """Return the logs to export, each with its parent: `main` first, then by age."""
    if job.upto is not None:
        (thread,) = set(job.threads or ["main"])
        key = Key(job.scope.tenant, job.scope.session, thread)
        return [(await prefix(job.store, key, job.upto), None)]
    logs = await survey(job.store, job.scope, job.threads)
    logs.sort(key=lambda log: (log.thread != "main", log.row.created, log.thread))
    parents = {log.thread: parent for log, parent in placed(logs)}
    return [(log, parents[log.thread]) for log in logs if log.end]


async def _bundle(job: _Job, logs: Sequence[ForkedLog], spool: Spool) -> Bundle:
    tenant, session = (
        job.scrub.id(job.scope.tenant, "$.session.tenant"),
        job.scrub.id(job.scope.session, "$.session.session"),
    )
    upto = None if job.upto is None else min(job.upto, logs[0][0].end)
    about = ExportFacts(
        tenant=tenant, session=session, mode=job.mode, purpose=job.purpose, upto=upto
    )
    summary = DocumentBuilder(about)
    blobs, moved = await _blobs(job, spool)
    for n, (log, parent) in enumerate(logs):
        await _thread(job, n, log, parent, moved, summary, spool)
    kinds = {found.sha256: found.kind for found in summary.attachments}
    blobs = [replace(blob, media_type=kinds.get(blob.sha256)) for blob in blobs]
    claims = await _claims(job, summary)
    raw = summary.document(
        blobs=blobs, claims=claims, parts=spool.parts, redaction=job.scrub.manifest()
    )
    return Bundle(raw, spool.open())


# Threads


async def _thread(
    job: _Job,
    n: int,
    log: MeasuredLog,
    parent: Parent | None,
    moved: dict[str, Blob],
    summary: DocumentBuilder,
    spool: Spool,
) -> None:
    """Write one thread into its part, and add it to the summary."""
    path = f"$.threads[{n}]"
    added = await _added(job, log)
    if parent is not None:
        parent = Parent(job.scrub.id(parent.thread, f"{path}.parent.thread"), parent.at)
    thread = Thread(
        thread=job.scrub.id(log.thread, f"{path}.thread"),
        part=f"threads/{n:04d}.jsonl",
        parent=parent,
        shared=log.shared,
        head=log.end + len(added),
        added=len(added),
    )
    digest = Digest(thread, summary.about.tenant, summary.about.session)
    after = parent.at if parent is not None else 0
    part = await asyncio.to_thread(spool.begin, thread.part)

    def take(events: Sequence[Event]) -> None:
        for event in events:
            place = f"{path}.events[{event.seq - after - 1}]"
            kept = renamed(job.scrub.event(event, place), moved)
            part.write(line_of(kept))
            digest.add(kept)

    try:
        await _in_batches(job, log, after, added, take)
    finally:
        await asyncio.to_thread(part.close)
    spool.done(part)
    digest.end()
    section = await asyncio.to_thread(_section, n, digest, spool)
    summary.add(digest, section)


async def _in_batches(
    job: _Job,
    log: MeasuredLog,
    after: int,
    added: Sequence[Event],
    take: Callable[[Sequence[Event]], None],
) -> None:
    """Pass the events to `take` in batches, in a thread."""
    some: list[Event] = []
    size = 0
    async with aclosing(measured(job.store, log, after=after)) as events:
        async for event in events:
            some.append(event)
            size += 200 + len(event.data)
            if size > PIECE:
                await asyncio.to_thread(take, some)
                job.progress(len(some))
                some, size = [], 0
    await asyncio.to_thread(take, [*some, *added])
    job.progress(len(some))


async def _added(job: _Job, log: MeasuredLog) -> list[Event]:
    """Return the events that close the open items and runs of a copy. They have the time of the
    log's last event, so that exports are deterministic.
    """
    if job.purpose != "copy":
        return []
    last = log.row.last
    if log.tail:  # the row has the time of the seal
        read = job.store.read(log.row.key, after=log.end - 1, before=log.end + 1, log=log.row.log)
        async with aclosing(read) as events:
            async for event in events:
                last = event.at
    return closing(log, last)


def _section(n: int, digest: Digest, spool: Spool) -> Section:
    """Build the transcript section of a thread, unless it is too large."""
    thread = digest.thread
    messages = digest.messages
    part = None
    if messages is not None:
        part = f"transcripts/{n:04d}.jsonl"
        spool.put(part, *(msgspec.json.encode(message) + b"\n" for message in messages))
    return Section(
        id=thread.thread,
        label=f"Thread {thread.thread}",
        location=thread.part,
        part=part,
        count=len(messages or ()),
        events=digest.events,
        summary=digest.summary,
        assets=sorted({found.sha256 for found in digest.attachments}),
        metadata={} if part is not None else {"left_out": "too large"},
    )


# Blobs and claims


async def _blobs(job: _Job, spool: Spool) -> tuple[list[Blob], dict[str, Blob]]:
    """Write the blobs. Also returns the redacted blobs by their old hashes."""
    kept: dict[str, Blob] = {}
    moved: dict[str, Blob] = {}
    for n, ref in enumerate(await job.store.blobs(job.scope)):
        data = None
        if job.blobs:
            whole = await job.store.get_blob(job.scope, ref)
            data = await asyncio.to_thread(job.scrub.blob, whole, f"$.blobs[{n}]")
        if data is None:
            kept[ref.sha256] = Blob(sha256=ref.sha256, size=ref.size)
            continue
        blob = await asyncio.to_thread(_put, spool, data, kept)
        kept[blob.sha256] = blob
        if blob.sha256 != ref.sha256:
            moved[ref.sha256] = blob
    return [kept[name] for name in sorted(kept)], moved


def _put(spool: Spool, data: bytes, known: dict[str, Blob]) -> Blob:
    sha256 = hashlib.sha256(data).hexdigest()
    if (blob := known.get(sha256)) is not None and blob.part is not None:
        return blob
    part = f"blobs/{sha256}"
    spool.put(part, data)
    return Blob(sha256=sha256, size=len(data), part=part)


async def _claims(job: _Job, summary: DocumentBuilder) -> list[str]:
    """Return the session's claims; none if only a part of the session is exported. Claims of
    surfaces are in the log.
    """
    if job.threads is not None or job.upto is not None:
        return []
    names = [n for n in await job.store.claims(job.scope) if not n.startswith((CLAIM, REDACTED))]
    if job.mode == "local":
        return names
    others = [name for name in names if not name.startswith(SURFACE_CLAIM)]
    scrubbed = [job.scrub.text(name, f"$.session.claims[{n}]") for n, name in enumerate(others)]
    return sorted({*scrubbed, *summary.surfaces()})
