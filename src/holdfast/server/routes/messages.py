"""Talking: messages, steering, follow-ups, stopping, and the conversation so far."""

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
from ...harness.session.message_stream import MessageStream
from ...harness.session.session import Session, core_of
from ...harness.session.threads import messages_of
from ...log import events as ev
from ...log.codec import typed
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
    SendMessage,
    SessionView,
    Transcript,
    cursor,
)
from ..auth.limits import ServerLimits
from ..http.context import Ask, Asking, SessionId, Thread, check_metadata
from ..run_choices import check_again

Wait = Annotated[bool, QueryParameter(description="Wait until its run waits or has ended.")]
Seq = Annotated[int, PathParameter(ge=1, le=(1 << 53) - 1)]
Newest = Annotated[int, QueryParameter(ge=1, le=1_000)]
SOON = 0.05  # seconds between two looks whether a message was accepted
WRITE = {"scope": "sessions:write"}
POSTS = {**WRITE, "once": "own", "waits": True}
READ = {"scope": "sessions:read"}
ANSWERED = {200: ResponseSpec(Result, description="`wait`: how the message stands")}


@post(
    "/sessions/{session_id:str}/messages",
    status_code=202,
    responses=ANSWERED,
    opt=POSTS,
    operation_id="send_message",
)
async def send(
    ask: Ask,
    session_id: SessionId,
    data: JSONBody[SendMessage],
    thread: Thread = "main",
    wait: Wait = False,
) -> Response[Accepted | Result]:
    """Send a message. It is in the log when this is answered, with 202; with `wait`, the answer
    is 200 and how the message stands once its run waits or has ended."""
    async with ask.session(session_id, thread) as session:
        return await _post(ask, session, data, wait)


@post(
    "/sessions/{session_id:str}/steer",
    status_code=202,
    responses=ANSWERED,
    opt=POSTS,
    operation_id="steer",
)
async def steer(
    ask: Ask,
    session_id: SessionId,
    data: JSONBody[SendMessage],
    thread: Thread = "main",
    wait: Wait = False,
) -> Response[Accepted | Result]:
    """Send a message that the run which is going reads at its next safe point."""
    async with ask.session(session_id, thread) as session:
        return await _post(ask, session, msgspec.structs.replace(data, busy="steer"), wait)


@post(
    "/sessions/{session_id:str}/follow-ups",
    status_code=202,
    responses=ANSWERED,
    opt=POSTS,
    operation_id="add_follow_up",
)
async def follow_up(
    ask: Ask,
    session_id: SessionId,
    data: JSONBody[SendMessage],
    thread: Thread = "main",
    wait: Wait = False,
) -> Response[Accepted | Result]:
    """Send a message for when all others are answered."""
    async with ask.session(session_id, thread) as session:
        return await _post(ask, session, msgspec.structs.replace(data, busy="queue"), wait)


async def _post(
    ask: Asking, session: Session, data: SendMessage, wait: bool
) -> Response[Accepted | Result]:
    check_metadata(*data.metadata)
    content = media(data.content, ask.service.limits)
    await _check_choices(ask, session, data)
    options: SendOptions = {
        "busy": data.busy,
        "key": ask.once,
        "actor": ask.actor,
        "metadata": data.metadata,
        "model": data.model,
        "limits": {str(name): value for name, value in data.limits.items()} or None,
    }
    stream = session.stream(content, **options) if wait else None
    try:
        if stream is None:
            seq, whole = await session.post(content, **options), False
        else:
            seq, whole = await _read(ask, stream)
    except InvalidValue as error:
        if error.field == "key" and ask.key is not None:
            raise KeyReused(key=ask.key) from None
        raise
    if ask.key is not None:
        await _same(ask.key, session, seq, data)
    if stream is not None and whole:
        return Response(stream.result, status_code=200)
    return Response(accepted(ask, session, seq), status_code=202)


