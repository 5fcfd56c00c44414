"""Surfaces: a pair (surface, address) is attached to at most one live session of a tenant.

The claim of the pair decides which session has it, and an event records this. Attaching claims the
pair, then appends the event; detaching appends the event, then releases the claim. A crash between
the two steps leaves a claim whose session does not list the surface; the next session that attaches
the surface takes the claim over.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from ..errors import HoldfastError, SessionNotFound, StoreError, SurfaceTaken
from ..log import events as ev
from ..log.catalog import SURFACE_CLAIM, Row, surface_name
from ..log.codec import check_name
from ..log.events import Payload, Scope
from .changes import Changes, check_live

Surface = tuple[str, str]


async def attach(
    changes: Changes, id: str, payload: ev.SurfaceAttached, *, move: bool, actor: str | None
) -> Row:
    surface = (payload.surface, payload.address)
    name = named(surface)
    row = await changes.row(id)
    check_live(row, "attach_surface")
    try:
        await take(changes, row.scope, surface, move=move)
    except SurfaceTaken:
        await _drop(changes, row, surface, "taken", actor)
        raise
    if name in row.surfaces:
        return row

    def decide(row: Row) -> Payload | None:
        check_live(row, "attach_surface")
        return None if name in row.surfaces else payload

    try:
        row = await changes.make(id, decide, actor=actor)
    except StoreError:
        raise  # the event may be in the log, so the claim is kept
    except HoldfastError:
        await give_back(changes, row.scope, surface)
        raise
    return await settle(changes, row, actor, only=surface)


async def detach(
    changes: Changes, id: str, payload: ev.SurfaceDetached, *, actor: str | None
) -> Row:
    surface = (payload.surface, payload.address)
    name = named(surface)
    attached = False

    def decide(row: Row) -> Payload | None:
        nonlocal attached
        check_live(row, "detach_surface")
        attached = attached or name in row.surfaces
        return payload if name in row.surfaces else None

    row = await changes.make(id, decide, actor=actor)
    if attached:
        await give_back(changes, row.scope, surface)
    return row


async def take(changes: Changes, scope: Scope, surface: Surface, *, move: bool) -> None:
    """Claim a surface for a session. The claim is taken from another session only with `move`, or
    if that session has ended."""
    store, claim = changes.store, SURFACE_CLAIM + named(surface)
    holder = await store.claim(scope.tenant, claim, scope)
    while holder != scope:
        other = await store.row(changes.key(holder.session))
        if other is not None and _has(other, surface):
            if not move:
                raise taken(holder, surface)
            await _drop(changes, other, surface, "moved")
        before, holder = holder, await store.claim(scope.tenant, claim, scope, instead_of=holder)
        if holder == scope:
            await _yield(changes, before, surface)


async def _yield(changes: Changes, scope: Scope, surface: Surface) -> None:
    """Detach a surface from a session that has just lost the claim, since the session may have
    attached it in the meantime."""
    row = await changes.store.row(changes.key(scope.session))
    if row is not None and _has(row, surface):
        await _drop(changes, row, surface, "taken")


async def give_back(changes: Changes, scope: Scope, surface: Surface) -> None:
    """Release the claim of a surface, unless the session's row lists the surface. If the session
    attaches the surface at the same time, it keeps the surface, unless another session claimed it
    first."""
    store, key, name = changes.store, changes.key(scope.session), named(surface)
    row = await store.row(key)
    if row is not None and name in row.surfaces:
        return
    await store.unclaim(scope.tenant, SURFACE_CLAIM + name, scope)
    row = await store.row(key)
    if row is not None and name in row.surfaces:
        with suppress(SurfaceTaken):
            await settle(changes, row, None, only=surface)


async def settle(
    changes: Changes, row: Row, actor: str | None, *, only: Surface | None = None
) -> Row:
    """Claim the surfaces that the session's row lists, and detach those that another session has
    claimed. Raises `SurfaceTaken` if `only` is one of them."""
    for name in [named(only)] if only else list(row.surfaces):
        holder = await changes.store.claim(row.tenant, SURFACE_CLAIM + name, row.scope)
        if holder != row.scope:
            lost = msgspec.json.decode(name, type=Surface)
            row = await _drop(changes, row, lost, "taken", actor)
            if only is not None:
                raise taken(holder, only)
    return row


async def _drop(
    changes: Changes, row: Row, surface: Surface, reason: str, actor: str | None = None
) -> Row:
    """Append an event that detaches the surface from a session that has lost it."""
    name = named(surface)
    payload = ev.SurfaceDetached(surface=surface[0], address=surface[1], reason=reason)
    try:
        return await changes.make(
            row.session, lambda row: payload if name in row.surfaces else None, actor=actor
        )
    except SessionNotFound:
        return row  # it was deleted, and the claim with it


def _has(row: Row, surface: Surface) -> bool:
    live = row.phase != "expired" and row.sealed is None
    return live and named(surface) in row.surfaces


def named(surface: Surface) -> str:
    """Check a surface, and return its name as used in rows and claims."""
    for field, part in zip(("surface", "address"), surface, strict=True):
        check_name(field, part)
    return surface_name(*surface)


def taken(holder: Scope, surface: Surface) -> SurfaceTaken:
    return SurfaceTaken(
        tenant=holder.tenant, session=holder.session, surface=surface[0], address=surface[1]
    )
