"""Copies and moves sessions from one store to another, using only the methods of `Store`.

Each thread is hashed in the source, written to the target, and hashed again there to verify the
copy. Threads that already exist in the target are compared and never overwritten, so you can
complete an interrupted copy by running it again. A move seals the source before reading it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ..environment import wall_clock
from ..errors import (
    HoldfastError,
    InvalidValue,
    LeaseLost,
    SessionExists,
    SessionMoved,
    SessionNotFound,
    StoreError,
)
from ..log import catalog
from ..log.catalog import Parent, Query, Row
from ..log.codec import check_key
from ..log.events import Event, Key, NewEvent, Scope
from .measure import (
    MeasuredLog,
    chain_of,
    closing,
    failed,
    link,
    measured,
    placed,
    run_ended,
    survey,
    threads_of,
)
from .pages import every_row
from .port import Lease, Store

DRIVER = "holdfast copy"  # holder of the leases while threads are sealed
LEASE = 60.0  # seconds


class ThreadCopy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a copy for one thread. `closed` is the number of events that were added to
    close open items. The status `new` means that the thread does not exist in the target and was
    not copied."""

    thread: str
    status: Literal["copied", "same", "new", "conflict"]
    events: int
    closed: int = 0
    detail: str | None = None


class SessionCopy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a copy for one session. `blobs` and `claims` are the numbers of blobs and names
    that the copy added to the target. `held` lists the names that another session of the target
    holds."""

    source: Scope
    target: Scope
    status: Literal["moved", "copied", "same", "new", "conflict"]
    threads: tuple[ThreadCopy, ...] = ()
    blobs: int = 0
    claims: int = 0
    held: tuple[str, ...] = ()


class _Job(Struct, frozen=True, kw_only=True):
    """The parameters of one copy: source, target, session, and whether it is a move."""

    source: Store
    target: Store
    scope: Scope
    there: Scope
    move: bool
    progress: Callable[[int], None]

    def key(self, thread: str) -> Key:
        return Key(self.there.tenant, self.there.session, thread)


async def sessions_of(store: Store, tenant: str) -> AsyncGenerator[Scope, None]:
    """Yield every session of a tenant once, oldest first. Sessions without a thread `main` are not
    included; copy them by name."""
    query = Query(tenant=tenant, order="created", newest_first=False)
    async with aclosing(every_row(store, query)) as rows:
        async for row in rows:
            yield row.scope


async def copy_session(
    source: Store,
    target: Store,
    scope: Scope,
    *,
    tenant: str | None = None,
    move: bool = False,
    dry_run: bool = False,
    progress: Callable[[int], None] = lambda events: None,
) -> SessionCopy:
    """Copy a session with its threads, blobs and claimed names. The copy belongs to `tenant`, by
    default to the same tenant as the source.

    Events keep number, id and time, and forks share events with their parents again. If a thread
    differs from the one in the target, or another session holds a name, the result is a conflict
    and nothing is written.

    A copy without `move` closes open items: pending items are settled as `abandoned` and an active
    run ends as `interrupted`, so that nothing is approved or done twice. A move copies the events
    unchanged and leaves the source sealed. It raises `LeaseHeld` while the session has a driver,
    and `SessionMoved` if it was moved to another store. Repeat the call to complete an interrupted
    copy.

    Raises `StoreError` if the source changes during the copy, or if the events read back from the
    target differ from the source. `progress` is called with the number of events written.
    """
    there = Scope(scope.tenant if tenant is None else tenant, scope.session)
    check_key(scope)
    check_key(there)
    job = _Job(source=source, target=target, scope=scope, there=there, move=move, progress=progress)
    logs = await survey(source, scope)
    if move:
        await _check_move(job, logs)
    found = await _compare(job, logs)
    if dry_run or _differ(found):
        return _result(job, found)
    names, held = await _claim(job)
    if held:
        return _result(job, found, held=held)
    try:
        found = await (_move(job) if move else _write(job, logs, found))
    except Exception:
        await _give_up(job, names)
        raise
    blobs = 0 if _differ(found) else await _blobs(job)
    return _result(job, found, claims=len(names), blobs=blobs, moved=move)


async def undo_move(
    source: Store, target: Store, scope: Scope, *, tenant: str | None = None
) -> int:
    """Reopen the threads that a move to `target` sealed. Returns the number of reopened threads.

    Raises `SessionExists` if a thread of the session exists in the target (delete the session there
    first), and `SessionMoved` if the session was moved to another store, because a session must
    never continue in two stores.
    """
    there = Scope(scope.tenant if tenant is None else tenant, scope.session)
    name = await place_name(target, scope, there)
    rows = await threads_of(source, scope)
    if not rows:
        raise SessionNotFound(tenant=scope.tenant, session=scope.session)
    sealed = [row for row in rows if row.sealed is not None]
    for row in sealed:
        check_place(row, name)
    if left := await threads_of(target, there):
        raise SessionExists(tenant=there.tenant, session=there.session, thread=left[0].thread)
    return await unseal(source, scope, name, "the move was undone")


async def place_name(store: Store, scope: Scope, there: Scope) -> str:
    """Return the name of a store, without credentials, which the event `session.moved` records as
    the destination."""
    info = store.info()
    place = info.location
    if info.kind in ("sqlite", "file"):
        place = str(await asyncio.to_thread(Path(place).absolute))
    tenant = "" if scope.tenant == there.tenant else f" tenant {there.tenant}"
    return f"{info.kind}:{place}{tenant}"


# Comparing


async def _compare(job: _Job, logs: Sequence[MeasuredLog]) -> dict[str, ThreadCopy]:
    return {log.thread: await _compare_one(job, log) for log in logs}


async def _compare_one(job: _Job, log: MeasuredLog) -> ThreadCopy:
    """Compare a thread of the target with the same thread of the source. The target may have more
    events, because it continues independently after a copy or a move."""

    def found(status: Literal["same", "new", "conflict"], detail: str | None = None) -> ThreadCopy:
        if detail is not None and row is not None and row.sealed is not None:
            detail += "; the session was moved away from the target: delete it there first"
        return ThreadCopy(thread=log.thread, status=status, events=log.end, detail=detail)

    key = job.key(log.thread)
    row = await job.target.row(key)
    if row is None:
        return found("new")
    upto = min(row.head, log.end)
    if await chain_of(job.target, key, upto, row.log) != await _chain(job, log, upto):
        return found("conflict", "differs from the thread with the same name in the target")
    if row.head < log.end:
        return found("conflict", f"the target has only the first {row.head} events")
    if job.move and log.row.sealed is None and row.head > log.end:
        return found("conflict", f"the target continues after event {log.end}")
    return found("same")


async def _chain(job: _Job, log: MeasuredLog, upto: int) -> bytes:
    if upto in log.chain:
        return log.chain[upto]
    return await chain_of(job.source, log.row.key, upto, log.row.log)


def _differ(found: dict[str, ThreadCopy]) -> bool:
    return any(thread.status == "conflict" for thread in found.values())


def _result(
    job: _Job,
    found: dict[str, ThreadCopy],
    *,
    claims: int = 0,
    blobs: int = 0,
    held: tuple[str, ...] = (),
    moved: bool = False,
) -> SessionCopy:
    status: Literal["moved", "copied", "same", "new", "conflict"]
    statuses = {thread.status for thread in found.values()}
    if held or "conflict" in statuses:
        status = "conflict"
    elif moved:
        status = "moved"
    elif blobs or claims or "copied" in statuses:
        status = "copied"
    else:
        status = "new" if "new" in statuses else "same"
    return SessionCopy(
        source=job.scope,
        target=job.there,
        status=status,
        threads=tuple(found.values()),
        blobs=blobs,
        claims=claims,
        held=held,
    )


# Writing


async def _write(
    job: _Job, logs: Sequence[MeasuredLog], found: dict[str, ThreadCopy]
) -> dict[str, ThreadCopy]:
    """Restore the threads that the target does not have yet."""
    done = dict(found)
    for log, parent in placed(logs):
        base = base_of(job.there, log.chain[log.shared]) if log.shared else None
        if found[log.thread].status == "new":
            if base is not None and parent is None:
                events = _events(job, log, 0, log.shared, [])
                await restore_base(job.target, base, events, log.shared)
                done[log.thread] = await _restore(job, log, Parent(base.thread, log.shared))
            else:
                done[log.thread] = await _restore(job, log, parent)
        # Also deletes the temporary thread of an earlier, interrupted copy.
        if base is not None and parent is None and await job.target.row(base) is not None:
            await job.target.delete(base)
    return done


def base_of(scope: Scope, chain: bytes) -> Key:
    """Return the key of a temporary thread. While a fork whose parent no longer exists is restored,
    this thread holds the events at the beginning of the fork."""
    return Key(scope.tenant, scope.session, f"base:{chain.hex()[:32]}")


async def restore_base(
    store: Store, base: Key, events: AsyncGenerator[Event, None], shared: int
) -> None:
    """Write a temporary thread with the events that a fork shared with a deleted parent, so that
    the fork can share them with this thread. Its last event ends the run, so that no driver
    acquires the thread before it is deleted."""

    async def closed() -> AsyncGenerator[Event, None]:
        async with aclosing(events):
            async for event in events:
                yield event
        yield run_ended().numbered(shared + 1, wall_clock())

    with suppress(SessionExists):
        await store.restore(base, closed())


async def _restore(job: _Job, log: MeasuredLog, parent: Parent | None) -> ThreadCopy:
    key = job.key(log.thread)
    added = [] if job.move else closing(log, wall_clock())
    after = parent.at if parent is not None else 0
    try:
        await job.target.restore(key, _events(job, log, after, log.end, added), parent=parent)
    except SessionExists:
        return await _compare_one(job, log)  # another copy was faster
    await _check_copy(job, log, added)
    return ThreadCopy(thread=log.thread, status="copied", events=log.end, closed=len(added))


async def _events(
    job: _Job, log: MeasuredLog, after: int, end: int, added: Iterable[Event]
) -> AsyncGenerator[Event, None]:
    """Yield the events of the source, followed by the added events. Raises `StoreError` if the
    source's events do not match the measured hash."""
    async with aclosing(measured(job.source, log, after=after, end=end)) as events:
        async for event in events:
            yield event
            job.progress(1)
    for event in added:
        yield event