async def _check_choices(ask: Asking, session: Session, data: SendMessage) -> None:
    """Refuse a model that is not offered, and limits above those of the operator."""
    choices = ask.choices(session)
    if data.model is not None:
        choices.check_model(data.model)
    if data.limits:
        limits = {str(name): value for name, value in data.limits.items()}
        core = core_of(session)
        choices.check_limits(limits, core.config.mode(await core.catch_up()))


async def _read(ask: Asking, stream: MessageStream) -> tuple[int, bool]:
    """Read a stream to its end, unless that takes too long or the server goes away: the run goes
    on, and the client is told where to look. The number of the message, which is in the log, and
    whether the end was reached."""
    reading = asyncio.create_task(_used_up(stream))
    leaving = asyncio.create_task(ask.service.leaving.wait())
    patience = ask.service.limits.wait_seconds
    try:
        await asyncio.wait(
            {reading, leaving}, timeout=patience, return_when=asyncio.FIRST_COMPLETED
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


async def _used_up(stream: MessageStream) -> None:
    async with aclosing(aiter(stream)) as items:
        async for _ in items:
            pass


async def _same(key: str, session: Session, seq: int, data: SendMessage) -> None:
    """Refuse a key that stands for a message with other options already."""
    known = await core_of(session).live.payload(seq, ev.MessageReceived)
    how = "queue" if data.busy == "reject" else data.busy
    given = (how, dict(data.metadata), data.model, dict(data.limits))
    if known is not None and (known.how, known.metadata, known.model, known.limits) != given:
        raise KeyReused(key=key)


def accepted(ask: Asking, session: Session, seq: int) -> Accepted:
    """A message that is in the log, as event `seq`."""
    where = session.key
    return Accepted(
        session=where.session,
        thread=where.thread,
        seq=seq,
        cursor=cursor(core_of(session).live.log, seq - 1),
        events=ask.events(where.session, where.thread),
    )


def media(content: Content, limits: ServerLimits) -> Any:
    """What was sent, as the library takes it, within the limits; it must say something."""
    check_said("content", *([content] if isinstance(content, str) else content))
    if isinstance(content, str):
        return content
    parts = [part for part in content if not isinstance(part, str)]
    if len(parts) > limits.attachments:
        raise InvalidValue(
            field="content",
            problem=f"has {len(parts)} attachments",
            remedy="send fewer",
            limit=limits.attachments,
        )
    for part in parts:
        if len(part.data) > limits.attachment_bytes:
            raise InvalidValue(
                field="content",
                problem=f"an attachment has {len(part.data)} bytes",
                remedy="send a smaller one",
                limit=limits.attachment_bytes,
            )
    return [
        part if isinstance(part, str) else Media(part.data, part.media_type, part.name)
        for part in content
    ]


def check_said(field: str, *parts: str | MediaPart) -> None:
    """Refuse what says nothing: a run would begin for it."""
    if not any(not isinstance(part, str) or part.strip() for part in parts):
        problem, remedy = "is empty or blank", "send a text that says something, or an attachment"
        raise InvalidValue(field=field, problem=problem, remedy=remedy)


@post("/sessions/{session_id:str}/abort", status_code=200, opt=WRITE, operation_id="abort")
async def abort(
    ask: Ask, session_id: SessionId, data: JSONBody[Abort | None] = None, thread: Thread = "main"
) -> Status:
    """Stop the run that is going or waits, whichever replica drives it. What was said is kept,
    and so is the queue."""
    async with ask.session(session_id, thread) as session:
        await core_of(session).catch_up()
        said = data or Abort()
        await session.abort(said.reason, actor=ask.actor, run=said.run, key=ask.once)
        return session.status


@get("/sessions/{session_id:str}/transcript", opt=READ, operation_id="get_transcript")
async def transcript(
    ask: Ask, session_id: SessionId, thread: Thread = "main", limit: Newest = 100
) -> Transcript:
    """The newest messages of a conversation, oldest first."""
    place, row = await ask.find(session_id, thread)
    return Transcript(items=await messages_of(place.store, row.key, limit))


# Messages that wait


@get("/sessions/{session_id:str}/follow-ups", opt=READ, operation_id="list_follow_ups")
async def follow_ups(ask: Ask, session_id: SessionId, thread: Thread = "main") -> Followed:
    """The messages that wait, in the order in which they will be taken up."""
    async with ask.session(session_id, thread) as session:
        await core_of(session).catch_up()
        return Followed(items=await session.queue.list())


@put("/sessions/{session_id:str}/follow-ups", opt=WRITE, operation_id="reorder_follow_ups")
async def reorder(
    ask: Ask, session_id: SessionId, data: JSONBody[Reorder], thread: Thread = "main"
) -> Followed:
    """Take these up first, in this order."""
    async with ask.session(session_id, thread) as session:
        await core_of(session).catch_up()
        await session.queue.reorder(data.order)
        return Followed(items=await session.queue.list())


@patch("/sessions/{session_id:str}/follow-ups/{seq:int}", opt=WRITE, operation_id="edit_follow_up")
async def edit_follow_up(
    ask: Ask, session_id: SessionId, seq: Seq, data: JSONBody[EditText], thread: Thread = "main"
) -> Followed:
    """Let the model read other words."""
    check_said("text", data.text)
    async with ask.session(session_id, thread) as session:
        await core_of(session).catch_up()
        await session.queue.edit(seq, data.text, actor=ask.actor)
        return Followed(items=await session.queue.list())


@delete(
    "/sessions/{session_id:str}/follow-ups/{seq:int}",
    status_code=200,
    opt=WRITE,
    operation_id="remove_follow_up",
)
async def remove_follow_up(
    ask: Ask, session_id: SessionId, seq: Seq, thread: Thread = "main"
) -> Followed:
    """Take a message out of the queue; it stays in the log."""
    async with ask.session(session_id, thread) as session:
        await core_of(session).catch_up()
        if not (ask.again and await _removed(session, seq)):
            await session.queue.remove(seq)
        return Followed(items=await session.queue.list())


async def _removed(session: Session, seq: int) -> bool:
    """Whether a message was taken out of the queue, and not by a run that took it up."""
    changes = await session.events(after=seq, kinds=("queue.changed",))
    told = [typed(change) for change in changes]
    return any(isinstance(one, ev.QueueChanged) and seq in one.remove for one in told)


# Going back


@post("/sessions/{session_id:str}/messages/{seq:int}/edit", opt=WRITE, operation_id="edit_message")
async def edit(
    ask: Ask, session_id: SessionId, seq: Seq, data: JSONBody[EditText], thread: Thread = "main"
) -> SessionView:
    """Go back to before a message and send other words, in a thread of its own."""
    check_said("text", data.text)
    async with ask.session(session_id, thread) as session:
        await check_again(session, seq, ask.choices(session))
        forked = await session.thread.edit(seq, data.text, actor=ask.actor, thread=ask.once)
    return await _thread(ask, session_id, forked.key.thread)


@post(
    "/sessions/{session_id:str}/messages/{seq:int}/regenerate",
    opt=WRITE,
    operation_id="regenerate_message",
)
async def regenerate(
    ask: Ask, session_id: SessionId, seq: Seq, thread: Thread = "main"
) -> SessionView:
    """Ask a message again, in a thread of its own."""
    async with ask.session(session_id, thread) as session:
        await check_again(session, seq, ask.choices(session))
        forked = await session.thread.regenerate(seq, actor=ask.actor, thread=ask.once)
    return await _thread(ask, session_id, forked.key.thread)


async def _thread(ask: Asking, id: str, thread: str) -> SessionView:
    place, row = await ask.find(id, thread)
    engine, _, _ = await ask.engine_of(place, row)
    return ask.view(place, row, created=True, engine=engine)


HANDLERS: list[Any] = [
    *(send, steer, follow_up, abort, transcript),
    *(follow_ups, reorder, edit_follow_up, remove_follow_up, edit, regenerate),
]
