"""`unseal_session`: the way back from a move. What a move has sealed goes on here again.

A session must never go on in two places, and only the other place knows whether it goes on there.
So either that place is looked at, or a person answers for it; who did it and why is in the log.
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

OWNER = "holdfast unseal"  # who holds the leases while threads are opened
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
    """Open the threads again that a move has sealed; returns how many. `reason` and `actor` stand
    in the log. The same call again finishes what was cut, and then opens none.

    `target` is the store that it was moved to, and `there` what it is called in it, if otherwise
    than here: `SessionExists` while any of it is there, whatever else is said; delete it there
    first. If the move was to that store (`copy_session`), this is all there is to know. A file can
    have gone anywhere: `force` says that it was made sure that nobody goes on with it, or will;
    without it, `SessionMoved`. `LeaseHeld` while somebody holds a thread.

    What was imported to be read stays sealed (`InvalidValue`). An expired session stays expired,
    and surfaces that another session has by now stay with that one.
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
            problem="was imported to be read",
            remedy="import its bundle under another id to go on with it",
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
    """Refuse while anything of the session is where it was moved to."""
    found = await threads_of(target, there)
    if {row.log for row in found} & {row.log for row in rows}:
        raise InvalidValue(
            field="target", problem="is the store that it was moved from", remedy="name the other"
        )
    if found:
        raise SessionExists(
            tenant=there.tenant, session=there.session, thread=min(row.thread for row in found)
        )


def _check_known(sealed: Sequence[Row], name: str | None) -> None:
    """Refuse where a session may go on that was not looked at."""
    for row in sealed:
        if row.sealed is not None and row.sealed != name:
            raise SessionMoved(
                tenant=row.tenant, session=row.session, thread=row.thread, to=row.sealed
            )


async def _open(store: Store, sealed: Sequence[Row], reason: str, actor: str | None) -> None:
    """Open these threads, if nobody holds any of them."""
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
