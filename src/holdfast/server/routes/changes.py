"""The route that streams the changes of lists, so that a list can be shown live without polling."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from litestar import get
from litestar.openapi.datastructures import ResponseSpec

from ..http.context import Context
from ..http.middleware import STREAM
from ..streams.response import StreamResponse
from .parameters import READ, Text

CHANGES = ResponseSpec(str, media_type=STREAM, description="Server-sent events.")


@get(
    "/changes",
    opt={**READ, "stream": True, "lasts": True},
    operation_id="follow_changes",
    responses={200: CHANGES},
)
async def follow(ctx: Context, user: Text = None) -> StreamResponse:
    """Stream the changes of the lists that the caller may see: `row` is a session with new
    activity, `pending` says that the inbox has changed, `resync` that the lists must be read again.
    With the scope `sessions:all`, of the sessions of all users, or of `user`."""
    caller = ctx.caller
    if user is not None or not caller.may("sessions:all"):
        user = ctx.acting_for(user)
    frames = ctx.service.list_changes.frames((caller.tenant, user), ctx.still)
    return StreamResponse(frames, AsyncExitStack(), patience=ctx.patience)


HANDLERS: list[Any] = [follow]
