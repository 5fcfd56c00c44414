"""Routes that bind surfaces, such as chat channels, to sessions, and that find the session for a
message from a surface."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import delete, get, post
from litestar.params import JSONBody, QueryParameter
from msgspec.structs import replace

from ...errors import HoldfastError, SurfaceTaken
from ...log.catalog import LIVE, Page, Query, Row
from ...sessions import Inbound, Sessions
from ...wire import AttachSurface, MovedSurface, Resolve, SessionView, SurfaceShown
from ..engines import TenantStore
from ..http.context import Context, RequestContext
from ..placement.absence_guard import StoreUnasked
from .parameters import READ, SESSION, WRITE, SessionId

BASE = f"{SESSION}/surfaces"
Text = Annotated[str, QueryParameter(min_length=1, max_length=400)]


@get(BASE, opt=READ, operation_id="list_surfaces")
async def surfaces(ctx: Context, session_id: SessionId) -> MovedSurface:
    """Return the surfaces that are attached to a session."""
    _, row = await ctx.find(session_id)
    return shown(row)


@post(BASE, opt=WRITE, operation_id="attach_surface")
async def attach(
    ctx: Context, session_id: SessionId, data: JSONBody[AttachSurface]
) -> MovedSurface:
    """Bind a surface to a session. Responds with 409 if another session has the surface. With
    `move`, the surface is taken from that session, which must also belong to the caller."""
    place, _ = await ctx.find(session_id)
    sessions = ctx.sessions(place)
    move = data.move and await _may_take(ctx, sessions, data)
    try:
        row = await sessions.attach_surface(
            session_id, data.surface, data.address, detail=data.detail, move=move
        )
    except SurfaceTaken as taken:
        raise await _masked(ctx, place, taken) from None
    return shown(row)


async def _may_take(ctx: RequestContext, sessions: Sessions, data: AttachSurface) -> bool:
    """Return whether the caller may take the surface from the session that has it."""
    if ctx.caller.may("sessions:all"):
        return True
    page = await sessions.find(surface=(data.surface, data.address))
    return all(row.user == ctx.caller.principal for row in page.items)


async def _masked(ctx: RequestContext, place: TenantStore, taken: SurfaceTaken) -> SurfaceTaken:
    """Return the error without the id of a session that does not belong to the caller."""
    row = await Sessions(place.store, tenant=place.tenant).get(taken.session)
    theirs = row is not None and row.user == ctx.caller.principal
    if theirs or ctx.caller.may("sessions:all"):
        return taken
    return SurfaceTaken(
        tenant=taken.tenant, session="", surface=taken.surface, address=taken.address
    )


@delete(BASE, status_code=200, opt=WRITE, operation_id="detach_surface")
async def detach(ctx: Context, session_id: SessionId, surface: Text, address: Text) -> MovedSurface:
    """Detach a surface from a session. Has no effect if it is not attached."""
    place, _ = await ctx.find(session_id)
    return shown(await ctx.sessions(place).detach_surface(session_id, surface, address))


def shown(row: Row) -> MovedSurface:
    """Return the surfaces of a session."""
    items = []
    for name, detail in row.surfaces.items():
        surface, address = msgspec.json.decode(name, type=tuple[str, str])
        items.append(SurfaceShown(surface=surface, address=address, detail=detail))
    return MovedSurface(items=items)


@post("/resolve", status_code=200, opt=WRITE, operation_id="resolve")
async def resolve(ctx: Context, data: JSONBody[Resolve]) -> SessionView:
    """Return the session for a message from a surface: the session that the surface is bound to,
    else the most recent session of the user, else a new one. Repeating the request with the same
    message id, even to another replica, returns the same session."""
    user = ctx.acting_for(data.user)
    _, engine = ctx.service.engine(None)
    agent = engine.agent_key(data.agent)
    place = await _place(ctx, (data.surface, data.address))
    sessions = Sessions(place.store, tenant=place.tenant, ttl=None)
    message = Inbound(
        user=user,
        surface=data.surface,
        address=data.address,
        workspace=data.workspace,
        id=data.id or ctx.once,
    )
    try:
        row = await sessions.resolve_session(message)
    except SurfaceTaken as taken:
        raise await _masked(ctx, place, taken) from None
    if place.kind != ctx.service.places.default:  # the session may be new
        await ctx.service.places.settle(place, row.session, {})
    ctx.note(session=row.session)
    row = replace(row, agent=row.agent or agent)
    ctx.service.serves(row)  # raises if no agent of this server serves it
    return await ctx.shown(place, row)


async def _place(ctx: RequestContext, surface: tuple[str, str]) -> TenantStore:
    """Return the first store with a session that has this surface, or else the default store.
    Raises `StoreUnavailable` if a store that may have such a session is unavailable."""
    places, tenant = ctx.service.places, ctx.caller.tenant
    default = await places.place(tenant)
    if len(places.order) == 1:
        return default
    query = Query(tenant=tenant, surface=surface, phases=LIVE)
    if _live(await default.store.find(query)):
        return default
    away: list[str] = []
    for kind in places.order[1:]:
        found = await places.ask(places.lists, tenant, kind, lambda store: store.find(query))
        if isinstance(found, HoldfastError):
            away.append(kind)
        elif _live(found[1]):
            return found[0]
    if away:  # otherwise one surface could get two sessions
        raise StoreUnasked(
            problem=f"the {away[0]} store is unavailable and may contain a session of this "
            f"surface: try again later"
        )
    return default


def _live(page: Page[Row]) -> bool:
    return any(row.sealed is None for row in page.items)


HANDLERS: list[Any] = [surfaces, attach, detach, resolve]
