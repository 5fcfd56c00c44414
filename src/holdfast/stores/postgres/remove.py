"""Deletion: hide the data at once, then remove it in bounded steps.

A deleted log loses its key and its row in one transaction; its events are removed in later ones.
Events that its forks share stay, without a key, until the last fork is deleted. An interrupted
delete leaves such logs behind, and the next delete removes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...log.catalog import Row
from ...log.events import Key, Scope
from ...values.records import Remains
from .. import rules
from ..port import Lease
from ..sql.tables import DEAD, RESTORING
from .columns import encode
from .database import Link
from .log import PostgresLogEntry, entry_by_id, lookup
from .tables import PostgresTables

STEP_EVENTS = 2_000


class Hide:
    """Hides a deleted session or thread from all callers. Returns the counts for the receipt and
    the removed rows. If the call is repeated after a lost reply, it accepts that the log no longer
    exists."""

    def __init__(self, target: Scope | Key, fence: Lease | None, expected: int | None) -> None:
        self._target = target
        self._fence = fence
        self._expected = expected
        self._accepted = False

    async def __call__(self, link: Link) -> tuple[Counter[str], list[Row]]:
        target = self._target
        scope = target.scope if isinstance(target, Key) else target
        # One delete per session at a time, so that it can tell whether it deletes the last thread.
        await link.run(
            "SELECT pg_advisory_xact_lock(hashtextextended($1, 1))", encode(scope).decode()
        )
        await self._check(link)
        removed: Counter[str] = Counter()
        rows: list[Row] = []
        while entries := await _entries(link, target):
            for entry in entries:
                removed += await hide_log(link, entry)
            rows += [entry.row for entry in entries]
            if isinstance(target, Key):
                break  # repeat for a session, because forks may be created while waiting for locks
        if (rows or target == scope) and not await has_threads(link, scope):
            removed += await _hide_scope(link, scope)
        return removed, rows

    async def _check(self, link: Link) -> None:
        """Check the head and the lease that the caller expects, and lock the log."""
        if self._expected is None and self._fence is None:
            return
        target = self._target
        key = target if isinstance(target, Key) else Key(target.tenant, target.session, "main")
        found = await lookup(link, key, lock="FOR UPDATE")
        if found is None and self._accepted:
            return
        rules.check_delete(key, found.row if found else None, self._expected)
        if self._fence is not None:
            entry = rules.existing(key, found)
            rules.check_fence(entry.row, entry.lease, self._fence)
        self._accepted = True


async def _entries(link: Link, target: Scope | Key) -> list[PostgresLogEntry]:
    if isinstance(target, Scope):
        ids = await link.rows(
            "SELECT id FROM hf.logs WHERE tenant = $1 AND session = $2 ORDER BY id FOR UPDATE",
            target.tenant,
            target.session,
        )
        return [await entry_by_id(link, record["id"]) for record in ids]
    found = await lookup(link, target, lock="FOR UPDATE")
    return [found] if found else []


async def has_threads(link: Link, scope: Scope) -> bool:
    """Return whether a session exists, which means that it has a thread."""
    found = await link.value(
        "SELECT 1 FROM hf.logs WHERE tenant = $1 AND session = $2 LIMIT 1",
        scope.tenant,
        scope.session,
    )
    return found is not None


async def hide_log(link: Link, entry: PostgresLogEntry) -> Counter[str]:
    """Hide one log, and reduce its row to the fields that its forks need."""
    bare = Row(tenant="", session="", thread="", log=entry.row.log, head=entry.row.head)
    await link.run(
        "UPDATE hf.logs SET state = $2, version = version + 1, tenant = NULL, session = NULL,"
        ' thread = NULL, owner = NULL, "user" = NULL, workspace = NULL, agent = NULL,'
        " phase = NULL, run = NULL, created = NULL, active = NULL, stale_at = NULL, wake = NULL,"
        " doc = $3 WHERE id = $1",
        entry.id,
        DEAD,
        encode(bare),
    )
    removed = Counter(logs=1, events=entry.row.head - entry.shared)
    for table in ("snapshots", "drafts", "pending", "terms"):
        removed[table] = await link.run(f"DELETE FROM hf.{table} WHERE log = $1", entry.id)
    return removed


async def _hide_scope(link: Link, scope: Scope) -> Counter[str]:
    """Remove the session's blobs and claims, after its last thread was hidden."""
    names = (scope.tenant, scope.session)
    return Counter(
        {
            table: await link.run(
                f"DELETE FROM hf.{table} WHERE tenant = $1 AND session = $2", *names
            )
            for table in ("claims", "blobs")
        }
    )


async def hidden(tables: PostgresTables) -> list[int]:
    """Return the ids of hidden logs that still have data to remove, including abandoned restores.
    They are sorted newest first, so that a fork comes before its parent."""
    link, now = tables.link, await tables.now()
    await link.run(
        "UPDATE hf.logs SET state = $1 WHERE state = $2 AND until < $3", DEAD, RESTORING, now
    )
    found = await link.rows(
        "SELECT d.id FROM hf.logs AS d CROSS JOIN LATERAL"
        " (SELECT max(f.shared) AS kept FROM hf.logs AS f WHERE f.base = d.id) AS k"
        f" WHERE d.state = {DEAD} AND (k.kept IS NULL OR EXISTS"
        " (SELECT 1 FROM hf.events AS e WHERE e.log = d.id AND e.seq > k.kept))"
        " ORDER BY d.id DESC"
    )
    return [record["id"] for record in found]


async def sweep(link: Link, id: int) -> bool:
    """Remove a limited number of events of a hidden log, except the events that its forks share.
    Returns whether there may be more to remove. One statement reads forks and events, so that no
    fork loses events that it shares."""
    some = await link.run(
        "DELETE FROM hf.events WHERE log = $1 AND seq IN (SELECT seq FROM hf.events WHERE log = $1"
        " AND seq > coalesce((SELECT max(shared) FROM hf.logs WHERE base = $1), 0)"
        " AND EXISTS (SELECT 1 FROM hf.logs WHERE id = $1 AND state = $3)"
        " ORDER BY seq DESC LIMIT $2)",
        id,
        STEP_EVENTS,
        DEAD,
    )
    if some == STEP_EVENTS:
        return True
    await link.run(
        f"DELETE FROM hf.logs WHERE id = $1 AND state = {DEAD}"
        " AND NOT EXISTS (SELECT 1 FROM hf.logs AS f WHERE f.base = $1)",
        id,
    )
    return False


async def discard(link: Link, log: str) -> None:
    """Mark a restore as interrupted, so that its data is removed. `log` is the incarnation of its
    log."""
    await link.run("UPDATE hf.logs SET until = -1 WHERE log = $1 AND state = $2", log, RESTORING)


async def shared_still(link: Link, scope: Scope, deleted: Sequence[str]) -> list[Remains]:
    """Return which events of the deleted logs are still shared by forks. The result names no other
    session."""
    found = await link.rows(
        "SELECT dead.log, max(fork.shared), string_agg(DISTINCT fork.thread, ',')"
        " FROM hf.logs AS dead JOIN hf.logs AS fork ON fork.base = dead.id"
        f" WHERE dead.log = ANY ($1) AND dead.state = {DEAD} GROUP BY dead.log",
        list(deleted),
    )
    return [
        Remains(
            where=f"log {log}",
            what=f"events up to {upto}, shared by forks ({threads})",
            remedy="delete the forks",
        )
        for log, upto, threads in found
    ]
