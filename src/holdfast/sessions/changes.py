"""Changes a session by events in its thread `main`: reads the row, decides, appends if the log has
not grown, and otherwise tries again.

A change is an event with actor and reason. Its event id is generated once, so that retries store it
once; its content is decided again for each row that is read.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from weakref import WeakValueDictionary

from ..environment import current
from ..errors import DeletionRefused, HeadMoved, PhaseError
from ..log.catalog import MOVES, Move, Row
from ..log.events import KINDS, Key, NewEvent, Payload, Scope, SessionTouched, new_id
from ..stores.pages import existing_row
from ..stores.port import Store
from ..values.records import Receipt, Remains

PATIENCE = 60.0  # seconds for which a change is retried
KIND_OF = {payload: kind for kind, payload in KINDS.items()}

Decide = Callable[[Row], Payload | None]


class Changes:
    """Appends changes to the sessions of one tenant. Within a process, changes to one session run
    one after the other."""

    def __init__(
        self,
        store: Store,
        tenant: str,
        *,
        actor: str | None,
        clock: Callable[[], int],
        ttl: int | None,
        expiry: int | None,
        least: int | None = None,
    ) -> None:
        self.store = store
        self.tenant = tenant
        self.clock = clock
        self.ttl = ttl
        self.expiry = expiry
        self.least = least
        self.actor = actor
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def key(self, session: str) -> Key:
        return Key(self.tenant, session, "main")

    async def row(self, session: str) -> Row:
        """Return the session's row. Raises `SessionNotFound`."""
        return await existing_row(self.store, self.key(session))

    def event(self, payload: Payload, actor: str | None, id: str | None = None) -> NewEvent:
        kind = KIND_OF[type(payload)]
        return NewEvent.of(kind, payload, id=id or new_id(), actor=actor or self.actor)

    async def make(self, session: str, decide: Decide, *, actor: str | None = None) -> Row:
        """Append the event that `decide` returns for the row, if any, and return the updated row.
        If another writer appended first, `decide` is called again."""
        lock = self._locks.setdefault(session, asyncio.Lock())
        id = new_id()
        end = asyncio.get_running_loop().time() + PATIENCE
        async with lock:
            while True:
                row = await self.row(session)
                payload = decide(row)
                if payload is None:
                    return row
                event = self.event(payload, actor, id)
                try:
                    await self.store.append(row.key, [event], expected=row.head, log=row.log)
                    return await self.row(session)
                except HeadMoved:
                    if asyncio.get_running_loop().time() > end:
                        raise
                await asyncio.sleep(current().random.uniform(0, 0.02))  # spreads retries

    async def move(
        self, session: str, move: Move, payload: Payload, *, actor: str | None = None
    ) -> Row:
        """Change the session's phase. Has no effect if the session is already in the new phase."""

        def decide(row: Row) -> Payload | None:
            return None if allowed(row, move) == row.phase else payload

        return await self.make(session, decide, actor=actor)


async def touch(
    changes: Changes,
    id: str,
    *,
    surface: str | None = None,
    once: str | None = None,
    actor: str | None = None,
    reason: str | None = None,
) -> Row:
    """Mark the session as active. Unlike other changes, this does not wait for concurrent changes
    in this process."""
    row = await changes.row(id)
    allowed(row, "touch")
    payload = SessionTouched(surface=surface, reason=reason)
    event = changes.event(payload, actor, None if once is None else f"touch:{once}")
    await changes.store.append(row.key, [event], log=row.log)
    row = await changes.row(id)
    allowed(row, "touch")  # fails if the session expired before the touch
    return row


async def delete(changes: Changes, id: str, thread: str | None = None) -> Receipt:
    """Delete a session or one of its threads. Raises `DeletionRefused` if the session must be
    kept."""
    row = await changes.store.row(changes.key(id))
    if row is not None:
        check_deletable(changes, row)
    if thread is not None:
        return await changes.store.delete(Key(changes.tenant, id, thread))
    return await changes.store.delete(Scope(changes.tenant, id))


class ReceiptSum:
    """Adds up deletion receipts. Data that several receipts report as remaining is listed once."""

    def __init__(self) -> None:
        self.removed: Counter[str] = Counter()
        self.remains: dict[Remains, None] = {}

    def add(self, receipt: Receipt) -> None:
        self.removed.update(receipt.removed)
        self.remains.update(dict.fromkeys(receipt.remains))


def must_keep(changes: Changes, row: Row) -> str | None:
    """Return why a session must not be deleted (a legal hold, or recent activity), or None if it
    may be deleted."""
    if row.hold is not None:
        return _held(row)
    if changes.least is None:
        return None
    until = max(row.active, row.created // 1000) + changes.least
    if until <= changes.clock() // 1000:
        return None
    return f"kept until {datetime.fromtimestamp(until, UTC):%Y-%m-%dT%H:%M:%SZ}"


def check_deletable(changes: Changes, row: Row) -> None:
    """Raise `DeletionRefused` for a session that is under legal hold or was active too recently."""
    if (reason := must_keep(changes, row)) is not None:
        raise DeletionRefused(tenant=row.tenant, session=row.session, reason=reason)


def check_held(row: Row) -> None:
    """Raise `DeletionRefused` for a session under legal hold."""
    if row.hold is not None:
        raise DeletionRefused(tenant=row.tenant, session=row.session, reason=_held(row))


def _held(row: Row) -> str:
    return f"held: {row.hold}"


def allowed(row: Row, move: Move) -> str:
    """Return the phase to which a transition leads. Raises `PhaseError` if the transition is not
    allowed in the current phase."""
    phases: dict[Any, Any] = MOVES[move]
    if row.phase not in phases:
        raise refused(row, move)
    return str(phases[row.phase])


def check_live(row: Row, doing: str) -> None:
    """Raise `PhaseError` for a session that has expired."""
    if row.phase == "expired":
        raise refused(row, doing)


def refused(row: Row, doing: str) -> PhaseError:
    return PhaseError(tenant=row.tenant, session=row.session, phase=row.phase, move=doing)
