"""The logs of a reserved tenant that count what sessions, users and tenants have used: written in
batches, listed, extended by operators, and rebuilt from the logs of the sessions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from ..errors import AlreadyDecided, SessionNotFound
from ..log import events as ev
from ..log.catalog import Page, Query, Row
from ..log.catalog.rows import SKEW
from ..log.codec import LIMITS, typed
from ..log.events import USAGE_TENANT, Event, Key, NewEvent, ids
from ..stores.pages import every_row
from ..stores.port import Store
from ..values.budgets import (
    Budget,
    BudgetUsage,
    UsageLog,
    charge_of,
    counted,
    extension,
    limits_of,
    period_of,
    source_of,
    usage_shown,
)

CREATED = "usage:session"  # id of the first event of each usage log
BATCH = 500  # charges in one append


class Charge(NamedTuple):
    """An event of a session that counts in one usage log. `user` is the user of the session, whose
    erasure also deletes the log, unless it counts for the whole tenant."""

    log: UsageLog
    user: str | None
    event: NewEvent


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a rebuild: how many events of sessions count, and how many of them were
    missing, over all usage logs."""

    counted: int = 0
    added: int = 0


def has_usage_logs(tenant: str) -> bool:
    """Return whether the name of a tenant is short enough for its reserved tenant."""
    return len((USAGE_TENANT + tenant).encode()) <= LIMITS.name_bytes


async def write(store: Store, tenant: str, charges: Iterable[Charge]) -> int:
    """Append charges to their logs, which are created if necessary. Charges that a log already has
    are skipped. Returns how many were new."""
    logs: dict[Key, list[Charge]] = {}
    for charge in charges:
        logs.setdefault(charge.log.key(tenant), []).append(charge)
    fresh = 0
    for key, some in logs.items():
        for at in range(0, len(some), BATCH):
            fresh += await _append(store, key, some[at : at + BATCH])
    return fresh


async def _append(store: Store, key: Key, charges: Sequence[Charge]) -> int:
    events = [charge.event for charge in charges]
    try:
        return (await store.append(key, events)).fresh
    except SessionNotFound:
        first = charges[0]
        created = ev.SessionCreated(
            user=None if first.log.scope == "tenant" else first.user,
            metadata=msgspec.structs.asdict(first.log),
        )
        begin = NewEvent.of("session.created", created, id=CREATED)
        done = await store.append(key, [begin, *events], create=True)
        return done.fresh - 1 if done.seqs[0] == 1 and done.fresh else done.fresh


def log_of(row: Row) -> UsageLog | None:
    """Return which usage a row counts; None if it is not the row of a usage log."""
    try:
        return msgspec.convert(row.metadata, UsageLog)
    except msgspec.ValidationError:
        return None


async def usage_page(
    store: Store,
    tenant: str,
    *,
    user: str | None = None,
    at: int | None = None,
    budgets: Iterable[Budget] = (),
    cursor: str | None = None,
    limit: int = 50,
) -> Page[BudgetUsage]:
    """Return a page of what the sessions, the users and the tenant have used, most recently used
    first. `user` selects the usage of one user and of the user's sessions, `at` the periods at this
    time (ms), in which case a page may have fewer items. `budgets` tell which limits apply."""
    if not has_usage_logs(tenant):
        return Page(items=[], cursor=None)
    query = Query(tenant=USAGE_TENANT + tenant, user=user)
    page = await store.find(query, cursor=cursor, limit=limit)
    items: list[BudgetUsage] = []
    for row in page.items:
        log = log_of(row)
        if log is not None and (at is None or log.period == period_of(log.per, at)):
            items.append(usage_shown(log, row.usage, limits_of(budgets, log)))
    return Page(items=items, cursor=page.cursor)


async def usage(
    store: Store, tenant: str, *, user: str | None = None, at: int | None = None
) -> AsyncGenerator[BudgetUsage, None]:
    """Yield what `usage_page` returns, page by page."""
    cursor: str | None = None
    while True:
        page = await usage_page(store, tenant, user=user, at=at, cursor=cursor, limit=LIMITS.page)
        for one in page.items:
            yield one
        if (cursor := page.cursor) is None:
            return


