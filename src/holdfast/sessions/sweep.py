"""Suspends stale sessions, expires sessions that were suspended for long, and deletes expired
sessions if a policy allows it.

Candidates come from an index of rows in which nothing is active. A session is changed only if its
log has not changed since it was read, so that a session that is touched in the meantime stays
active, and any number of sweepers may run concurrently.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Literal, Protocol

from msgspec import Struct

from ..cancellation import cancellable, ended
from ..environment import current
from ..errors import HeadMoved, HoldfastError, InvalidValue, SessionMoved, SessionNotFound
from ..log import events as ev
from ..log.catalog import Row, has_work
from ..log.codec import check_count
from ..log.events import Payload
from ..values.records import Remains
from .changes import Changes, ReceiptSum, must_keep
from .queries import threads, walk

log = logging.getLogger("holdfast.sweep")


class Swept(Struct, frozen=True, kw_only=True):
    """The result of a sweep, or with `dry_run`, what it would do: the ids of the sessions that it
    suspended and expired, and how many it skipped for each reason.

    See [time](../sessions.md#time).
    """

    suspended: list[str]
    expired: list[str]
    skipped: dict[str, int]


class Retention(Struct, frozen=True, kw_only=True):
    """When an expired session may be deleted: `keep` seconds after its last activity, but not
    before `grace` seconds after it expired, in which it can be reopened.

    ```python
    await sessions.purge_expired(Retention(keep=90 * 86_400), dry_run=True)
    ```
    """

    keep: int
    grace: int = 7 * 24 * 3_600


class Purged(Struct, frozen=True, kw_only=True):
    """The result of a retention pass, or with `dry_run`, what it would do. `in_grace` maps the ids
    of sessions in their grace period to its end (ms), `kept` the ids of sessions that were kept to
    the reason. `removed` adds up the counts of all receipts, and `remains` lists data that could
    not be deleted.

    See [time](../sessions.md#time).
    """

    dry_run: bool
    deleted: list[str]
    in_grace: dict[str, int]
    kept: dict[str, str]
    removed: dict[str, int]
    remains: list[Remains] = []


async def sweep(changes: Changes, ttl: int | None, limit: int, dry_run: bool = False) -> Swept:
    check_count("limit", limit, least=1)
    now = changes.clock() // 1000
    # Times are rounded down to seconds, so only a smaller value is certainly old enough.
    filters = {"stale_until": now} if ttl is None else {"active_until": max(0, now - ttl)}
    phases = ("created", "active", "suspended") if ttl is None else ("created", "active")
    suspended: list[str] = []
    expired: list[str] = []
    skipped: Counter[str] = Counter()
    async for row in walk(changes, phases=phases, **filters):
        if len(suspended) + len(expired) >= limit:
            break
        if row.sealed is not None:
            skipped["moved elsewhere"] += 1
        elif (busy := await in_use(changes, row, now - _idle_limit(row, ttl))) is not None:
            skipped[busy] += 1
        elif dry_run or await _suspend_or_expire(changes, row):
            (expired if row.phase == "suspended" else suspended).append(row.session)
        else:
            skipped["in use again"] += 1
    return Swept(suspended=suspended, expired=expired, skipped=dict(skipped))


def _idle_limit(row: Row, ttl: int | None) -> int:
    """Return the idle time after which a candidate is suspended or expires."""
    own = row.expiry if row.phase == "suspended" else row.ttl
    return ttl or own or 0


async def _suspend_or_expire(changes: Changes, row: Row) -> bool:
    """Suspend or expire a session, unless its log has changed since its row was read."""
    payload = (
        ev.SessionExpired(reason="expiry")
        if row.phase == "suspended"
        else ev.SessionSuspended(reason="stale")
    )
    return await _append_unless_changed(changes, row, payload) == "appended"


async def _append_unless_changed(
    changes: Changes, row: Row, payload: Payload
) -> Literal["appended", "changed", "sealed"]:
    """Append to a log, unless it has changed since its row was read."""
    event = changes.event(payload, None)
    try:
        await changes.store.append(row.key, [event], expected=row.head, log=row.log)
    except (HeadMoved, SessionNotFound):
        return "changed"
    except SessionMoved:
        return "sealed"
    return "appended"


async def in_use(changes: Changes, row: Row, since: int) -> str | None:
    """Return why a session is in use, or None: it is pinned, one of its threads is active now, or
    was active since `since` (s)."""
    if row.pinned:
        return "pinned"
    async for thread in threads(changes, row.session):
        if thread.pending:
            return "waits for an answer"
        if thread.run in ("running", "waiting"):
            return "has an open run"
        if has_work(thread):
            return "has work to do"
        if thread.thread != "main" and thread.active >= since:
            return "was in use lately"
    return None


async def purge(changes: Changes, retention: Retention, dry_run: bool, limit: int) -> Purged:
    for field in ("keep", "grace"):
        check_count(field, getattr(retention, field), least=0)
    check_count("limit", limit, least=1)
    now = changes.clock()
    deleted: list[str] = []
    in_grace: dict[str, int] = {}
    kept: dict[str, str] = {}
    receipts = ReceiptSum()
    old = max(0, now // 1000 - retention.keep)
    async for row in walk(changes, phases=("expired",), active_until=old):
        if len(deleted) >= limit:
            break
        until = (row.changed or row.last) + retention.grace * 1000
        if (why := await _kept(changes, row, old)) is not None:
            kept[row.session] = why
        elif until > now:
            in_grace[row.session] = until
        elif not dry_run and not await _announce_deletion(changes, row):
            kept[row.session] = "changed meanwhile"
        else:
            deleted.append(row.session)
            if not dry_run:
                receipts.add(await changes.store.delete(row.scope))
    return Purged(
        dry_run=dry_run,
        deleted=deleted,
        in_grace=in_grace,
        kept=kept,
        removed=dict(receipts.removed),
        remains=list(receipts.remains),
    )


async def _kept(changes: Changes, row: Row, since: int) -> str | None:
    """Return why an expired session must not be deleted now, or None. Reads the row again."""
    fresh = await changes.store.row(row.key)
    if fresh is None or fresh.phase != "expired":
        return "changed meanwhile"
    return must_keep(changes, fresh) or await in_use(changes, fresh, since)


async def _announce_deletion(changes: Changes, row: Row) -> bool:
    """Record in the log that the session is about to be deleted, if it has not changed since it was
    read. This ensures that a reopening or a hold that came first is never missed."""
    payload = ev.SessionExpired(reason="retention")
    # A sealed log does not change any more.
    return await _append_unless_changed(changes, row, payload) != "changed"


class SweptSessions(Protocol):
    """The methods of `Sessions` that a sweeper needs."""

    async def sweep_stale(self) -> Swept: ...

    async def purge_expired(self, retention: Retention) -> Purged: ...


class Sweeper:
    """Background task that sweeps sessions periodically: `async with Sweeper(sessions): …`.

    A failed sweep is logged and retried at the next interval. With `retention`, it also deletes
    expired sessions.

    ```python
    async with Sweeper(Sessions(store), every=300):
        await serve()
    ```
    """

    def __init__(
        self, sessions: SweptSessions, *, every: float = 300.0, retention: Retention | None = None
    ) -> None:
        if every <= 0:
            raise InvalidValue(field="every", problem=f"is {every}", remedy="pass a number above 0")
        self._sessions = sessions
        self._every = every
        self._retention = retention
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Sweeper:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def start(self) -> None:
        """Start the task if it is not running."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def aclose(self) -> None:
        """Stop the task. A running sweep is cancelled, which is safe."""
        task, self._task = self._task, None
        if task is not None:
            await ended(task)

    async def _run(self) -> None:
        while True:
            try:
                with cancellable():
                    await self._once()
            except HoldfastError as error:
                log.warning("a sweep failed and will be retried: %s", error)
            except Exception:
                log.exception("a sweep failed and will be retried")
            # Random delay, so that the sweepers of many processes do not run at once.
            await asyncio.sleep(self._every * current().random.uniform(0.9, 1.1))

    async def _once(self) -> None:
        swept = await self._sessions.sweep_stale()
        if swept.suspended or swept.expired:
            log.info("suspended %d sessions, expired %d", len(swept.suspended), len(swept.expired))
        if self._retention is not None:
            purged = await self._sessions.purge_expired(self._retention)
            if purged.deleted:
                log.info("deleted %d expired sessions", len(purged.deleted))
