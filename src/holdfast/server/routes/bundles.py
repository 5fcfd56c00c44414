"""Bundles: a session in one file, given out and taken in."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from litestar import Request, Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromQuery, QueryParameter

from ...bundle import Mode, export_bundle, import_bundle, validate_bundle
from ...bundle.check import Checked, check_bundle
from ...errors import Forbidden, HoldfastError, LeaseHeld, SessionNotFound, UnknownAgent
from ...log.catalog import Row
from ...log.events import Scope
from ...wire.bundles import BundleShown, BundleTaken
from ..engines import Place
from ..http.context import Ask, Asking, SessionId
from ..http.errors import JSON
from ..http.file_response import given_out
from ..uploads.agent_adoption import serving
from .sessions import check_id, unsettle

SCOPE = {"scope": "bundles"}
TAKEN = {**SCOPE, "body": "raw"}
ZIP = "application/zip"
LETS_GO, SOON = 2.0, 0.02  # seconds: how long, and between two attempts
Form: TypeAlias = Literal["archive", "json"]
Text = Annotated[str | None, QueryParameter(min_length=1, max_length=400)]
Threads = Annotated[list[str] | None, QueryParameter(description="Only these; all by default.")]
Upto = Annotated[int | None, QueryParameter(ge=1, le=(1 << 53) - 1)]
FILE = ResponseSpec(bytes, media_type=ZIP, description="The bundle, as an archive or as JSON.")
BODY = "The body is the bundle itself, as an archive or as JSON."


@get(
    "/sessions/{session_id:str}/bundle",
    opt=SCOPE,
    operation_id="export_bundle",
    responses={200: FILE},
)
async def export(
    ask: Ask,
    session_id: SessionId,
    mode: FromQuery[Mode] = "sanitized",
    purpose: FromQuery[Literal["share", "copy"]] = "share",
    form: FromQuery[Form] = "archive",
    threads: Threads = None,
    upto: Upto = None,
) -> Response[Any]:
    """A session as a bundle. `sanitized` leaves secrets and names out, `local` takes all as it
    is; a `copy` may go on elsewhere."""
    return await _given(ask, session_id, form, mode, purpose=purpose, threads=threads, upto=upto)


@post(
    "/sessions/{session_id:str}/bundle/move",
    status_code=200,
    opt={**SCOPE, "once": "same"},
    operation_id="move_bundle",
    responses={200: FILE},
)
async def move(
    ask: Ask,
    session_id: SessionId,
    form: FromQuery[Form] = "archive",
    to: Text = None,
) -> Response[Any]:
    """A session as a bundle, with all as it is, to go on elsewhere: here it is sealed, as moved
    to `to`. 409 while somebody drives it. The same again gives the same bundle."""
    ask.caller.need("sessions:write")
    until = time.monotonic() + LETS_GO
    while True:
        try:
            more: Any = {"purpose": "move", "move_to": to, "actor": ask.actor}
            return await _given(ask, session_id, form, "local", **more)
        except LeaseHeld:
            _, row = await ask.find(session_id)
            if row.run == "running" or time.monotonic() > until:
                raise
        await asyncio.sleep(SOON)  # whoever has just brought a run to its end lets go of it


async def _given(
    ask: Asking, session_id: str, form: Form, mode: Mode, **more: Any
) -> Response[Any]:
    place, row = await ask.find(session_id)
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="holdfast-bundle-"))
    try:
        made = await export_bundle(
            (place.store, row.scope),
            mode,
            to=folder / ("bundle.json" if form == "json" else "bundle.zip"),
            **more,
        )
    except BaseException:
        await asyncio.to_thread(shutil.rmtree, folder)
        raise
    headers = {"x-bundle-id": made.bundle_id, "content-length": str(made.size)}
    kind = JSON if form == "json" else ZIP
    return given_out(Path(made.path), kind, headers, ask.patience)


@post("/bundles", opt=TAKEN, operation_id="import_bundle", description=BODY)
async def take(
    ask: Ask,
    request: Request[Any, Any, Any],
    session: Text = None,
    purpose: FromQuery[Literal["continue", "read"]] = "continue",
    accept_redacted: FromQuery[bool] = False,
    store: Text = None,
) -> BundleTaken:
    """Make a session of a bundle, under its own id or another. The same bundle again is the same
    session. Somebody else's needs the scope `sessions:all`. To go on with one needs the scope
    `pending:decide`, and where two persons decide `admin`: what it says was allowed is.
    `warnings` say where no agent here serves it, so that it can be read and removed only."""
    if purpose == "continue":
        ask.caller.need("admin" if ask.service.settings.two_person else "pending:decide")
    if session is not None:
        check_id(session)
    data = await request.body()
    caller, all = ask.caller, ask.caller.may("sessions:all")
    checked = await check_bundle(data, allow_secrets=True)
    facts = checked.bundle.document.session
    _check_owner(ask, facts.user)
    if purpose == "continue":
        await _check_choices(ask, checked)
    id = session if session is not None else facts.session
    check_id(id)
    place = await ask.service.places.place(caller.tenant, store)
    async with ask.service.places.beginning(place.tenant, id):
        await ask.service.places.settle(place, id, {}, sure=store is None)
        try:
            done = await import_bundle(
                place.store,
                data,
                session=id,
                tenant=caller.tenant,
                purpose=purpose,
                accept_redacted=accept_redacted,
                allow_secrets=True,
                names=all,
            )
        except HoldfastError:
            await unsettle(place, ask, id)
            raise
    try:
        place, row = await ask.find(done.session, sure=False)
    except SessionNotFound:  # its log says that it is another's than its document does
        if done.fresh:
            await place.store.delete(Scope(caller.tenant, done.session))
            await unsettle(place, ask, id)
        raise _not_yours() from None
    ask.note(session=done.session)
    told = {name: getattr(done, name) for name in done.__struct_fields__}
    return BundleTaken(**told, warnings=await _unserved(ask, place, row))


async def _check_choices(ask: Asking, checked: Checked) -> None:
    """Refuse a session that would go on with models or limits that clients may not choose. One
    that no agent here serves does not go on."""
    agent = checked.bundle.document.session.agent
    with suppress(UnknownAgent):
        _, engine, key = serving(ask.service.engines, agent)
        if (choices := ask.service.choices(engine, key)) is not None:
            await asyncio.to_thread(choices.check_bundle, checked.bundle, checked.states)


async def _unserved(ask: Asking, place: Place, row: Row) -> list[str]:
    """That no agent here serves a session, if it is so."""
    try:
        await ask.engine_of(place, row)
    except UnknownAgent as error:
        known = ", ".join(error.available)
        lacks = f"no agent here serves {error.agent!r}: it can be read and removed, and goes on"
        return [f"{lacks} where that agent is served (here are: {known})"]
    return []


def _check_owner(ask: Asking, user: str | None) -> None:
    if user != ask.caller.principal and not ask.caller.may("sessions:all"):
        raise _not_yours()


def _not_yours() -> Forbidden:
    return Forbidden(
        problem="a bundle of another user's session needs the scope sessions:all",
        scope="sessions:all",
    )


@post(
    "/bundles/validate",
    status_code=200,
    opt=TAKEN,
    operation_id="validate_bundle",
    description=BODY,
)
async def validate(
    request: Request[Any, Any, Any], allow_secrets: FromQuery[bool] = False
) -> BundleShown:
    """Whether a bundle is whole, and what it says of itself; 400 with every fault if not."""
    bundle = await validate_bundle(await request.body(), allow_secrets=allow_secrets)
    about = bundle.document
    return BundleShown(
        bundle_id=about.bundle_id,
        created_at=about.created_at,
        mode=about.mode,
        purpose=about.purpose,
        liveness=about.liveness,
        session=about.session.session,
        agent=about.session.agent,
        user=about.session.user,
        threads=[thread.thread for thread in about.threads],
    )


HANDLERS: list[Any] = [export, move, take, validate]
