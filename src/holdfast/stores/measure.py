"""Measures a session: a hash chain over each log, the fork points, and the open items. `copy` uses
the result to write a copy and to verify it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..errors import SessionNotFound, StoreError
from ..log.catalog import Parent, Query, Row, apply, project
from ..log.codec import LIMITS, fingerprint
from ..log.events import Event, Key, NewEvent, Scope, new_id
from ..log.state import State, fold
from .pages import every_row
from .port import Store

START = bytes(32)  # the chain before the first event
SOME, SIZE = 256, 1 << 20  # maximum number of events, and bytes of data, to fold at a time


class MeasuredLog(Struct, frozen=True, kw_only=True):
    """One log, measured up to event `end`. If the log was moved away, `tail` holds the events after
    `end`, which record the move. `chain` maps `end`, and each requested number, to the hash of the
    events up to that number. Events up to `shared` belong to the log that this log was forked
    from."""

    row: Row
    end: int
    tail: tuple[Event, ...]
    shared: int
    chain: dict[int, bytes]
    state: State

    @property
    def thread(self) -> str:
        return self.row.thread


def link(chain: bytes, event: Event) -> bytes:
    """Return the hash of a log up to `event`. `chain` is the hash up to the event before it. The
    hash covers all fields of the events."""
    rest = msgspec.json.encode((event.seq, event.at, event.run, event.actor, event.cause))
    return hashlib.sha256(chain + fingerprint(event) + rest).digest()


async def chain_of(store: Store, key: Key, end: int, log: str | None = None) -> bytes:
    """Compute the hash chain over events 1…end of a log."""
    chain = START
    async with aclosing(store.read(key, before=end + 1, log=log)) as events:
        async for event in events:
            chain = link(chain, event)
    return chain


async def threads_of(store: Store, scope: Scope) -> list[Row]:
    """Return the rows of all threads of a session, oldest first."""
    query = Query(tenant=scope.tenant, session=scope.session, order="created", newest_first=False)
    return [row async for row in every_row(store, query)]


async def survey(
    store: Store, scope: Scope, threads: Collection[str] | None = None
) -> list[MeasuredLog]:
    """Measure every log of a session, or the logs of some threads. Events that are appended
    meanwhile are not included. Raises `SessionNotFound` if a log does not exist, and `LogDamaged`
    if a log cannot be read."""
    rows = await threads_of(store, scope)
    if not rows:
        raise SessionNotFound(tenant=scope.tenant, session=scope.session)
    if threads is not None:
        for thread in sorted(set(threads) - {row.thread for row in rows}):
            raise SessionNotFound(tenant=scope.tenant, session=scope.session, thread=thread)
        rows = [row for row in rows if row.thread in threads]
    marks = {row.parent.at for row in rows if row.parent is not None}
    while True:
        logs = [await _measure(store, row, marks) for row in rows]
        missing = {log.shared for log in logs if log.shared} - marks
        if not missing:
            return logs
        marks |= missing  # for forks whose first event does not record the fork point


async def prefix(store: Store, key: Key, upto: int) -> MeasuredLog:
    """Measure the first `upto` events of a log, as if the log ended there."""
    row = await store.row(key)
    if row is None:
        raise SessionNotFound(tenant=key.tenant, session=key.session, thread=key.thread)
    whole = await _measure(store, row, [])
    if upto >= whole.end:
        return whole
    shared = whole.shared if whole.shared < upto else 0
    chain, chains = START, {}
    state, first = State(), True
    row = Row(tenant=key.tenant, session=key.session, thread=key.thread, log=row.log, head=shared)
    async with aclosing(store.read(key, before=upto + 1, log=row.log)) as events:
        async for event in events:
            chain = link(chain, event)
            state = fold([event], state)
            if event.seq in (shared, upto):
                chains[event.seq] = chain
            if event.seq > shared:
                if first:
                    row, first = replace(row, created=event.at, active=event.at // 1000), False
                row = apply(row, [event], [project(event)])
    return MeasuredLog(row=row, end=upto, tail=(), shared=shared, chain=chains, state=state)


async def measured(
    store: Store, log: MeasuredLog, *, after: int = 0, end: int | None = None
) -> AsyncGenerator[Event, None]:
    """Yield the events of a measured log. Raises `StoreError` after the last event if the events do
    not match the measured hash; the caller must then discard them."""
    end = log.end if end is None else end
    chain = log.chain.get(after, START)
    read = store.read(log.row.key, after=after, before=end + 1, log=log.row.log)
    async with aclosing(read) as events:
        async for event in events:
            chain = link(chain, event)
            yield event
    if chain != log.chain[end]:
        raise failed(log, "changed while it was copied: copy it again")


def failed(log: MeasuredLog, problem: str) -> StoreError:
    """Return the error for a log that could not be copied correctly."""
    row = log.row
    return StoreError(problem=f"thread {row.thread!r} of session {row.session!r} {problem}")


async def _measure(store: Store, row: Row, marks: Collection[int]) -> MeasuredLog:
    tail = await _tail(store, row)
    end = row.head - len(tail)
    chain, chains, size, folded = START, {}, 0, 0
    state, some = State(), list[Event]()
    async with aclosing(store.read(row.key, before=end + 1, log=row.log)) as events:
        async for event in events:
            chain = link(chain, event)
            size += len(event.data)
            if event.seq in marks or event.seq == end:
                chains[event.seq] = chain
            some.append(event)
            if len(some) == SOME or size - folded > SIZE:
                state, some, folded = fold(some, state), [], size
    whole = size + sum(len(event.data) for event in tail) == row.bytes
    return MeasuredLog(
        row=row,
        end=end,
        tail=tail,
        shared=0 if whole else await _shared(store, row),
        chain=chains,
        state=fold(some, state),
    )


async def _tail(store: Store, row: Row) -> tuple[Event, ...]:
    """Return the event that sealed a log and the events after it. Empty if the log is not
    sealed."""
    found: list[Event] = []
    if row.sealed is None:
        return ()
    read = store.read(row.key, before=row.head + 1, reverse=True, log=row.log)
    async with aclosing(read) as events:
        async for event in events:
            found.append(event)
            if event.kind == "session.moved":
                break
    return tuple(reversed(found))


async def _shared(store: Store, row: Row) -> int:
    """Return the number of events that a fork shares with its parent. The row of a fork counts only
    the bytes of its own events."""
    left = row.bytes
    read = store.read(row.key, before=row.head + 1, reverse=True, log=row.log)
    async with aclosing(read) as events:
        async for event in events:
            if left == 0:
                return event.seq
            left -= len(event.data)
    raise StoreError(
        problem=f"the row of thread {row.thread!r} of session {row.session!r} does not "
        "match its log: run `holdfast repair` to rebuild it"
    )


def placed(logs: Sequence[MeasuredLog]) -> list[tuple[MeasuredLog, Parent | None]]:
    """Return the logs in an order in which they can be restored. With each log comes the earlier
    thread that it shares its first events with; None if it shares none, or if its parent no longer
    exists."""
    order: list[tuple[MeasuredLog, Parent | None]] = []
    offers: dict[tuple[int, bytes], str] = {}
    left = list(logs)
    while left:
        wanted = [(log.shared, log.chain.get(log.shared, START)) for log in left]
        ready = [i for i, at in enumerate(wanted) if at[0] == 0 or at in offers]
        if not ready:  # the fork that shares most can be the parent of the others
            ready = [max(range(len(left)), key=lambda i: wanted[i][0])]
        for i in ready:
            parent = offers.get(wanted[i])
            order.append((left[i], Parent(parent, left[i].shared) if parent else None))
            for at in left[i].chain.items():
                offers.setdefault(at, left[i].thread)
        left = [log for i, log in enumerate(left) if i not in set(ready)]
    return order


def closing(log: MeasuredLog, now: int) -> list[Event]:
    """Return the events that close a log, so that nothing in it is pending, running or due. Each
    call for the same log returns the same event ids."""
    events = [
        NewEvent.of(
            "pending.settled",
            {"id": id, "outcome": "abandoned", "reason": "copied"},
            id=_derived("settle:", id),
        )
        for id in {**log.state.pending, **log.row.pending}
    ]
    run = log.state.run
    going = run is not None and run.status in ("running", "waiting")
    for id, call in log.state.calls.items() if going else ():
        outcome = "cancelled" if call.started is None else "unknown"
        finished = {"call": id, "outcome": outcome, "error": "copied while the call was open"}
        events.append(NewEvent.of("tool.finished", finished, id=_derived("done:", id)))
    if events or going or log.row.due is not None or log.row.run in ("running", "waiting"):
        of = run.id if run is not None and going else None
        events.append(run_ended(of, id=f"copied:{log.end}"))
    return [event.numbered(log.end + n, now) for n, event in enumerate(events, 1)]


def run_ended(run: str | None = None, *, id: str | None = None) -> NewEvent:
    """Return the event that ends the run of a log, after which the log no longer needs a driver."""
    ended = {"status": "interrupted", "error": "copied"}
    return NewEvent.of("run.finished", ended, run=run, id=id or new_id())


def _derived(prefix: str, id: str) -> str:
    whole = prefix + id
    if len(whole.encode()) <= LIMITS.name_bytes:
        return whole
    return prefix + hashlib.sha256(id.encode()).hexdigest()