async def _check_copy(job: _Job, log: MeasuredLog, added: Sequence[Event]) -> None:
    """Raise `StoreError` if the source changed during the copy, or if the copy in the target
    differs from it."""
    key = job.key(log.thread)
    chain = log.chain[log.end]
    if await chain_of(job.source, log.row.key, log.end, log.row.log) != chain:
        raise failed(log, "changed while it was copied: delete the copy, then copy it again")
    for event in added:
        chain = link(chain, event)
    head = log.end + len(added)
    row = await job.target.row(key)
    if row is None or await chain_of(job.target, key, head, row.log) != chain:
        problem = "differs from the source after the copy: delete the copy, then copy it again"
        raise failed(log, problem)
    if row.head == head and _bare(log.row, added) != _bare(row, log.tail):
        raise failed(log, "has a row that differs in source and target: run `holdfast verify`")


def _bare(row: Row, more: Sequence[Event]) -> Row:
    """Return a row for the comparison of a log with its copy: with the events `more` applied, and
    without the fields that may differ."""
    if more:
        row = catalog.apply(row, more, [catalog.project(event) for event in more])
    return replace(row, tenant="", log="", head=0, last=0, link=None)


async def _claim(job: _Job) -> tuple[list[str], tuple[str, ...]]:
    """Claim the names of the session in the target. Returns the newly claimed names and an empty
    tuple. If other sessions hold some of the names, claims nothing and returns an empty list and
    those names."""
    have = set(await job.target.claims(job.there))
    taken: list[str] = []
    held: list[str] = []
    for name in await job.source.claims(job.scope):
        if name not in have:
            holder = await job.target.claim(job.there.tenant, name, job.there)
            (taken if holder == job.there else held).append(name)
    if not held:
        return taken, ()
    await _unclaim(job, taken)
    return [], tuple(held)


