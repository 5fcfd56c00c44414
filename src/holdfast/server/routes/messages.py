"""Routes that send, steer, queue, abort, edit and regenerate messages, and return the
transcript."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Annotated, Any

import msgspec
from litestar import Response, delete, get, patch, post, put
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody, PathParameter, QueryParameter

from ...cancellation import ended
from ...errors import InvalidValue, KeyReused
from ...harness import MessageStream, Session, core_of
from ...log import events as ev
from ...log.codec import typed
from ...stores.conversation import messages_of
from ...values.media import Media
from ...values.options import SendOptions
from ...values.result import Result
from ...values.status import Status
from ...wire import (
    Abort,
    Accepted,
    Content,
    EditText,
    Followed,
    MediaPart,
    Reorder,
    Rewind,
    Rewound,
    SendMessage,
    SessionView,
    Transcript,
    cursor,
)
from ...wire.requests import Busy
from ..auth.limits import ServerLimits
from ..http.context import Context, RequestContext, check_metadata
from ..run_choices import check_again
from .parameters import LAST, READ, SESSION, WRITE, At, Before, SessionId, Thread, check_at

Wait = Annotated[
    bool,
    QueryParameter(
        description="Wait until the run of the message has ended or waits for user input."
    ),
]
Seq = Annotated[int, PathParameter(ge=1, le=LAST)]
Newest = Annotated[int, QueryParameter(ge=1, le=1_000)]
SOON = 0.05  # seconds between two checks whether a message was accepted
ANSWERED = {200: ResponseSpec(Result, description="With `wait`: the result of the message.")}


def _message_route(path: str, id: str, name: str, about: str, busy: Busy | None = None) -> Any:
    """Create a route that sends a message. If `busy` is set, it overrides the `busy` option of the
    request."""

    @post(
        f"{SESSION}/{path}",
        status_code=202,
        responses=ANSWERED,
        opt={**WRITE, "once": "own", "waits": True},
        operation_id=id,
        summary=name,
        description=about,
    )
    async def handler(
        ctx: Context,
        session_id: SessionId,
        data: JSONBody[SendMessage],
        thread: Thread = "main",
        wait: Wait = False,
    ) -> Response[Accepted | Result]:
        if busy is not None:
            data = msgspec.structs.replace(data, busy=busy)
        async with ctx.session(session_id, thread) as session:
            return await _post(ctx, session, data, wait)

    return handler


SENDS = [
    _message_route(
        "messages",
        "send_message",
        "Send",
        "Send a message. The response is 202 once the message is in the log. With `wait`, it is "
        "200 with the result, once the run has ended or waits.",
    ),
    _message_route(
        "steer",
        "steer",
        "Steer",
        "Send a message that the current run reads at its next safe point.",
        "steer",
    ),
    _message_route(
        "follow-ups",
        "add_follow_up",
        "FollowUp",
        "Add a message to the end of the queue.",
        "queue",
    ),
]


async def _post(
    ctx: RequestContext, session: Session, data: SendMessage, wait: bool
) -> Response[Accepted | Result]:
    check_metadata(*data.metadata)
    content = media(data.content, ctx.service.limits)
    limits = {str(name): value for name, value in data.limits.items()}
    core = core_of(session)
    mode = core.config.mode(await core.catch_up()) if limits else None
    asked = ev.MessageReceived(text="", model=data.model, limits=limits)
    ctx.choices(session).check_message(asked, mode)
    options: SendOptions = {
        "busy": data.busy,
        "key": ctx.once,
        "actor": ctx.actor,
        "metadata": data.metadata,
        "model": data.model,
        "limits": limits or None,
    }
    stream = session.stream(content, **options) if wait else None
    try:
        if stream is None:
            seq, whole = await session.post(content, **options), False
        else:
            seq, whole = await _read(ctx, stream)
    except InvalidValue as error:
        if error.field == "key" and ctx.key is not None:
            raise KeyReused(key=ctx.key) from None
        raise
    if ctx.key is not None:
        await _check_same(ctx.key, session, seq, data)
    if stream is not None and whole:
        return Response(stream.result, status_code=200)
    key = session.key
    accepted = Accepted(
        session=key.session,
        thread=key.thread,
        seq=seq,
        cursor=cursor(core.live.log, seq - 1),
        events=ctx.events(key.session, key.thread),
    )
    return Response(accepted, status_code=202)


async def _read(ctx: RequestContext, stream: MessageStream) -> tuple[int, bool]:
    """Read a stream to its end, or until the wait times out or the server shuts down; the run then
    continues. Returns the event number of the message, and whether the end was reached."""
    reading = asyncio.create_task(_drain(stream))
    leaving = asyncio.create_task(ctx.service.leaving.wait())
    try:
        await asyncio.wait(
            {reading, leaving},
            timeout=ctx.service.limits.wait_seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        while stream.seq is None and not reading.done():
            await asyncio.wait({reading}, timeout=SOON)
        whole = reading.done()
        if whole:
            reading.result()
        assert stream.seq is not None
        return stream.seq, whole
    finally:
        await ended(reading, leaving)


async def _drain(stream: MessageStream) -> None:
    async with aclosing(aiter(stream)) as items:
        async for _ in items:
            pass


async def _check_same(key: str, session: Session, seq: int, data: SendMessage) -> None:
    """Reject an idempotency key that was used for a message with other options."""
    known = await core_of(session).live.payload(seq, ev.MessageReceived)
    how = "queue" if data.busy == "reject" else data.busy
    given = (how, dict(data.metadata), data.model, dict(data.limits))
    if known is not None and (known.how, known.metadata, known.model, known.limits) != given:
        raise KeyReused(key=key)


def media(content: Content, limits: ServerLimits) -> Any:
    """Convert the content of a message to the format of the harness. Rejects content that is blank
    or exceeds the limits."""
    if isinstance(content, str):
        check_said("content", content)
        return content
    check_said("content", *content)
    parts = [part for part in content if not isinstance(part, str)]
    if len(parts) > limits.attachments:
        raise InvalidValue(
            field="content",
            problem=f"has {len(parts)} attachments, and the limit is {limits.attachments}",
            remedy="send fewer attachments",
            limit=limits.attachments,
        )
    for part in parts:
        if len(part.data) > limits.attachment_bytes:
            raise InvalidValue(
                field="content",
                problem=f"an attachment has {len(part.data)} bytes, and the limit is "
                f"{limits.attachment_bytes}",
                remedy="send a smaller attachment",
                limit=limits.attachment_bytes,
            )
    return [
        part if isinstance(part, str) else Media(part.data, part.media_type, part.name)
        for part in content
    ]


def check_said(field: str, *parts: str | MediaPart) -> None:
    """Reject blank content, which would start a run without input."""
    if not any(not isinstance(part, str) or part.strip() for part in parts):
        raise InvalidValue(
            field=field, problem="is empty or blank", remedy="send text or an attachment"
        )


@post(f"{SESSION}/abort", status_code=200, opt=WRITE, operation_id="abort")
async def abort(
    ctx: Context,
    session_id: SessionId,
    data: JSONBody[Abort | None] = None,
    thread: Thread = "main",
) -> Status:
    """Abort the current run, on any replica. The output so far and the queue are kept."""
    async with ctx.session(session_id, thread, current=True) as session:
        body = data or Abort()
        await session.abort(body.reason, actor=ctx.actor, run=body.run, key=ctx.once)
        return session.status


@post(f"{SESSION}/rewind", status_code=200, opt=WRITE, operation_id="rewind")
async def rewind(
    ctx: Context, session_id: SessionId, data: JSONBody[Rewind], thread: Thread = "main"
) -> Rewound:
    """Return the conversation to its state right after event `to`; 0 clears it. The events stay in
    the log. Responds with 409 while a run or a pending item is open."""
    async with ctx.session(session_id, thread, current=True) as session:
        seq = await session.rewind(data.to, actor=ctx.actor, key=ctx.once)
    return Rewound(session=session_id, thread=thread, seq=seq, to=data.to)


@get(f"{SESSION}/transcript", opt=READ, operation_id="get_transcript")
async def transcript(
    ctx: Context,
    session_id: SessionId,
    thread: Thread = "main",
    limit: Newest = 100,
    at: At = None,
    before: Before = None,
) -> Transcript:
    """Return the newest messages of a conversation, oldest first. With `at`, the conversation as it
    was right after this event; with `before`, only the messages before this event."""
    place, row = await ctx.find(session_id, thread)
    if at is not None:
        check_at(at, row.head)
    return Transcript(items=await messages_of(place.store, row.key, limit, at=at, before=before))


# The queue


@get(f"{SESSION}/follow-ups", opt=READ, operation_id="list_follow_ups")
async def follow_ups(ctx: Context, session_id: SessionId, thread: Thread = "main") -> Followed:
    """Return the queued messages, in the order in which they will be processed."""
    async with ctx.session(session_id, thread, current=True) as session:
        return Followed(items=await session.queue.list())


@put(f"{SESSION}/follow-ups", opt=WRITE, operation_id="reorder_follow_ups")
async def reorder(
    ctx: Context, session_id: SessionId, data: JSONBody[Reorder], thread: Thread = "main"
) -> Followed:
    """Move these messages to the front of the queue, in this order."""
    async with ctx.session(session_id, thread, current=True) as session:
        await session.queue.reorder(data.order)
        return Followed(items=await session.queue.list())


@patch(SESSION + "/follow-ups/{seq:int}", opt=WRITE, operation_id="edit_follow_up")
async def edit_follow_up(
    ctx: Context,
    session_id: SessionId,
    seq: Seq,
    data: JSONBody[EditText],
    thread: Thread = "main",
) -> Followed:
    """Change the text of a queued message."""
    check_said("text", data.text)
    async with ctx.session(session_id, thread, current=True) as session:
        await session.queue.edit(seq, data.text, actor=ctx.actor)
        return Followed(items=await session.queue.list())


@delete(
    SESSION + "/follow-ups/{seq:int}", status_code=200, opt=WRITE, operation_id="remove_follow_up"
)
async def remove_follow_up(
    ctx: Context, session_id: SessionId, seq: Seq, thread: Thread = "main"
) -> Followed:
    """Remove a message from the queue; it stays in the log."""
    async with ctx.session(session_id, thread, current=True) as session:
        if not (ctx.again and await _removed(session, seq)):
            await session.queue.remove(seq)
        return Followed(items=await session.queue.list())


async def _removed(session: Session, seq: int) -> bool:
    """Return whether a message was removed from the queue."""
    changes = await session.events(after=seq, kinds=("queue.changed",))
    payloads = [typed(change) for change in changes]
    return any(isinstance(one, ev.QueueChanged) and seq in one.remove for one in payloads)


# Editing and regenerating


@post(SESSION + "/messages/{seq:int}/edit", opt=WRITE, operation_id="edit_message")
async def edit(
    ctx: Context,
    session_id: SessionId,
    seq: Seq,
    data: JSONBody[EditText],
    thread: Thread = "main",
) -> SessionView:
    """Send a message again with other text, in a new thread that branches off before the
    message."""
    check_said("text", data.text)
    async with ctx.session(session_id, thread) as session:
        await check_again(session, seq, ctx.choices(session))
        forked = await session.thread.edit(seq, data.text, actor=ctx.actor, thread=ctx.once)
    return await ctx.shown_thread(session_id, forked.key.thread)


@post(SESSION + "/messages/{seq:int}/regenerate", opt=WRITE, operation_id="regenerate_message")
async def regenerate(
    ctx: Context, session_id: SessionId, seq: Seq, thread: Thread = "main"
) -> SessionView:
    """Send a message again, in a new thread that branches off before the message."""
    async with ctx.session(session_id, thread) as session:
        await check_again(session, seq, ctx.choices(session))
        forked = await session.thread.regenerate(seq, actor=ctx.actor, thread=ctx.once)
    return await ctx.shown_thread(session_id, forked.key.thread)


HANDLERS: list[Any] = [
    *(*SENDS, abort, rewind, transcript),
    *(follow_ups, reorder, edit_follow_up, remove_follow_up, edit, regenerate),
]
