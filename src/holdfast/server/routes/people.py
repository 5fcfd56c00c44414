"""Routes that export and erase the data of one user in all stores."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import ExitStack, aclosing, suppress
from typing import Annotated, Any

import msgspec
from litestar import Response, delete, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import PathParameter, QueryParameter
from litestar.response import Stream
from msgspec.structs import replace

from ...errors import Forbidden, HoldfastError
from ...log.catalog import Row
from ...log.codec import check_name
from ...log.events import Key
from ...sessions import PersonErased, Sessions
from ...values.records import Remains
from ...wire import ErasedIn, ErasedPerson
from ..engines import TenantStore
from ..http.context import Context, RequestContext
from ..placement.locator import StoreChoice, StoreOutcome
from ..placement.store_names import StoreNames, remains
from .parameters import READ

LINES = "application/x-ndjson"
BASE = "/people"
NAMED = BASE + "/{user:str}"
User = Annotated[str, PathParameter(min_length=1, max_length=512)]
AnyUser = Annotated[
    str,
    QueryParameter(
        min_length=1, max_length=512, description="The user, whose name may contain a slash."
    ),
]
Reason = Annotated[str, QueryParameter(min_length=1, max_length=400)]
Shared = Annotated[
    bool, QueryParameter(description="Include the user's events in the sessions of other users.")
]
Store = Annotated[
    str | None,
    QueryParameter(
        min_length=1, max_length=400, description="Only in this store; by default in all stores."
    ),
]
DryRun = Annotated[
    bool, QueryParameter(description="Report what would be erased, without erasing it.")
]
RECORDS = ResponseSpec(str, media_type=LINES, description="One line of JSON for each record")


@get(
    NAMED,
    opt=READ,
    operation_id="export_person",
    responses={200: RECORDS},
    media_type=LINES,
)
async def export(
    ctx: Context, user: User, shared: Shared = False, store: Store = None
) -> Response[Any]:
    """Export all data of the caller, one line of JSON for each record. With the scope
    `sessions:all`, any user can be exported. Fails if a store is unavailable."""
    return await _export(ctx, user, shared, store)


@get(
    BASE,
    opt=READ,
    operation_id="export_any_person",
    responses={200: RECORDS},
    media_type=LINES,
)
async def export_any(
    ctx: Context, user: AnyUser, shared: Shared = False, store: Store = None
) -> Response[Any]:
    """Export all data of a user whose name is passed in the query, since it may contain a slash."""
    ctx.note(user=user)
    return await _export(ctx, user, shared, store)


async def _export(ctx: RequestContext, user: str, shared: bool, store: str | None) -> Response[Any]:
    check_name("user", user)
    if shared and not ctx.caller.may("sessions:all"):
        raise Forbidden(problem="shared=true needs the scope sessions:all", scope="sessions:all")
    ctx.acting_for(user)
    places = [one.place for one in await _wanted(ctx, store)]
    naming = ctx.service.places.naming
    return Stream(lines(places, user, shared, naming), media_type=LINES)


async def _wanted(ctx: RequestContext, store: str | None) -> list[StoreOutcome]:
    """Return the store with this name, or all stores."""
    places, tenant = ctx.service.places, ctx.caller.tenant
    if store is None:
        return await places.everywhere(tenant)
    return [StoreOutcome(StoreChoice(store), await places.place(tenant, store))]


async def lines(
    places: Sequence[TenantStore], user: str, shared: bool, naming: StoreNames
) -> AsyncGenerator[bytes, None]:
    """Yield the data of a user as lines of JSON, store by store."""
    for place in places:
        sessions = Sessions(place.store, tenant=place.tenant)
        async with aclosing(sessions.export_person(user, shared=shared)) as found:
            async for record in found:
                row = None if record.row is None else naming.whole(record.row)
                event = None if record.event is None else naming.event(record.event)
                yield msgspec.json.encode(replace(record, row=row, event=event)) + b"\n"


@delete(NAMED, status_code=200, opt={"scope": "people:erase"}, operation_id="erase_person")
async def erase(
    ctx: Context,
    user: User,
    reason: Reason,
    shared: Shared = True,
    dry_run: DryRun = False,
    store: Store = None,
) -> ErasedPerson:
    """Delete the sessions of a user, and erase their events in all other sessions. Sessions under
    legal hold and unavailable stores are reported; everything else is erased."""
    return await _erase(ctx, user, reason, shared, dry_run, store)


@delete(BASE, status_code=200, opt={"scope": "people:erase"}, operation_id="erase_any_person")
async def erase_any(
    ctx: Context,
    user: AnyUser,
    reason: Reason,
    shared: Shared = True,
    dry_run: DryRun = False,
    store: Store = None,
) -> ErasedPerson:
    """Erase all data of a user whose name is passed in the query, since it may contain a slash."""
    ctx.note(user=user)
    return await _erase(ctx, user, reason, shared, dry_run, store)


async def _erase(
    ctx: RequestContext, user: str, reason: str, shared: bool, dry_run: bool, store: str | None
) -> ErasedPerson:
    check_name("user", user)
    check_name("reason", reason)
    done: list[ErasedIn] = []
    failures: list[HoldfastError] = []
    for one in await _wanted(ctx, store):
        about: dict[str, Any] = {"store": one.kept.kind, "options": one.kept.options}
        try:
            found = await _erase_in(ctx, one.place, user, reason, shared, dry_run)
            left = [*remains(one.place, found.remains)]
            done.append(ErasedIn(**about, **{**_fields(found), "remains": left}))
        except HoldfastError as error:
            failures.append(error)
            done.append(ErasedIn(**about, failed=error.code, remains=[_unreached(one.kept)]))
    if len(failures) == len(done):
        raise failures[0]
    if not dry_run:
        await (await ctx.service.once()).forget_person(ctx.caller.tenant, user, ctx.once)
    return _together(done, dry_run)


def _fields(found: PersonErased) -> dict[str, Any]:
    return {name: getattr(found, name) for name in found.__struct_fields__ if name != "dry_run"}


def _unreached(kept: StoreChoice) -> Remains:
    what = "data of this user may remain, because the store failed during the erasure"
    return Remains(
        where=str(kept), what=what, remedy="repeat the erasure when the store is available again"
    )


def _together(done: Sequence[ErasedIn], dry_run: bool) -> ErasedPerson:
    """Add up the results of all stores. A session that several stores contain is listed once."""
    events: Counter[str] = Counter()
    removed: Counter[str] = Counter()
    for one in done:
        events.update(one.events)
        removed.update(one.removed)
    return ErasedPerson(
        dry_run=dry_run,
        sessions=[*dict.fromkeys(session for one in done for session in one.sessions)],
        events=dict(events),
        refused={session: why for one in done for session, why in one.refused.items()},
        removed=dict(removed),
        remains=[*dict.fromkeys(left for one in done for left in one.remains)],
        stores=[*done],
    )


async def _erase_in(
    ctx: RequestContext, place: TenantStore, user: str, reason: str, shared: bool, dry_run: bool
) -> PersonErased:
    """Erase a user's data in one store, and the server's own records of the deleted sessions, even
    if an error of the store interrupts the erasure."""
    sessions = ctx.sessions(place)
    if dry_run:
        return await sessions.erase_person(user, reason=reason, shared=shared, dry_run=True)
    with ExitStack() as going:
        agents, left = await _stop(ctx, place, sessions, user, going)
        try:
            done = await sessions.erase_person(user, reason=reason, shared=shared)
        except HoldfastError:
            with suppress(HoldfastError):
                keys = [Key(place.tenant, session, "main") for session in agents]
                gone = [key.session for key in keys if await place.store.row(key) is None]
                await _forget(ctx, place, gone)
            raise
    await _forget(ctx, place, done.sessions, done.events)
    for agent in sorted({*agents.values()}):
        await ctx.service.uploads.forget(place, agent)
    return replace(done, remains=[*done.remains, *left])


async def _forget(
    ctx: RequestContext, place: TenantStore, gone: Iterable[str], blanked: Iterable[str] = ()
) -> None:
    """Delete the server's records of deleted sessions, and the stored responses about these
    sessions and about sessions with erased events."""
    answers = await ctx.service.once()
    gone = [*gone]
    for session in gone:
        await ctx.service.places.forget(place, session)
    for session in (*gone, *blanked):
        await answers.forget(place.tenant, session, ctx.once)


async def _stop(
    ctx: RequestContext, place: TenantStore, sessions: Sessions, user: str, going: ExitStack
) -> tuple[dict[str, str], list[Remains]]:
    """Abort the runs of the user's sessions, on any replica, and delete the data of these sessions
    that is not in the store. Returns the agent of each session, and the data that could not be
    deleted."""
    agents: dict[str, str] = {}
    left: list[Remains] = []
    async for row in sessions.walk(user=user):
        if row.hold is not None:
            continue
        if row.run in ("running", "waiting"):
            await _abort(ctx, place, row)
        going.enter_context(ctx.service.removals.of(row.scope))
        left += await ctx.service.uploads.clear(place, row)
        agents[row.session] = row.agent or ""
    return agents, left


async def _abort(ctx: RequestContext, place: TenantStore, row: Row) -> None:
    """Abort the run of a session in this store. A session that no agent serves has no run."""
    await ctx.service.uploads.adopt(place, row)
    if (served := await ctx.served(place, row)) is not None:
        async with served.engine.open(place, served.agent, row.session) as session:
            await session.abort("erased", actor=ctx.actor)


HANDLERS: list[Any] = [export, export_any, erase, erase_any]
