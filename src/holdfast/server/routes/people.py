"""All that is stored of one person: given out, or erased."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

import msgspec
from litestar import Response, delete, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import PathParameter, QueryParameter
from litestar.response import Stream

from ...codec import check_name
from ...errors import Forbidden
from ...sessions import PersonErased, PersonRecord, Sessions
from ..asking import Ask, Asking
from ..engines import Place

LINES = "application/x-ndjson"
BASE = "/people"
NAMED = BASE + "/{user:str}"
User = Annotated[str, PathParameter(min_length=1, max_length=512)]
AnyUser = Annotated[
    str, QueryParameter(min_length=1, max_length=512, description="Any name, also with a slash.")
]
Reason = Annotated[str, QueryParameter(min_length=1, max_length=400)]
Shared = Annotated[bool, QueryParameter(description="Also their events in the sessions of others.")]
Store = Annotated[str | None, QueryParameter(min_length=1, max_length=400)]
DryRun = Annotated[bool, QueryParameter(description="Only say what would be erased.")]
RECORDS = ResponseSpec(str, media_type=LINES, description="A line of JSON for each record")


@get(
    NAMED,
    opt={"scope": "sessions:read"},
    operation_id="export_person",
    responses={200: RECORDS},
    media_type=LINES,
)
async def export(
    ask: Ask, user: User, shared: Shared = False, store: Store = None
) -> Response[Any]:
    """All that is stored of a person, a line of JSON for each event; one's own, or with the
    scope `sessions:all` anybody's."""
    return await _export(ask, user, shared, store)


@get(
    BASE,
    opt={"scope": "sessions:read"},
    operation_id="export_any_person",
    responses={200: RECORDS},
    media_type=LINES,
)
async def export_any(
    ask: Ask, user: AnyUser, shared: Shared = False, store: Store = None
) -> Response[Any]:
    """The same, of a person whose name cannot stand in a path."""
    ask.note(user=user)
    return await _export(ask, user, shared, store)


async def _export(ask: Asking, user: str, shared: bool, store: str | None) -> Response[Any]:
    check_name("user", user)
    if shared and not ask.caller.may("sessions:all"):
        raise Forbidden(problem="`shared` needs the scope sessions:all", scope="sessions:all")
    ask.acting_for(user)
    place = await ask.service.places.place(ask.caller.tenant, store)
    sessions = Sessions(place.store, tenant=place.tenant)
    return Stream(lines(sessions.export_person(user, shared=shared)), media_type=LINES)


async def lines(records: AsyncGenerator[PersonRecord, None]) -> AsyncGenerator[bytes, None]:
    """Records as lines."""
    async with aclosing(records) as found:
        async for record in found:
            yield msgspec.json.encode(record) + b"\n"


@delete(NAMED, status_code=200, opt={"scope": "people:erase"}, operation_id="erase_person")
async def erase(
    ask: Ask,
    user: User,
    reason: Reason,
    shared: Shared = True,
    dry_run: DryRun = False,
    store: Store = None,
) -> PersonErased:
    """Delete a person's sessions, and erase their events in all others. What is held is refused
    and told; the rest goes on."""
    return await _erase(ask, user, reason, shared, dry_run, store)


@delete(BASE, status_code=200, opt={"scope": "people:erase"}, operation_id="erase_any_person")
async def erase_any(
    ask: Ask,
    user: AnyUser,
    reason: Reason,
    shared: Shared = True,
    dry_run: DryRun = False,
    store: Store = None,
) -> PersonErased:
    """The same, of a person whose name cannot stand in a path."""
    ask.note(user=user)
    return await _erase(ask, user, reason, shared, dry_run, store)


async def _erase(
    ask: Asking, user: str, reason: str, shared: bool, dry_run: bool, store: str | None
) -> PersonErased:
    check_name("user", user)
    place = await ask.service.places.place(ask.caller.tenant, store)
    sessions = Sessions(place.store, tenant=place.tenant, actor=ask.actor)
    agents = set() if dry_run else await _stop(ask, place, sessions, user)
    done = await sessions.erase_person(user, reason=reason, shared=shared, dry_run=dry_run)
    if not dry_run:
        answers = await ask.service.once()
        await answers.forget_person(place.tenant, user, ask.once)
        for session in (*done.sessions, *done.events):
            await answers.forget(place.tenant, session, ask.once)
        for agent in sorted(agents):
            await ask.service.adopting.forget(place, agent)
    return done


async def _stop(ask: Asking, place: Place, sessions: Sessions, user: str) -> set[str]:
    """End the runs of the person's sessions, wherever they are driven, and remove what these
    have outside of the store; the agents that served them."""
    agents: set[str] = set()
    async for row in sessions.walk(user=user):
        if row.hold is not None:
            continue
        if row.run in ("running", "waiting"):
            async with ask.session(row.session) as session:
                await session.abort("erased", actor=ask.actor)
        await ask.service.adopting.clear(place, row)
        agents.add(row.agent or "")
    return agents


HANDLERS: list[Any] = [export, export_any, erase, erase_any]
