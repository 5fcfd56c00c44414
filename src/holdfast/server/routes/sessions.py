"""Sessions: begin, find, look at, change, delete."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

from litestar import Response, delete, get, patch, post, put
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromQuery, JSONBody, QueryParameter
from msgspec.structs import replace

from ...errors import HoldfastError, InvalidValue, SessionExists, SessionNotFound
from ...harness.sandbox.removal import cleared, condemn
from ...harness.session.session import core_of
from ...log import events as ev
from ...log.catalog import Phase, Query, Row
from ...log.codec import check_name
from ...log.events import Key
from ...sessions import Sessions
from ...sessions.changes import check_held
from ...values.display import phase as standing
from ...values.records import Receipt
from ...values.status import Status
from ...wire import ChangeSession, CreateSession, GetOrCreate, RowPage, SessionView
from ..engines import Place
from ..http.context import Ask, Asking, SessionId, Thread, check_metadata
from ..placement import pagination
from ..placement.store_names import remaining
from ..streams.session_stream import Alone, live_of
from ..uploads import session_uploads, variables

Stands: TypeAlias = Literal["running", "waiting", "done", "failed", "aborted", "interrupted"]
SEALED = "sealed"  # the phase of what was moved elsewhere, or is only to be read
BEGIN = {"scope": "sessions:write", "replayed": session_uploads.give_again}
Limit = Annotated[int, QueryParameter(ge=1, le=100)]
Text = Annotated[str | None, QueryParameter(min_length=1, max_length=400)]
Cursor = Annotated[str | None, QueryParameter(min_length=1, max_length=pagination.LONGEST)]


@post("/sessions", opt=BEGIN, operation_id="create_session")
async def create(ask: Ask, data: JSONBody[CreateSession | None] = None) -> SessionView:
    """Begin a session. 409 where there is one with this id."""
    data = data or CreateSession()
    check_metadata(*data.metadata)
    id = data.id if data.id is not None else ask.new_id()
    place, _ = await _begin(ask, id, data, new=True, sure=data.id is not None)
    row = await _row(place, id)
    ask.note(session=id)
    return ask.view(place, row, created=True)


@put(
    "/sessions/{session_id:str}",
    opt=BEGIN,
    operation_id="get_or_create_session",
    responses={201: ResponseSpec(SessionView, description="It was begun now.")},
)
async def get_or_create(
    ask: Ask, session_id: SessionId, data: JSONBody[GetOrCreate | None] = None
) -> Response[SessionView]:
    """The session with this id, begun if it is not there: 201 if it was begun now."""
    data = data or GetOrCreate()
    check_id(session_id)
    check_metadata(*data.metadata)
    fresh = False
    variables.check(data.envs, ask.service.settings.envs)
    sure = data.store is None  # whoever names the store of a new session need not ask the others
    try:
        place, row = await ask.find(session_id, sure=sure)
    except SessionNotFound:
        place, fresh = await _begin(ask, session_id, data, new=False)
        place, row = await ask.find(session_id, sure=sure)
    if not fresh and data.envs:
        _, engine, _ = await ask.engine_of(place, row)
        session_uploads.give(engine, place, session_id, data.envs)
    view = await ask.shown(place, row, created=fresh)
    return Response(view, status_code=201 if fresh else 200)


async def _begin(
    ask: Asking, id: str, data: GetOrCreate, *, new: bool, sure: bool = True
) -> tuple[Place, bool]:
    service, wish = ask.service, data.store
    check_id(id)
    _, engine = service.engine(data.engine)
    session_uploads.check(service, data)
    user = ask.acting_for(data.user)
    options = {} if wish is None else wish.options
    place = await service.places.place(
        ask.caller.tenant, None if wish is None else wish.kind, options
    )
    agent, brought = await session_uploads.bring(service, place, id, data, new=new, again=ask.again)
    created = ev.SessionCreated(
        agent=agent,
        user=user,
        title=data.title,
        workspace=data.workspace,
        labels=list(data.labels),
        metadata={**data.metadata, **session_uploads.told(brought)},
    )
    ids = [ask.new_id("begin:"), ask.new_id("state:")]
    async with service.places.beginning(place.tenant, id):
        if not ask.again or await place.store.row(Key(place.tenant, id, "main")) is None:
            await service.places.settle(place, id, options, sure=sure and wish is None)
        try:
            fresh = await engine.begin(place, id, created, ids)
        except HoldfastError:
            if new:
                await unsettle(place, ask, id)
            await service.adopting.forget(place, agent)
            raise
    if new and not fresh:
        raise SessionExists(tenant=place.tenant, session=id)
    if fresh:
        await session_uploads.settle(service, engine, place, id, agent, brought, data.envs)
    return place, fresh


async def unsettle(place: Place, ask: Asking, id: str) -> None:
    """Forget where a session was going to be that was not begun."""
    if await place.store.row(Key(place.tenant, id, "main")) is None:
        await ask.service.places.forget(place, id)


async def _row(place: Place, id: str) -> Row:
    row = await place.store.row(Key(place.tenant, id, "main"))
    if row is None:
        raise SessionNotFound(tenant=place.tenant, session=id)
    return row


def check_id(id: str) -> None:
    """Refuse an id that cannot stand in a path."""
    check_name("id", id)
    if id in (".", "..") or any(c in "/\\" or c.isspace() or not c.isprintable() for c in id):
        raise InvalidValue(
            field="id",
            problem="cannot stand in a path",
            remedy="use letters, digits and signs, but no slash, blank or control character",
        )


@get("/sessions", opt={"scope": "sessions:read"}, operation_id="list_sessions")
async def find(
    ask: Ask,
    user: Text = None,
    agent: Text = None,
    workspace: Text = None,
    phase: FromQuery[Phase | None] = None,
    run: FromQuery[Stands | None] = None,
    label: Text = None,
    order: FromQuery[Literal["active", "created"]] = "active",
    newest_first: FromQuery[bool] = True,
    total: FromQuery[bool] = False,
    store: Text = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> RowPage:
    """Sessions that answer all of these, the most recently active first; one's own, or with the
    scope `sessions:all` those of all users. They come store by store, the default first, or from
    `store` alone. A store that cannot be asked is named in `missing`."""
    caller, places = ask.caller, ask.service.places
    if user is not None or not caller.may("sessions:all"):
        user = ask.acting_for(user)
    query = Query(
        tenant=caller.tenant,
        user=user,
        agent=agent,
        workspace=workspace,
        phases=() if phase is None else (phase,),
        run=run,
        label=label,
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


@get("/sessions/{session_id:str}", opt={"scope": "sessions:read"}, operation_id="get_session")
async def show(ask: Ask, session_id: SessionId, thread: Thread = "main") -> SessionView:
    """A session, or a thread of it, as lists show it."""
    place, row = await ask.find(session_id, thread)
    return await ask.shown(place, row)


@get(
    "/sessions/{session_id:str}/status",
    opt={"scope": "sessions:read"},
    operation_id="get_status",
)
async def status(ask: Ask, session_id: SessionId, thread: Thread = "main") -> Status:
    """Where a session stands now, at a glance."""
    async with ask.reading(session_id, thread) as session:
        live = live_of(session)
        row = await live.store.row(live.key)
        if isinstance(session, Alone):
            found = alone(session)
        else:
            await core_of(session).catch_up()
            found = session.status
    if row is None or row.sealed is None:
        return found
    return replace(found, phase=SEALED, run=None, queued=0, pending=0, tool=None)


def alone(session: Alone) -> Status:
    """Where a session stands as its log tells, without the agent that would know more."""
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


@patch("/sessions/{session_id:str}", opt={"scope": "sessions:write"}, operation_id="change_session")
async def change(ask: Ask, session_id: SessionId, data: JSONBody[ChangeSession]) -> SessionView:
    """Give a session another title, and set or drop metadata."""
    check_metadata(*data.metadata)
    check_metadata(*data.drop, field="drop")
    place, row = await ask.find(session_id)
    if data.title is not None:
        await ask.engine_of(place, row)  # before anything is changed
    served = await ask.served(place, row)
    choices = ask.service.choices(served[1] if served else None, row.agent)
    if choices is not None:
        choices.check_metadata(data.metadata)
    sessions = Sessions(place.store, tenant=place.tenant, actor=ask.actor)
    if data.metadata or data.drop:
        await sessions.update_metadata(session_id, data.metadata, drop=data.drop)
    if data.title is not None:
        async with ask.session(session_id) as session:
            await session.thread.rename(data.title)
    return await ask.shown(*await ask.find(session_id))


@delete(
    "/sessions/{session_id:str}",
    status_code=200,
    opt={"scope": "sessions:write"},
    operation_id="delete_session",
)
async def remove(ask: Ask, session_id: SessionId) -> Receipt:
    """Stop what is going on in a session and remove all of it; what is left where is told."""
    try:
        place, row = await ask.find(session_id)
    except SessionNotFound:
        if ask.again:  # it was removed, and nobody was there to say so
            return Receipt()
        raise
    check_held(row)
    with ask.service.removals.of(row.scope):
        receipt = await _removed(ask, place, row)
    await ask.service.places.forget(place, session_id)
    await ask.service.adopting.forget(place, row.agent or "")
    await (await ask.service.once()).forget(place.tenant, session_id, ask.once)
    return remaining(place, receipt)


async def _removed(ask: Asking, place: Place, row: Row) -> Receipt:
    served = await ask.served(place, row)
    if served is not None:
        _, engine, agent = served
        return await engine.delete(place, agent, row.session)
    if (sandbox := ask.service.settings.harness.get("sandbox")) is None:
        return await place.store.delete(row.scope)
    await condemn(sandbox, row.scope, place.store.info().location)
    receipt = await place.store.delete(row.scope)
    left = await cleared(sandbox, row.scope)
    return replace(receipt, remains=(*receipt.remains, *left))


HANDLERS: list[Any] = [create, get_or_create, find, show, status, change, remove]