# Extensions


async def extend(
    store: Store, tenant: str, opened: ev.PendingOpened, answer: Any, actor: str | None
) -> None:
    """Extend the budget that a pending item is about, before the item is settled. If several
    sessions ask about the same budget, the first answer counts: then `AlreadyDecided` is raised,
    unless the answer is the same."""
    detail = opened.detail if isinstance(opened.detail, Mapping) else {}
    log = msgspec.convert(detail.get("budget"), UsageLog)
    added = extension(answer, detail.get("measures", ()))
    event = NewEvent.of(
        "run.charged", ev.RunCharged(usage=added), id=ids.extend_id(opened.id), actor=actor
    )
    fresh = await write(store, tenant, [Charge(log, detail.get("user"), event)])
    if not fresh:
        await _check_same(store, log.key(tenant), event, opened.id)


async def _check_same(store: Store, key: Key, wanted: NewEvent, item: str) -> None:
    found = await store.seqs(key, [wanted.id])
    seq = found.get(wanted.id, 0)
    async for event in store.read(key, after=seq - 1, before=seq + 1):
        known = typed(event)
        if isinstance(known, ev.RunCharged) and known != typed(wanted.numbered(seq, event.at)):
            raise AlreadyDecided(
                session=key.session, item=item, outcome="answered", by=event.actor, at=event.at
            )


# Rebuilding


async def charges_in(
    store: Store, row: Row, *, since: int | None = None
) -> AsyncGenerator[tuple[Event, dict[str, int]], None]:
    """Yield the events of a thread that count, with what they count: those that were appended to
    it. Events that a fork shares, and events that were imported, were counted where they were
    written. With `since`, a time in ms, only those that are newer, the newest first."""
    shared = row.parent.at if row.parent is not None else 0
    born = UUID(row.log).int >> 80  # an incarnation has the time at which this store created it
    read = store.read(row.key, after=shared, reverse=since is not None, log=row.log)
    async with aclosing(read) as events:
        async for event in events:
            if since is not None and event.at < since:
                return
            if event.at >= born - SKEW and (usage := counted(event)) is not None:
                yield event, usage


async def rebuild(store: Store, tenant: str, logs: Iterable[tuple[str, str]] = ()) -> Rebuilt:
    """Add what is missing in the usage logs of a tenant, from the logs of its sessions. The scopes
    and periods (`("user", "day")`) are those that the usage logs have, and `logs`. Nothing is
    removed: what deleted sessions have used stays used."""
    wanted = {*logs}
    if not has_usage_logs(tenant):
        return Rebuilt()
    async with aclosing(usage(store, tenant)) as known:
        async for one in known:
            wanted.add((one.scope, one.per))
    total, added, seen = 0, 0, set[str]()
    sessions = [row async for row in every_row(store, Query(tenant=tenant, order="created"))]
    for session in sorted(sessions, key=lambda row: row.log):  # a copy is newer than its original
        query = Query(tenant=tenant, session=session.session, order="created", newest_first=False)
        async for row in every_row(store, query):
            batch: list[Charge] = []
            async for event, count in charges_in(store, row):
                made = charge_of(source_of(event), count)
                if made.id in seen:
                    continue
                seen.add(made.id)
                total += 1
                whose = {"session": row.session, "user": session.user, "tenant": tenant}
                batch += charges(wanted, whose, event.at, made)
                if len(batch) >= BATCH:
                    added += await write(store, tenant, batch)
                    batch.clear()
            added += await write(store, tenant, batch)
    return Rebuilt(counted=total, added=added)


def charges(
    wanted: Iterable[tuple[str, str]], whose: Mapping[str, str | None], at: int, event: NewEvent
) -> list[Charge]:
    """Return the charges for an event at a time (ms), one per scope and period."""
    found: list[Charge] = []
    for scope, per in sorted(wanted):
        if (who := whose[scope]) is not None:
            period: Any = per
            log = UsageLog(scope=scope, who=who, per=period, period=period_of(period, at))  # type: ignore[arg-type]
            found.append(Charge(log, whose["user"], event))
    return found
