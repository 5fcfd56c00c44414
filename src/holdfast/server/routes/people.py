"""All that is stored of one person, in every store that their sessions can be in: given out, or
erased."""

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

from ...errors import Forbidden, HoldfastError, UnknownAgent
from ...log.catalog import Row
from ...log.codec import check_name
from ...log.events import Key
from ...sessions import PersonErased, Sessions
from ...values.records import Remains
from ...wire import ErasedIn, ErasedPerson
from ..engines import Place
from ..http.context import Ask, Asking
from ..placement.locator import Kept, Reached
from ..placement.store_names import Naming, remains

LINES = "application/x-ndjson"
BASE = "/people"
NAMED = BASE + "/{user:str}"
User = Annotated[str, PathParameter(min_length=1, max_length=512)]
AnyUser = Annotated[
    str, QueryParameter(min_length=1, max_length=512, description="Any name, also with a slash.")
]
Reason = Annotated[str, QueryParameter(min_length=1, max_length=400)]
Shared = Annotated[bool, QueryParameter(description="Also their events in the sessions of others.")]
Store = Annotated[
    str | None,
    QueryParameter(min_length=1, max_length=400, description="Only in this one; else in all."),
]
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
    scope `sessions:all` anybody's. A store that cannot be reached fails it as a whole."""
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
    places = [one.place for one in await _wanted(ask, store)]
    naming = ask.service.places.naming
    return Stream(lines(places, user, shared, naming), media_type=LINES)


async def _wanted(ask: Asking, store: str | None) -> list[Reached]:
    """The store that is asked for, which must be there, or all that there are."""
    places, tenant = ask.service.places, ask.caller.tenant
    if store is None:
        return await places.everywhere(tenant)
    return [Reached(Kept(store), await places.place(tenant, store))]


async def lines(
    places: Sequence[Place], user: str, shared: bool, naming: Naming
) -> AsyncGenerator[bytes, None]:
    """What is stored of a person, store by store, as lines."""
    for place in places:
        sessions = Sessions(place.store, tenant=place.tenant)
        async with aclosing(sessions.export_person(user, shared=shared)) as found:
            async for record in found:
                row = None if record.row is None else naming.whole(record.row)
                event = None if record.event is None else naming.event(record.event)
                yield msgspec.json.encode(replace(record, row=row, event=event)) + b"\n"


@delete(NAMED, status_code=200, opt={"scope": "people:erase"}, operation_id="erase_person")
async def erase(
    ask: Ask,
    user: User,
    reason: Reason,
    shared: Shared = True,
    dry_run: DryRun = False,
    store: Store = None,
) -> ErasedPerson:
    """Delete a person's sessions, and erase their events in all others. What is held is refused
    and told, and so is a store that cannot be reached; the rest goes on."""
    return await _erase(ask, user, reason, shared, dry_run, store)


@delete(BASE, status_code=200, opt={"scope": "people:erase"}, operation_id="erase_any_person")
async def erase_any(
    ask: Ask,
    user: AnyUser,
    reason: Reason,
    shared: Shared = True,
    dry_run: DryRun = False,
    store: Store = None,
) -> ErasedPerson:
    """The same, of a person whose name cannot stand in a path."""
    ask.note(user=user)
    return await _erase(ask, user, reason, shared, dry_run, store)


async def _erase(
    ask: Asking, user: str, reason: str, shared: bool, dry_run: bool, store: str | None
) -> ErasedPerson:
    check_name("user", user)
    check_name("reason", reason)
    done: list[ErasedIn] = []
    failures: list[HoldfastError] = []
    for one in await _wanted(ask, store):
        about: dict[str, Any] = {"store": one.kept.kind, "options": one.kept.options}
        try:
            found = await _erase_in(ask, one.place, user, reason, shared, dry_run)
            left = [*remains(one.place, found.remains)]
            done.append(ErasedIn(**about, **{**_fields(found), "remains": left}))
        except HoldfastError as error:
            failures.append(error)
            done.append(ErasedIn(**about, failed=error.code, remains=[_unreached(one.kept)]))
    if len(failures) == len(done):
        raise failures[0]
    if not dry_run:
        await (await ask.service.once()).forget_person(ask.caller.tenant, user, ask.once)
    return _together(done, dry_run)


def _fields(found: PersonErased) -> dict[str, Any]:
    return {name: getattr(found, name) for name in found.__struct_fields__ if name != "dry_run"}


def _unreached(kept: Kept) -> Remains:
    what = "what it has of this person: it failed, and may have lost some of it or nothing"
    return Remains(where=str(kept), what=what, remedy="erase again once it can be reached")


def _together(done: Sequence[ErasedIn], dry_run: bool) -> ErasedPerson:
    """What was erased in all stores. An id that is in several counts once, its events together."""
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
    ask: Asking, place: Place, user: str, reason: str, shared: bool, dry_run: bool
) -> PersonErased:
    """Erase a person in one store, and what the server keeps beside of what is gone there, also
    where the store fails halfway."""
    sessions = Sessions(place.store, tenant=place.tenant, actor=ask.actor)
    if dry_run:
        return await sessions.erase_person(user, reason=reason, shared=shared, dry_run=True)
    with ExitStack() as going:
        agents, left = await _stop(ask, place, sessions, user, going)
        try:
            done = await sessions.erase_person(user, reason=reason, shared=shared)
        except HoldfastError:
            with suppress(HoldfastError):
                keys = [Key(place.tenant, session, "main") for session in agents]
                gone = [key.session for key in keys if await place.store.row(key) is None]
                await _forget(ask, place, gone)
            raise
    await _forget(ask, place, done.sessions, done.events)
    for agent in sorted({*agents.values()}):
        await ask.service.adopting.forget(place, agent)
    return replace(done, remains=[*done.remains, *left])


async def _forget(
    ask: Asking, place: Place, gone: Iterable[str], blanked: Iterable[str] = ()
) -> None:
    """Forget where sessions were that are gone, and what was answered about them or about those
    that lost events."""
    answers = await ask.service.once()
    for session in gone:
        await ask.service.places.forget(place, session)
        await answers.forget(place.tenant, session, ask.once)
    for session in blanked:
        await answers.forget(place.tenant, session, ask.once)


async def _stop(
    ask: Asking, place: Place, sessions: Sessions, user: str, going: ExitStack
) -> tuple[dict[str, str], list[Remains]]:
    """End the runs of the person's sessions, wherever they are driven, and remove what these
    have outside of the store; these sessions, the agents that served them, and what remains."""
    agents: dict[str, str] = {}
    left: list[Remains] = []
    async for row in sessions.walk(user=user):
        if row.hold is not None:
            continue
        if row.run in ("running", "waiting"):
            await _abort(ask, place, row)
        going.enter_context(ask.service.removals.of(row.scope))
        left += await ask.service.adopting.clear(place, row)
        agents[row.session] = row.agent or ""
    return agents, left


async def _abort(ask: Asking, place: Place, row: Row) -> None:
    """End a run in a session of this store, whether the server would find it by its id or not.
    What no agent here serves is not driven here."""
    await ask.service.adopting.adopt(place, row)
    with suppress(UnknownAgent):
        _, engine, agent = await ask.engine_of(place, row)
        async with engine.open(place, agent, row.session) as session:
            await session.abort("erased", actor=ask.actor)


HANDLERS: list[Any] = [export, export_any, erase, erase_any]
