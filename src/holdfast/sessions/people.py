"""Exports or erases all data stored about one user. The user's own sessions are included as a
whole. In the sessions of other users, the events that the user authored (`actor`) are included,
except events that define the session itself. To find them, every log of the tenant is read. The
user state of Google ADK apps and the usage that was counted for budgets are included too."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from ..errors import DeletionRefused, SessionNotFound
from ..log.catalog import Row
from ..log.codec import LIMITS, check_name, erased
from ..log.events import ADK_STATE_TENANT, USAGE_TENANT, Event
from ..values.records import PersonErased, PersonRecord
from .changes import Changes, ReceiptSum, check_deletable, delete
from .queries import threads, walk


async def export(changes: Changes, user: str, shared: bool) -> AsyncGenerator[PersonRecord, None]:
    check_name("user", user)
    for each in (changes, *_reserved(changes)):
        async for record in _export(each, user, shared and each is changes):
            yield record


async def _export(changes: Changes, user: str, shared: bool) -> AsyncGenerator[PersonRecord, None]:
    async for session in walk(changes, **({} if shared else {"user": user})):
        own = session.user == user
        async for row in threads(changes, session.session):
            if own:
                yield PersonRecord(session=row.session, thread=row.thread, own=True, row=row)
            async for event in changes.store.read(row.key):
                if own or event.actor == user:
                    yield PersonRecord(session=row.session, thread=row.thread, own=own, event=event)


async def erase(
    changes: Changes, user: str, reason: str, shared: bool, dry_run: bool
) -> PersonErased:
    check_name("user", user)
    check_name("reason", reason)
    gone: list[str] = []
    events: dict[str, int] = {}
    refused: dict[str, str] = {}
    receipts = ReceiptSum()
    async for row in walk(changes, **({} if shared else {"user": user})):
        try:
            if row.user == user:
                if dry_run:
                    check_deletable(changes, row)
                else:
                    receipts.add(await delete(changes, row.session))
                gone.append(row.session)
            elif count := await _erase_events(changes, row, user, reason, dry_run, receipts):
                events[row.session] = count
        except DeletionRefused as error:
            refused[row.session] = error.reason
        except SessionNotFound:
            pass  # the session was deleted meanwhile
    for state in _reserved(changes):
        async for row in walk(state, user=user):
            try:
                check_deletable(state, row)
            except DeletionRefused as error:
                refused[row.session] = error.reason
                continue
            if not dry_run:
                receipts.add(await delete(state, row.session))
            gone.append(row.session)
    return PersonErased(
        dry_run=dry_run,
        sessions=gone,
        events=events,
        refused=refused,
        removed=dict(receipts.removed),
        remains=list(receipts.remains),
    )


def _reserved(changes: Changes) -> list[Changes]:
    """Return the `Changes` for the reserved tenants that keep data of users: the state of Google
    ADK's apps, and the counted usage. A tenant's name may be too long for a reserved tenant."""
    names = (prefix + changes.tenant for prefix in (ADK_STATE_TENANT, USAGE_TENANT))
    actor, clock = changes.actor, changes.clock
    return [
        Changes(changes.store, name, actor=actor, clock=clock, ttl=None, expiry=None)
        for name in names
        if len(name.encode()) <= LIMITS.name_bytes
    ]


async def _erase_events(
    changes: Changes,
    session: Row,
    user: str,
    reason: str,
    dry_run: bool,
    receipts: ReceiptSum,
) -> int:
    """Erase a user's events in another user's session. Returns the number of erased events."""
    count = 0
    blank = erased(reason)
    seen: set[tuple[int, str, int]] = set()  # a dry run counts shared events once
    async for row in threads(changes, session.session):
        theirs = [
            (event.seq, event.id, event.at)
            async for event in changes.store.read(row.key)
            if event.actor == user and event.data != blank and not _structural(event)
        ]
        todo = [event[0] for event in theirs if event not in seen]
        if dry_run:
            seen.update(theirs)
        if not todo:
            continue
        check_deletable(changes, session)
        count += len(todo)
        if not dry_run:
            receipts.add(await changes.store.erase(row.key, todo, reason=reason))
    return count


def _structural(event: Event) -> bool:
    """Return whether an event defines the session itself (its owner, forks or attached surfaces),
    rather than something a user said. The session would be unusable without it."""
    return event.kind.partition(".")[0] in ("session", "thread", "surface")
