"""The route for AG-UI: `HttpAgent`, CopilotKit and other clients of the protocol."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from litestar import post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody

from ...harness import Session, core_of
from ...stores.conversation import messages_of
from ...wire import cursor, read_cursor
from ...wire.ag_ui import ForwardedProps, RunInput
from ..http.context import Context, RequestContext
from ..http.middleware import STREAM
from ..routes.messages import media
from ..routes.parameters import WRITE
from ..streams.response import StreamResponse
from ..streams.session_stream import StreamRequest
from ..streams.session_stream import begin as read_session
from . import ag_ui_messages as messages
from . import conversation
from .ag_ui_stream import AgUiStream

EVENTS = ResponseSpec(str, media_type=STREAM, description="Events of AG-UI.")
SNAPSHOT = 1_000  # messages of a snapshot, the newest


@post(
    "/ag-ui/run",
    status_code=200,
    opt={**WRITE, "stream": True, "lasts": True, "once": "own"},
    operation_id="ag_ui_run",
    responses={200: EVENTS},
)
async def run(ctx: Context, data: JSONBody[RunInput]) -> StreamResponse:
    """Run an agent. If the last message is a user's message, it is sent; the session has the id of
    the protocol's thread, and is created if it does not exist. `resume` decides on pending items,
    and results of tools answer calls that wait for them. Otherwise the client is sent the
    conversation, and the active run from its beginning, or from `forwardedProps.cursor`."""
    props = data.forwarded_props or ForwardedProps()
    last = data.messages[-1] if data.messages else None
    sends = last is not None and last.role == "user" and not data.resume and props.cursor is None
    given = None
    if sends and last is not None:
        given = media(messages.content(last), ctx.service.limits)
    ctx.note(session=data.thread_id)
    async with AsyncExitStack() as left:
        if given is None or last is None:
            ctx.caller.need("sessions:read")  # the client is sent the conversation
            opened = ctx.session(data.thread_id, props.thread, current=True)
            session = await left.enter_async_context(opened)
            wish, known = await _continued(ctx, session, data, props)
        else:
            made = conversation.opened(ctx, data.thread_id, props.thread, props.agent)
            session = await left.enter_async_context(made)
            seq = await conversation.send(ctx, session, last.id, given, props.model)
            after = cursor(core_of(session).live.log, seq - 1)
            wish, known = StreamRequest(after=after, input=seq), None
        state = await _state(ctx, session)
        stream = AgUiStream(data.thread_id, data.run_id, state, known)
        reading = await read_session(session, wish, ctx.service.removals)
        streams = ctx.service.streams
        chunks = streams.chunks(reading, ctx.still, name=ctx.name, translation=stream)
        return StreamResponse(chunks, left.pop_all(), patience=ctx.patience)


async def _continued(
    ctx: RequestContext, session: Session, data: RunInput, props: ForwardedProps
) -> tuple[StreamRequest, list[dict[str, Any]]]:
    """Record the client's decisions. Returns the stream that follows, and the messages before
    it."""
    live = core_of(session).live
    asks = await session.pending()
    wishes = messages.resumed(data.resume or (), asks)
    if not wishes:
        wishes = messages.answered(messages.results(data.messages), asks)
    found = await conversation.followed(session, last=bool(wishes) or props.cursor is not None)
    began = live.state.run.seq if live.state.run is not None else 0
    if found is None:
        after = cursor(live.log, live.state.head)
        wish = StreamRequest(after=after, until="idle")
    else:
        wish = found[0]
        after = wish.after or cursor(live.log, 0)
        if wishes or props.cursor is not None:
            after = conversation.resumed_at(live, props.cursor, began)
    await conversation.settle(ctx, session, wishes)
    shown = await messages_of(live.store, live.key, SNAPSHOT, at=read_cursor(after)[1])
    wish = StreamRequest(after=after, input=wish.input, until=wish.until)
    return wish, messages.snapshot(shown)


async def _state(ctx: RequestContext, session: Session) -> dict[str, Any]:
    """Return the user state, which belongs to the whole session."""
    if session.key.thread == "main":
        return session.state.get()
    async with ctx.session(session.key.session, current=True) as main:
        return main.state.get()


HANDLERS: list[Any] = [run]
