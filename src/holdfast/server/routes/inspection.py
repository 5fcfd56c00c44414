"""Routes that inspect a session: its audit, integrity, driver, usage and attachments."""

from __future__ import annotations

from contextlib import aclosing
from typing import Annotated, Any

from litestar import Response, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import PathParameter, QueryParameter

from ...environment import wall_clock
from ...errors import BlobNotFound
from ...sessions.audit import audited_in
from ...stores.blobs import is_sha256
from ...stores.usage import usage_table
from ...wire import AuditPage, DamageShown, LeaseShown, UsageTable, Verified
from ..http.context import Context
from .parameters import LAST, READ, SESSION, SessionId, Thread

OCTETS = "application/octet-stream"
# Types that a browser may show. Everything else is downloaded, because it could contain scripts.
SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp")
SANDBOX = "default-src 'none'; sandbox; frame-ancestors 'none'"
DAMAGE = 100  # problems that one response lists
FILE = ResponseSpec(bytes, media_type=OCTETS, description="The bytes of the attachment.")
Sha256 = Annotated[str, PathParameter(min_length=64, max_length=64, pattern="^[0-9a-f]{64}$")]
Type = Annotated[
    str | None,
    QueryParameter(
        name="type",
        max_length=100,
        description="The media type to answer with: image/png, image/jpeg, image/gif or "
        "image/webp. Everything else is application/octet-stream.",
    ),
]
After = Annotated[
    int,
    QueryParameter(ge=0, le=LAST, description="Only calls that were proposed after this event."),
]
Most = Annotated[int, QueryParameter(ge=1, le=1_000)]


@get(f"{SESSION}/audit", opt=READ, operation_id="get_audit")
async def audit(
    ctx: Context,
    session_id: SessionId,
    thread: Thread = "main",
    after: After = 0,
    limit: Most = 100,
) -> AuditPage:
    """Return the tool calls of a thread in the order in which they were proposed: who asked, who
    decided what and when, and how each call ended."""
    place, row = await ctx.find(session_id, thread)
    calls = await audited_in(ctx.sessions(place).changes, row)
    items = [call for call in calls if call.seq > after]
    last = items[limit - 1].seq if len(items) > limit else None
    page = items if last is None else [call for call in items if call.seq <= last]
    return AuditPage(items=page, after=last)


@get(f"{SESSION}/verify", opt=READ, operation_id="verify_session")
async def verify(ctx: Context, session_id: SessionId) -> Verified:
    """Check the integrity of a session: recompute the hash of each event and the links between
    events, in all its threads. Changes nothing. `head` and `link` are of thread `main`."""
    place, row = await ctx.find(session_id)
    damage: list[DamageShown] = []
    total = unlinked = 0
    async with aclosing(place.store.verify(row.scope)) as found:
        async for problem in found:
            if problem.problem == "unlinked":
                unlinked += 1
                continue
            total += 1
            if len(damage) < DAMAGE:
                thread = None if problem.key is None else problem.key.thread
                damage.append(DamageShown(problem=problem.problem, thread=thread, seq=problem.seq))
    return Verified(
        session=session_id,
        ok=not total,
        head=row.head,
        link=row.link,
        damage=damage,
        problems=total,
        unlinked=unlinked,
        at=wall_clock(),
        by=ctx.actor,
    )


@get(f"{SESSION}/lease", opt=READ, operation_id="get_lease")
async def lease(ctx: Context, session_id: SessionId, thread: Thread = "main") -> LeaseShown:
    """Return which process drives a thread, since when, and until when if it does not renew its
    lease. All fields are null if no process drives it."""
    place, row = await ctx.find(session_id, thread)
    held = await place.store.holder(row.key)
    if held is None:
        return LeaseShown()
    return LeaseShown(owner=held.owner, since=held.since, until=held.until)


@get(f"{SESSION}/usage-table", opt=READ, operation_id="get_usage_table")
async def usage(ctx: Context, session_id: SessionId) -> UsageTable:
    """Return the usage by thread, run and model for the whole session, including sub-agents;
    ordered by thread, oldest first."""
    place, row = await ctx.find(session_id)
    return UsageTable(items=await usage_table(place.store, row.scope))


@get(
    SESSION + "/blobs/{sha256:str}",
    opt=READ,
    operation_id="get_blob",
    responses={200: FILE},
)
async def blob(
    ctx: Context, session_id: SessionId, sha256: Sha256, type: Type = None
) -> Response[bytes]:
    """Return the bytes of an attachment. Browsers download it, unless `type` is one of the image
    types above; they never run it."""
    place, row = await ctx.find(session_id)
    refs = await place.store.blobs(row.scope) if is_sha256(sha256) else []
    ref = next((one for one in refs if one.sha256 == sha256), None)
    if ref is None:
        raise BlobNotFound(tenant=row.tenant, session=row.session, sha256=sha256)
    ctx.hold(ref.size)
    data = await place.store.get_blob(row.scope, ref)
    shown = type in SHOWN
    headers = {
        "content-security-policy": SANDBOX,
        "content-disposition": "inline" if shown else "attachment",  # links name the file
        "cross-origin-resource-policy": "same-origin",
    }
    return Response(data, media_type=type if shown else OCTETS, headers=headers)


HANDLERS: list[Any] = [audit, verify, lease, usage, blob]
