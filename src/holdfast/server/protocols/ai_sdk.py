"""Routes for the Vercel AI SDK: `useChat` and `AbstractChat` with their `DefaultChatTransport`.
`v7` is for ai 6 and 7, `v5` for ai 5, which knows no approvals."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Annotated, Any
from urllib.parse import quote

from litestar import Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody, PathParameter, QueryParameter

from ...errors import InvalidValue
from ...harness import Session, core_of
from ...log.events import Key
from ...stores.conversation import messages_of
from ...wire import cursor
from ...wire.ai_sdk import ChatMessage, ChatRequest, UiMessages
from ..http.context import Context, RequestContext
from ..http.middleware import STREAM
from ..routes.messages import media
from ..routes.parameters import READ, WRITE, SessionId, Thread
from ..streams.response import StreamResponse
from ..streams.sending import HEADERS as STREAM_HEADERS
from ..streams.session_stream import StreamRequest
from ..streams.session_stream import begin as read_session
from . import ai_sdk_messages as ui
from . import conversation
from .ai_sdk_stream import UiMessageStream, Version

CHAT = "/ai-sdk/{version:str}/chat"
HEADERS = {**STREAM_HEADERS, "x-vercel-ai-ui-message-stream": "v1"}
CHUNKS = ResponseSpec(str, media_type=STREAM, description="Chunks of a UI message stream.")
IDLE = ResponseSpec(None, description="No run is active, and no message is queued.")
Newest = Annotated[int, QueryParameter(ge=1, le=1_000)]
Api = Annotated[Version, PathParameter(description="The major version of the SDK.")]


@post(
    CHAT,
    status_code=200,
    opt={**WRITE, "stream": True, "lasts": True, "once": "own"},
    operation_id="ai_sdk_chat",
    responses={200: CHUNKS},
)
async def chat(ctx: Context, version: Api, data: JSONBody[ChatRequest]) -> StreamResponse:
    """Send the last message of a chat, and stream the run that handles it. The session has the id
    of the chat, and is created if it does not exist. If the last message is an assistant's message,
    its responses to approvals and its tool outputs decide on pending items, and the stream
    continues the message. With the trigger `regenerate-message`, the last message is sent again:
    the conversation is returned to where it was before it."""
    if not data.messages:
        raise InvalidValue(field="messages", problem="is empty", remedy="send the messages")
    last = data.messages[-1]
    given = None
    if last.role == "user":
        given = media(ui.content(last), ctx.service.limits)
    elif last.role != "assistant" or data.trigger != "submit-message":
        raise InvalidValue(
            field="messages",
            problem=f"the last message has the role {last.role!r}",
            remedy="end with a user's message, or with an assistant's message to continue",
        )
    ctx.note(session=data.id)
    async with AsyncExitStack() as left:
        if given is None:
            session = await left.enter_async_context(
                ctx.session(data.id, data.thread, current=True)
            )
            stream, wish = await _continued(ctx, version, session, last)
        else:
            opened = conversation.opened(ctx, data.id, data.thread, data.agent)
            session = await left.enter_async_context(opened)
            again = data.trigger == "regenerate-message"
            send = conversation.send_again if again else conversation.send
            seq = await send(ctx, session, last.id, given, data.model)
            after = cursor(core_of(session).live.log, seq - 1)
            stream = UiMessageStream(version, _about(session.key))
            wish = StreamRequest(after=after, input=seq)
        return await _response(ctx, session, wish, stream, left)


async def _continued(
    ctx: RequestContext, version: Version, session: Session, last: ChatMessage
) -> tuple[UiMessageStream, StreamRequest]:
    """Record the decisions in the client's last message. Returns the stream that continues the
    message."""
    live = core_of(session).live
    wishes = ui.wishes(last, await session.pending())
    found = await conversation.followed(session, last=True)
    if found is None:
        raise InvalidValue(
            field="messages",
            problem="ends with an assistant's message, but no run can be continued",
            remedy="end with a user's message",
        )
    wish, run = found
    began = live.state.run.seq if live.state.run is not None else 0
    known = last.metadata.get("cursor") if isinstance(last.metadata, dict) else None
    after = conversation.resumed_at(live, known, began)
    await conversation.settle(ctx, session, wishes)
    stream = UiMessageStream(version, _about(session.key), ui.calls(last), run=run)
    return stream, StreamRequest(after=after, input=wish.input, until=wish.until)


@get(
    CHAT + "/{session_id:str}/stream",
    opt={**READ, "stream": True, "lasts": True},
    operation_id="ai_sdk_resume",
    responses={200: CHUNKS, 204: IDLE},
)
async def resume(
    ctx: Context, version: Api, session_id: SessionId, thread: Thread = "main"
) -> Response[Any]:
    """Stream the active run from its beginning, at any replica, also after a restart. Responds with
    204 if no run is active."""
    async with AsyncExitStack() as left:
        session = await left.enter_async_context(ctx.session(session_id, thread, current=True))
        found = await conversation.followed(session)
        if found is None:
            return Response(None, status_code=204)
        stream = UiMessageStream(version, _about(session.key), run=found[1])
        return await _response(ctx, session, found[0], stream, left)


@get(CHAT + "/{session_id:str}/messages", opt=READ, operation_id="ai_sdk_messages")
async def history(
    ctx: Context,
    version: Api,
    session_id: SessionId,
    thread: Thread = "main",
    limit: Newest = 100,
) -> UiMessages:
    """Return the newest messages of a conversation in the form of the SDK, for `messages` of
    `useChat`."""
    async with ctx.session(session_id, thread, current=True) as session:
        live, pending = core_of(session).live, await session.pending()
        place = cursor(live.log, live.state.head)
        found = await messages_of(live.store, live.key, limit, at=live.state.head)
    base = f"{ctx.base}/v1/sessions/{quote(session_id, safe='')}/blobs/"
    items = ui.ui_messages(
        found,
        pending,
        version,
        lambda sha256, kind: f"{base}{sha256}?type={quote(kind, safe='')}",
        {**_about(session.key), "cursor": place},
    )
    return UiMessages(items=items, cursor=place)


def _about(key: Key) -> dict[str, Any]:
    return {"session": key.session, "thread": key.thread}


async def _response(
    ctx: RequestContext,
    session: Session,
    wish: StreamRequest,
    stream: UiMessageStream,
    left: AsyncExitStack,
) -> StreamResponse:
    reading = await read_session(session, wish, ctx.service.removals)
    streams = ctx.service.streams
    chunks = streams.chunks(reading, ctx.still, name=ctx.name, translation=stream)
    return StreamResponse(chunks, left.pop_all(), patience=ctx.patience, headers=HEADERS)


HANDLERS: list[Any] = [chat, resume, history]