async def _give_up(job: _Job, names: Sequence[str]) -> None:
    """Release the claimed names after an error, unless a thread was already copied."""
    with suppress(HoldfastError):
        if not await threads_of(job.target, job.there):
            await _unclaim(job, names)


async def _unclaim(job: _Job, names: Sequence[str]) -> None:
    for name in names:
        await job.target.unclaim(job.there.tenant, name, job.there)


async def _blobs(job: _Job) -> int:
    have = set(await job.target.blobs(job.there))
    wanted = [ref for ref in await job.source.blobs(job.scope) if ref not in have]
    for ref in wanted:
        put = await job.target.put_blob(job.there, await job.source.get_blob(job.scope, ref))
        if put != ref:
            raise StoreError(problem=f"blob {ref.sha256} does not match its hash")
    return len(wanted)


# Moving


async def _check_move(job: _Job, logs: Sequence[MeasuredLog]) -> None:
    name = await place_name(job.target, job.scope, job.there)
    for log in logs:
        check_place(log.row, name)
        row = await job.target.row(job.key(log.thread))
        if row is not None and row.log == log.row.log:
            raise InvalidValue(
                field="target",
                problem="is the store that already contains the session",
                remedy="pass another store",
            )


async def _move(job: _Job) -> dict[str, ThreadCopy]:
    """Seal the source and copy it; repeat if a thread was created in the source meanwhile."""
    name = await place_name(job.target, job.scope, job.there)
    done: dict[str, ThreadCopy] = {}
    while True:
        await seal(job.source, job.scope, name)
        logs = await survey(job.source, job.scope)
        found = await _compare(job, logs)
        if _differ(found):
            return found
        done = await _write(job, logs, found) | {
            thread: copy for thread, copy in done.items() if copy.status == "copied"
        }
        rows = await threads_of(job.source, job.scope)
        if all(row.sealed is not None and row.thread in done for row in rows):
            return done


