"""Routes that export, move, import and validate sessions as bundles."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Annotated, Any, Literal, TypeAlias

from litestar import Request, Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromQuery, QueryParameter

from ...bundle import Mode, export_bundle, import_bundle, validate_bundle
from ...bundle.check import Checked, check_bundle
from ...errors import Forbidden, LeaseHeld, SessionNotFound, UnknownAgent
from ...log.catalog import Row
from ...log.events import Scope
from ...wire.bundles import BundleShown, BundleTaken
from ..engines import TenantStore, serving
from ..http.context import Context, RequestContext
from ..http.errors import JSON
from ..http.file_response import made_file
from .parameters import LAST, SESSION, SessionId, Text
from .sessions import check_id

SCOPE = {"scope": "bundles"}
TAKEN = {**SCOPE, "body": "raw"}
ZIP = "application/zip"
LETS_GO, SOON = 2.0, 0.02  # seconds to wait for a released lease, and between two attempts
Form: TypeAlias = Literal["archive", "json"]
Threads = Annotated[
    list[str] | None, QueryParameter(description="Export only these threads; by default all.")
]
Upto = Annotated[int | None, QueryParameter(ge=1, le=LAST)]
FILE = ResponseSpec(bytes, media_type=ZIP, description="The bundle, as an archive or as JSON.")
BODY = "The body is the bundle itself, as an archive or as JSON."


@get(
    f"{SESSION}/bundle",
    opt=SCOPE,
    operation_id="export_bundle",
    responses={200: FILE},
)
async def export(
    ctx: Context,
    session_id: SessionId,
    mode: FromQuery[Mode] = "sanitized",
    purpose: FromQuery[Literal["share", "copy"]] = "share",
    form: FromQuery[Form] = "archive",
    threads: Threads = None,
    upto: Upto = None,
) -> Response[Any]:
    """Export a session as a bundle. With `sanitized`, secrets and names are removed; with `local`,
    everything is kept; a `copy` can be continued on another server."""
    return await _given(ctx, session_id, form, mode, purpose=purpose, threads=threads, upto=upto)


@post(
    f"{SESSION}/bundle/move",
    status_code=200,
    opt={**SCOPE, "once": "same"},
    operation_id="move_bundle",
    responses={200: FILE},
)
async def move(
    ctx: Context,
    session_id: SessionId,
    form: FromQuery[Form] = "archive",
    to: Text = None,
) -> Response[Any]:
    """Export a session as a complete bundle, to continue it on another server. On this server the
    session is sealed and marked as moved to `to`. Responds with 409 while a run is active. A
    repeated request returns the same bundle."""
    ctx.caller.need("sessions:write")
    until = time.monotonic() + LETS_GO
    while True:
        try:
            more: Any = {"purpose": "move", "move_to": to, "actor": ctx.actor}
            return await _given(ctx, session_id, form, "local", **more)
        except LeaseHeld:
            _, row = await ctx.find(session_id)
            if row.run == "running" or time.monotonic() > until:
                raise
        await asyncio.sleep(SOON)  # the driver of a run that has just ended releases its lease


async def _given(
    ctx: RequestContext, session_id: str, form: Form, mode: Mode, **more: Any
) -> Response[Any]:
    place, row = await ctx.find(session_id)
    name, kind = ("bundle.json", JSON) if form == "json" else ("bundle.zip", ZIP)
    async with made_file(name, kind, ctx.patience) as file:
        made = await export_bundle((place.store, row.scope), mode, to=file.path, **more)
    return file.response({"x-bundle-id": made.bundle_id, "content-length": str(made.size)})


@post("/bundles", opt=TAKEN, operation_id="import_bundle", description=BODY)
async def take(
    ctx: Context,
    request: Request[Any, Any, Any],
    session: Text = None,
    purpose: FromQuery[Literal["continue", "read"]] = "continue",
    accept_redacted: FromQuery[bool] = False,
    store: Text = None,
) -> BundleTaken:
    """Import a bundle as a session, under its own id or another. Importing it again returns the
    same session. A bundle of another user requires the scope `sessions:all`. To continue a session,
    its permissions must be trusted: this requires the scope `pending:decide`, or `admin` if the
    server requires two-person approval. `warnings` says if no agent of this server serves the
    session, which can then only be read and deleted."""
    caller, places = ctx.caller, ctx.service.places
    if purpose == "continue":
        caller.need("admin" if ctx.service.settings.two_person else "pending:decide")
    if session is not None:
        check_id(session)
    data = await request.body()
    id = await _check(ctx, data, session, continues=purpose == "continue")
    place = await places.place(caller.tenant, store)
    async with places.creation(place, id, sure=store is None):
        done = await import_bundle(
            place.store,
            data,
            session=id,
            tenant=caller.tenant,
            purpose=purpose,
            accept_redacted=accept_redacted,
            allow_secrets=True,
            names=caller.may("sessions:all"),
        )
    try:
        place, row = await ctx.find(done.session, sure=False)
    except SessionNotFound:  # the log and the document name different users
        if done.fresh:
            await place.store.delete(Scope(caller.tenant, done.session))
            await places.forget(place, id)
        raise _not_yours() from None
    ctx.note(session=done.session)
    told = {name: getattr(done, name) for name in done.__struct_fields__}
    return BundleTaken(**told, warnings=await _unserved(ctx, place, row))


async def _check(ctx: RequestContext, data: bytes, session: str | None, *, continues: bool) -> str:
    """Reject a bundle that the caller may not import. Returns the id of its session."""
    checked = await check_bundle(data, allow_secrets=True)
    facts = checked.bundle.document.session
    if facts.user != ctx.caller.principal and not ctx.caller.may("sessions:all"):
        raise _not_yours()
    if continues:
        await _check_choices(ctx, checked)
    id = session if session is not None else facts.session
    check_id(id)
    return id


async def _check_choices(ctx: RequestContext, checked: Checked) -> None:
    """Reject an imported session that would continue with models or limits that clients may not
    choose. A session whose agent this server does not serve is not checked, since it does not
    continue."""
    agent = checked.bundle.document.session.agent
    with suppress(UnknownAgent):
        _, engine, key = serving(ctx.service.engines, agent)
        if (choices := ctx.service.choices(engine, key)) is not None:
            await asyncio.to_thread(choices.check_bundle, checked.bundle, checked.states)


async def _unserved(ctx: RequestContext, place: TenantStore, row: Row) -> list[str]:
    """Return a list with one warning if no agent of this server serves a session; otherwise an
    empty list."""
    try:
        await ctx.engine_of(place, row)
    except UnknownAgent as error:
        known = ", ".join(error.available)
        return [
            f"this server does not serve the agent {error.agent!r}: the session can be read and "
            f"deleted here, and continues on a server with that agent (agents here: {known})"
        ]
    return []


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
    """Validate a bundle, and return a summary of it. Responds with 400 and a list of all errors if
    it is invalid."""
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
