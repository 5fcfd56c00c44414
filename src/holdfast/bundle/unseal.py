"""`unseal_session`: reverts a move, so that the sealed session continues here.

A session must never continue in two stores. Therefore either the target store is checked, or the
caller confirms with `force` that the session does not continue elsewhere. The actor and the reason
are recorded in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ..errors import InvalidValue, LeaseLost, SessionExists, SessionMoved, SessionNotFound
from ..log.catalog import Row
from ..log.codec import check_key, check_name
from ..log.events import NewEvent, Scope
from ..sessions import Sessions
from ..sessions.surfaces import settle
from ..stores.copy import place_name
from ..stores.measure import threads_of
from ..stores.port import Lease, Store
from .read import NOWHERE
from .write import Origin, origin_of

OWNER = "holdfast unseal"  # the owner of the leases during the call
TTL = 60.0


async def unseal_session(
    session: Origin,
    *,
    reason: str,
    actor: str | None = None,
    target: Store | None = None,
    there: Scope | None = None,
    force: bool = False,
) -> int:
    """Unseal the threads that a move has sealed. Returns the number of unsealed threads. `reason`
    and `actor` are stored in the log. Repeating the call finishes an interrupted call; after that
    it unseals nothing.

    `target` is the store that the session was moved to, and `there` its id in that store, if it
    differs. Raises `SessionExists` while the target has any thread of it; delete it there first.
    That is enough for a move between stores (`copy_session`). A bundle file may have been imported
    anywhere, so `SessionMoved` is raised unless you confirm with `force` that the session does not
    continue elsewhere. Raises `LeaseHeld` while a thread has a driver.

    A session that was imported with `purpose='read'` stays sealed, and `InvalidValue` is raised. An
    expired session stays expired, and surfaces that another session has taken stay with that
    session.

    See [bundles](../bundles.md).
    """
    store, scope = origin_of(session)
    check_name("reason", reason)
    there = scope if there is None else there
    check_key(there)
    rows = await threads_of(store, scope)
    if not rows:
        raise SessionNotFound(tenant=scope.tenant, session=scope.session)
    sealed = [row for row in rows if row.sealed is not None]
    if any(row.sealed == NOWHERE for row in sealed):
        raise InvalidValue(
            field="session",
            problem="was imported with purpose='read'",
            remedy="import its bundle under another id to continue it",
        )
    if target is not None:
        await _check_gone(rows, target, there)
    if not force:
        _check_known(sealed, None if target is None else await place_name(target, scope, there))
    await _open(store, sealed, reason, actor)
    if any(row.thread == "main" and row.phase != "expired" for row in sealed):
        sessions = Sessions(store, tenant=scope.tenant, actor=actor)
        await settle(sessions.changes, await sessions.changes.row(scope.session), actor)
    return len(sealed)


async def _check_gone(rows: Sequence[Row], target: Store, there: Scope) -> None:
    """Raise `SessionExists` while the target store has any thread of the session."""
    found = await threads_of(target, there)
    if {row.log for row in found} & {row.log for row in rows}:
        raise InvalidValue(
            field="target",
            problem="is the store that the session was moved from",
            remedy="pass the store that it was moved to",
        )
    if found:
        raise SessionExists(
            tenant=there.tenant, session=there.session, thread=min(row.thread for row in found)
        )


def _check_known(sealed: Sequence[Row], name: str | None) -> None:
    """Raise `SessionMoved` if the session was moved to a store that was not checked."""
    for row in sealed:
        if row.sealed is not None and row.sealed != name:
            raise SessionMoved(
                tenant=row.tenant, session=row.session, thread=row.thread, to=row.sealed
            )


async def _open(store: Store, sealed: Sequence[Row], reason: str, actor: str | None) -> None:
    """Unseal these threads. Raises `LeaseHeld` if one of them has a driver."""
    leases: list[Lease] = []
    try:
        for row in sealed:
            leases.append(await store.acquire(row.key, OWNER, ttl=TTL))
        for row, lease in zip(sealed, leases, strict=True):
            kinds = ["session.reopened", *(["session.expired"] if row.phase == "expired" else [])]
            events = [NewEvent.of(kind, {"reason": reason}, actor=actor) for kind in kinds]
            await store.append(row.key, events, expected=row.head, fence=lease, log=row.log)
    finally:
        for lease in leases:
            with suppress(LeaseLost, SessionNotFound):
                await store.release(lease)
