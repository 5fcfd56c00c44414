"""Routes that create, list, show, change and delete sessions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from litestar import Response, delete, get, patch, post, put
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromQuery, JSONBody, QueryParameter
from msgspec.structs import replace

from ...errors import HoldfastError, InvalidValue, SessionExists, SessionNotFound
from ...harness import clear_sandbox, core_of, mark_for_removal
from ...log import events as ev
from ...log.catalog import Phase, Query, Row
from ...log.codec import check_name
from ...sessions.changes import check_held
from ...values.display import phase as standing
from ...values.records import Receipt
from ...values.status import Status
from ...wire import ChangeSession, CreateSession, GetOrCreate, RowPage, SessionView
from ..engines import TenantStore
from ..http.context import Context, RequestContext, check_metadata, main_row
from ..placement import pagination
from ..placement.store_names import remaining
from ..streams.session_stream import UnservedSession, live_of
from ..uploads import session_uploads, variables
from .parameters import LAST, READ, SESSION, WRITE, Cursor, Limit, SessionId, Text, Thread

Stands: TypeAlias = Literal["running", "waiting", "done", "failed", "aborted", "interrupted"]
SEALED = "sealed"  # the phase of a session that was moved, or is read-only
Metadata: TypeAlias = Annotated[
    list[str] | None,
    QueryParameter(
        max_items=20, description="Only sessions with this metadata: `name=value`, repeatable."
    ),
]
Time: TypeAlias = Annotated[
    int | None,
    QueryParameter(
        ge=0,
        le=LAST,
        description="As in the row: UTC, `created` in ms, `active` and `stale` in seconds.",
    ),
]
BEGIN = {**WRITE, "replayed": session_uploads.give_again}


@post("/sessions", opt=BEGIN, operation_id="create_session")
async def create(ctx: Context, data: JSONBody[CreateSession | None] = None) -> SessionView:
    """Create a session. Responds with 409 if a session with this id exists."""
    data = data or CreateSession()
    check_metadata(*data.metadata)
    id = data.id if data.id is not None else ctx.new_id()
    place, _ = await begin(ctx, id, data, new=True, sure=data.id is not None)
    ctx.note(session=id)
    return await ctx.shown(place, await main_row(place, id), created=True)


@put(
    SESSION,
    opt=BEGIN,
    operation_id="get_or_create_session",
    responses={201: ResponseSpec(SessionView, description="The session was created.")},
)
async def get_or_create(
    ctx: Context, session_id: SessionId, data: JSONBody[GetOrCreate | None] = None
) -> Response[SessionView]:
    """Return the session with this id, or create it if it does not exist. Responds with 201 if it
    was created."""
    data = data or GetOrCreate()
    check_id(session_id)
    check_metadata(*data.metadata)
    fresh = False
    variables.check(data.envs, ctx.service.settings.envs)
    sure = data.store is None  # a client that names the store does not need the other stores
    try:
        place, row = await ctx.find(session_id, sure=sure)
    except SessionNotFound:
        place, fresh = await begin(ctx, session_id, data, new=False)
        place, row = await ctx.find(session_id, sure=sure)
    if not fresh and data.envs:
        engine = (await ctx.engine_of(place, row)).engine
        session_uploads.give(engine, place, session_id, data.envs)
    view = await ctx.shown(place, row, created=fresh)
    return Response(view, status_code=201 if fresh else 200)


async def begin(
    ctx: RequestContext, id: str, data: GetOrCreate, *, new: bool, sure: bool = True
) -> tuple[TenantStore, bool]:
    """Create a session for the caller, or with `new=False` use an existing one. Returns its store,
    and whether it was created."""
    service, wish = ctx.service, data.store
    check_id(id)
    _, engine = service.engine(data.engine)
    session_uploads.check(service, data)
    user = ctx.acting_for(data.user)
    options = {} if wish is None else wish.options
    place = await service.places.place(
        ctx.caller.tenant, None if wish is None else wish.kind, options
    )
    agent, brought = await session_uploads.bring(service, place, id, data, new=new, again=ctx.again)
    created = ev.SessionCreated(
        agent=agent,
        user=user,
        title=data.title,
        workspace=data.workspace,
        labels=list(data.labels),
        metadata={**data.metadata, **session_uploads.told(brought)},
    )
    ids = [ctx.new_id("begin:"), ctx.new_id("state:")]
    sure = sure and wish is None
    try:
        async with service.places.creation(place, id, options, sure=sure, repeated=ctx.again):
            fresh = await engine.begin(place, id, created, ids)
    except HoldfastError:
        await service.uploads.forget(place, agent)
        raise
    if new and not fresh:
        raise SessionExists(tenant=place.tenant, session=id)
    if fresh:
        await session_uploads.settle(service, engine, place, id, agent, brought, data.envs)
    return place, fresh


def check_id(id: str) -> None:
    """Reject an id that cannot be a segment of a URL path."""
    check_name("id", id)
    if id in (".", "..") or any(c in "/\\" or c.isspace() or not c.isprintable() for c in id):
        raise InvalidValue(
            field="id",
            problem=f"{id[:100]!r} cannot be part of a URL path",
            remedy="use an id without slashes, spaces and control characters",
        )


@get("/sessions", opt=READ, operation_id="list_sessions")
async def find(
    ctx: Context,
    user: Text = None,
    agent: Text = None,
    workspace: Text = None,
    phase: FromQuery[Phase | None] = None,
    run: FromQuery[Stands | None] = None,
    label: Text = None,
    metadata: Metadata = None,
    surface: Text = None,
    address: Text = None,
    created_from: Time = None,
    created_until: Time = None,
    active_from: Time = None,
    active_until: Time = None,
    stale_until: Time = None,
    order: FromQuery[Literal["active", "created"]] = "active",
    newest_first: FromQuery[bool] = True,
    total: FromQuery[bool] = False,
    store: Text = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> RowPage:
    """Return the sessions of the caller that match all filters, the most recently active first.
    With the scope `sessions:all`, the sessions of all users. They are listed store by store, the
    default store first, or from `store` only. Unavailable stores are listed in `missing`."""
    caller, places = ctx.caller, ctx.service.places
    if user is not None or not caller.may("sessions:all"):
        user = ctx.acting_for(user)
    query = Query(
        tenant=caller.tenant,
        user=user,
        agent=agent,
        workspace=workspace,
        phases=() if phase is None else (phase,),
        run=run,
        label=label,
        surface=_surface(surface, address),
        metadata=_metadata(metadata or ()),
        created_from=created_from,
        created_until=created_until,
        active_from=active_from,
        active_until=active_until,
        stale_until=stale_until,
        order=order,
        newest_first=newest_first,
        total=total,
    )
    page = await pagination.page(
        places,
        query,
        lambda one, after, most: one.find(query, cursor=after, limit=most),
        store=store,
        cursor=cursor,
        limit=limit,
        sift=partial(pagination.here, places),
    )
    items = [places.naming.row(row) for row in page.items]
    return RowPage(items=items, cursor=page.cursor, total=page.total, missing=page.missing)


def _surface(surface: str | None, address: str | None) -> tuple[str, str] | None:
    if surface is None and address is None:
        return None
    if surface is None or address is None:
        missing = "surface" if surface is None else "address"
        raise InvalidValue(
            field=missing,
            problem="is missing",
            remedy="pass both surface and address, or neither",
        )
    return surface, address


def _metadata(conditions: Sequence[str]) -> dict[str, Any]:
    """Return the conditions `name=value`. A value is JSON if it can be read as JSON, else text."""
    found: dict[str, Any] = {}
    for condition in conditions:
        name, equals, value = condition.partition("=")
        if not name or not equals:
            raise InvalidValue(
                field="metadata",
                problem=f"{condition[:100]!r} is not name=value",
                remedy="pass the name, an equals sign, and the value as JSON or text",
            )
        try:
            found[name] = msgspec.json.decode(value)
        except msgspec.MsgspecError:
            found[name] = value
    return found


@get(SESSION, opt=READ, operation_id="get_session")
async def show(ctx: Context, session_id: SessionId, thread: Thread = "main") -> SessionView:
    """Return a session, or one of its threads."""
    place, row = await ctx.find(session_id, thread)
    return await ctx.shown(place, row)


@get(f"{SESSION}/status", opt=READ, operation_id="get_status")
async def status(ctx: Context, session_id: SessionId, thread: Thread = "main") -> Status:
    """Return the current status of a session."""
    async with ctx.reading(session_id, thread) as session:
        live = live_of(session)
        row = await live.store.row(live.key)
        if isinstance(session, UnservedSession):
            found = alone(session)
        else:
            await core_of(session).catch_up()
            found = session.status
    if row is None or row.sealed is None:
        return found
    return replace(found, phase=SEALED, run=None, queued=0, pending=0, tool=None)


def alone(session: UnservedSession) -> Status:
    """Return the status of a session that no agent of this server serves, derived only from its
    log."""
    state, row = session.live.state, session.row
    run = state.active
    return Status(
        session=row.session,
        thread=row.thread,
        agent=row.agent or "",
        phase=standing(state),
        mode=state.mode or "",
        model=(run.model if run is not None else None) or state.model,
        run=None if run is None else run.id,
        queued=len(state.queue),
        pending=len(state.pending),
        head=state.head,
        error=None if state.run is None else state.run.code,
    )


@patch(SESSION, opt=WRITE, operation_id="change_session")
async def change(ctx: Context, session_id: SessionId, data: JSONBody[ChangeSession]) -> SessionView:
    """Change the title of a session, and set or remove metadata."""
    check_metadata(*data.metadata)
    check_metadata(*data.drop, field="drop")
    place, row = await ctx.find(session_id)
    if data.title is not None:
        await ctx.engine_of(place, row)  # raises before anything is changed
    served = await ctx.served(place, row)
    choices = ctx.service.choices(served.engine if served else None, row.agent)
    if choices is not None:
        choices.check_metadata(data.metadata)
    if data.metadata or data.drop:
        await ctx.sessions(place).update_metadata(session_id, data.metadata, drop=data.drop)
    if data.title is not None:
        async with ctx.session(session_id) as session:
            await session.thread.rename(data.title)
    return await ctx.shown(*await ctx.find(session_id))


@delete(SESSION, status_code=200, opt=WRITE, operation_id="delete_session")
async def remove(ctx: Context, session_id: SessionId) -> Receipt:
    """Abort the runs of a session and delete it. The receipt lists the data that could not be
    deleted."""
    try:
        place, row = await ctx.find(session_id)
    except SessionNotFound:
        if ctx.again:  # an earlier attempt of this request has deleted it
            return Receipt()
        raise
    check_held(row)
    with ctx.service.removals.of(row.scope):
        receipt = await _removed(ctx, place, row)
    await ctx.service.places.forget(place, session_id)
    await ctx.service.uploads.forget(place, row.agent or "")
    await (await ctx.service.once()).forget(place.tenant, session_id, ctx.once)
    return remaining(place, receipt)


async def _removed(ctx: RequestContext, place: TenantStore, row: Row) -> Receipt:
    served = await ctx.served(place, row)
    if served is not None:
        return await served.engine.delete(place, served.agent, row.session)
    if (sandbox := ctx.service.settings.harness.get("sandbox")) is None:
        return await place.store.delete(row.scope)
    await mark_for_removal(sandbox, row.scope, place.store.info().location)
    receipt = await place.store.delete(row.scope)
    left = await clear_sandbox(sandbox, row.scope)
    return replace(receipt, remains=(*receipt.remains, *left))


HANDLERS: list[Any] = [create, get_or_create, find, show, status, change, remove]