async def seal(store: Store, scope: Scope, to: str, actor: str | None = None) -> None:
    """Append `session.moved`, with the destination `to`, to every thread that is not sealed. Raises
    `LeaseHeld` if a thread has a driver. `actor` is recorded with the event."""
    while open := [row for row in await threads_of(store, scope) if row.sealed is None]:
        await _tell(store, open, "session.moved", {"to": to}, actor)


async def unseal(
    store: Store, scope: Scope, to: str, reason: str, *, threads: Collection[str] | None = None
) -> int:
    """Reopen the threads, or some of them, that were sealed by a move to `to`. Returns the number
    of reopened threads."""
    sealed = [
        row
        for row in await threads_of(store, scope)
        if row.sealed == to and (threads is None or row.thread in threads)
    ]
    await _tell(store, sealed, "session.reopened", {"reason": reason})
    return len(sealed)


def check_place(row: Row, name: str) -> None:
    """Raise `SessionMoved` if a thread was moved to a store other than `name`."""
    if row.sealed not in (None, name):
        raise SessionMoved(tenant=row.tenant, session=row.session, thread=row.thread, to=row.sealed)


async def _tell(
    store: Store,
    rows: Sequence[Row],
    kind: str,
    payload: dict[str, str],
    actor: str | None = None,
) -> None:
    """Append an event to each of these threads. Raises `LeaseHeld` if one of the threads has a
    driver."""
    leases: list[Lease] = []
    try:
        for row in rows:
            leases.append(await store.acquire(row.key, DRIVER, ttl=LEASE))
        for lease in leases:
            event = NewEvent.of(kind, payload, actor=actor)
            await store.append(lease.key, [event], fence=lease, log=lease.log)
    finally:
        for lease in leases:
            with suppress(LeaseLost, SessionNotFound):
                await store.release(lease)
