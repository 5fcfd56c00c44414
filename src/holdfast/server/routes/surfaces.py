"""Surfaces: where a person meets a session, and which session a message belongs to."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any

import msgspec
from litestar import delete, get, post
from litestar.params import JSONBody, QueryParameter
from msgspec.structs import replace

from ...errors import StoreError, SurfaceTaken
from ...log.catalog import LIVE, Query, Row
from ...sessions import Inbound, Sessions
from ...wire import AttachSurface, MovedSurface, Resolve, SessionView, SurfaceShown
from ..engines import Place
from ..http.context import Ask, Asking, SessionId
from ..placement.absence_guard import Unasked

READ = {"scope": "sessions:read"}
WRITE = {"scope": "sessions:write"}
BASE = "/sessions/{session_id:str}/surfaces"
Text = Annotated[str, QueryParameter(min_length=1, max_length=400)]


@get(BASE, opt=READ, operation_id="list_surfaces")
async def surfaces(ask: Ask, session_id: SessionId) -> MovedSurface:
    """The surfaces that are bound to a session."""
    _, row = await ask.find(session_id)
    return shown(row)


@post(BASE, opt=WRITE, operation_id="attach_surface")
async def attach(ask: Ask, session_id: SessionId, data: JSONBody[AttachSurface]) -> MovedSurface:
    """Bind a surface to a session, for good and for it alone. 409 if another session has it;
    with `move` it is taken from that one, which must be one's own too."""
    place, _ = await ask.find(session_id)
    sessions = Sessions(place.store, tenant=place.tenant, actor=ask.actor)
    move = data.move and await _may_take(ask, sessions, data)
    try:
        row = await sessions.attach_surface(
            session_id, data.surface, data.address, detail=data.detail, move=move
        )
    except SurfaceTaken as taken:
        raise await _masked(ask, place, taken) from None
    return shown(row)


async def _may_take(ask: Asking, sessions: Sessions, data: AttachSurface) -> bool:
    """Whether whoever has the surface is one's own."""
    if ask.caller.may("sessions:all"):
        return True
    page = await sessions.find(surface=(data.surface, data.address))
    return all(row.user == ask.caller.principal for row in page.items)


async def _masked(ask: Asking, place: Place, taken: SurfaceTaken) -> SurfaceTaken:
    """The error, without the name of a session that is not one's own."""
    row = await Sessions(place.store, tenant=place.tenant).get(taken.session)
    theirs = row is not None and row.user == ask.caller.principal
    if theirs or ask.caller.may("sessions:all"):
        return taken
    return SurfaceTaken(
        tenant=taken.tenant, session="", surface=taken.surface, address=taken.address
    )


@delete(BASE, status_code=200, opt=WRITE, operation_id="detach_surface")
async def detach(ask: Ask, session_id: SessionId, surface: Text, address: Text) -> MovedSurface:
    """Free a surface for others; nothing if it is not attached."""
    place, _ = await ask.find(session_id)
    sessions = Sessions(place.store, tenant=place.tenant, actor=ask.actor)
    return shown(await sessions.detach_surface(session_id, surface, address))


def shown(row: Row) -> MovedSurface:
    """The surfaces of a session."""
    items = []
    for name, detail in row.surfaces.items():
        surface, address = msgspec.json.decode(name, type=tuple[str, str])
        items.append(SurfaceShown(surface=surface, address=address, detail=detail))
    return MovedSurface(items=items)


@post("/resolve", status_code=200, opt=WRITE, operation_id="resolve")
async def resolve(ask: Ask, data: JSONBody[Resolve]) -> SessionView:
    """The session that a message belongs to: that of its surface, else the person's most recent
    one, else a new one. The same message twice, or to two replicas, is one session."""
    user = ask.acting_for(data.user)
    _, engine = ask.service.engine(None)
    agent = engine.agent_key(data.agent)
    place = await _place(ask, (data.surface, data.address))
    sessions = Sessions(place.store, tenant=place.tenant, ttl=None)
    message = Inbound(
        user=user,
        surface=data.surface,
        address=data.address,
        workspace=data.workspace,
        id=data.id or ask.once,
    )
    try:
        row = await sessions.resolve_session(message)
    except SurfaceTaken as taken:
        raise await _masked(ask, place, taken) from None
    if place.kind != ask.service.places.default:  # where it may have been begun anew
        await ask.service.places.settle(place, row.session, {})
    ask.note(session=row.session)
    return ask.view(place, replace(row, agent=row.agent or agent))


async def _place(ask: Asking, surface: tuple[str, str]) -> Place:
    """The first store in which a session has this surface, else the default one; not where one
    may have it that cannot be asked (`StoreUnavailable`)."""
    places, tenant = ask.service.places, ask.caller.tenant
    default = await places.place(tenant)
    if len(places.order) == 1:
        return default
    query = Query(tenant=tenant, surface=surface, phases=LIVE)
    if _live((await default.store.find(query)).items):
        return default
    away: list[str] = []

    async def look(kind: str) -> tuple[Place, bool]:
        place = await places.place(tenant, kind)
        return place, _live((await place.store.find(query)).items)

    for kind in places.order[1:]:
        try:
            place, found = await places.lists.ask(kind, partial(look, kind))
        except StoreError:
            away.append(kind)
            continue
        if found:
            return place
    if away:  # for as long as that lasts: one surface would have two sessions
        problem = f"the {away[0]} store may have it and cannot be asked now: ask again"
        raise Unasked(problem=problem)
    return default


def _live(rows: Iterable[Row]) -> bool:
    return any(row.sealed is None for row in rows)


HANDLERS: list[Any] = [surfaces, attach, detach, resolve]
