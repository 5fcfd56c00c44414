"""What the protocols of front ends do with a session: open it, send a message once, send it again,
decide on pending items, and follow a run. They add no state: everything is read from the log."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from ...errors import AlreadyDecided, InvalidValue, LogReplaced, SessionNotFound
from ...harness import Live, Session, core_of
from ...log import events as ev
from ...log.events import ids, new_id
from ...log.transcript import Message
from ...stores.conversation import messages_of
from ...values.options import SendOptions
from ...wire import GetOrCreate, cursor, read_cursor
from ..http.context import RequestContext
from ..routes.pending import decide
from ..routes.sessions import begin, check_id
from ..streams.session_stream import StreamRequest

MESSAGE = "holdfast.message"  # metadata of a message: the id that the client gave it
CLIENT = "client:"  # idempotency keys of messages of clients begin with it
RECENT, LONGEST = 100, 1_000  # messages that are looked through for one


class Wish(Struct, frozen=True):
    """A decision on a pending item that a client asks for."""

    item: str
    outcome: str
    reason: str | None = None
    answer: Any = None


@asynccontextmanager
async def opened(
    ctx: RequestContext, id: str, thread: str, agent: str | None
) -> AsyncGenerator[Session, None]:
    """Context manager that opens a session, which is created if it does not exist."""
    check_id(id)
    try:
        await ctx.find(id)
    except SessionNotFound:
        if thread != "main":
            raise
        await begin(ctx, id, GetOrCreate(agent=agent), new=False)
    async with ctx.session(id, thread, current=True) as session:
        yield session


async def send(
    ctx: RequestContext, session: Session, id: str, content: Any, model: str | None
) -> int:
    """Send a message of a client, which has the id `id` there, and return its number. The same
    message is sent once. If the client has changed the message, the conversation is returned to
    where it was before it, and the message is sent again."""
    ctx.choices(session).check_message(ev.MessageReceived(text="", model=model))
    head = core_of(session).live.state.head
    try:
        seq = await session.post(content, **_options(ctx, id, id, model))
    except InvalidValue as error:
        if error.field != "key":
            raise
    else:
        if seq > head or await _shown(session, seq):
            return seq
    known = await _sent_again(ctx, session, id, content, model)
    return await send_again(ctx, session, id, content, model) if known is None else known


async def _sent_again(
    ctx: RequestContext, session: Session, id: str, content: Any, model: str | None
) -> int | None:
    """Return the number of the message if it was sent again before, with the same content: the
    request has arrived twice."""
    newest = await _newest(core_of(session).live, id)
    key = "" if newest is None else ids.input_key(newest.id)
    if newest is None or not key.startswith(f"{CLIENT}{id}#"):
        return None
    try:
        options = _options(ctx, id, key.removeprefix(CLIENT), model)
        return await session.post(content, **options)
    except InvalidValue as error:
        if error.field != "key":
            raise
        return None


async def send_again(
    ctx: RequestContext, session: Session, id: str, content: Any, model: str | None
) -> int:
    """Return the conversation to where it was before a message and send the message again, in one
    append. Raises `SessionBusy` while a run or a pending item is open."""
    ctx.choices(session).check_message(ev.MessageReceived(text="", model=model))
    core = core_of(session)
    found = await _newest(core.live, id)
    if found is None:
        key = f"{id}#{core.live.state.rewound or 0}"
        return await session.post(content, **_options(ctx, id, key, model))
    options = _options(ctx, id, f"{id}#{new_id()}", model)
    return await core.post_at(found.seq - 1, content, **options)


def _options(ctx: RequestContext, id: str, key: str, model: str | None) -> SendOptions:
    return {
        "busy": "queue",
        "key": f"{CLIENT}{key}",
        "actor": ctx.actor,
        "metadata": {MESSAGE: id},
        "model": model,
    }


async def _newest(live: Live, id: str) -> Message | None:
    """Return the newest message of the conversation that has this id at the client."""
    messages = await messages_of(live.store, live.key, LONGEST)
    mine = [one for one in messages if one.role == "user" and one.metadata.get(MESSAGE) == id]
    return mine[-1] if mine else None


async def _shown(session: Session, seq: int) -> bool:
    """Return whether a message is still part of the conversation."""
    live = core_of(session).live
    messages = await messages_of(live.store, live.key, RECENT)
    older = len(messages) == RECENT and messages[0].seq > seq
    return older or any(one.seq == seq for one in messages)


async def settle(ctx: RequestContext, session: Session, wishes: Iterable[Wish]) -> None:
    """Decide on pending items for the caller. Repeating the same decision is not an error."""
    key = session.key
    for wish in wishes:
        ctx.caller.need("pending:decide")
        try:
            await decide(
                *(ctx, key.session, key.thread, wish.item, wish.outcome, wish.reason, wish.answer)
            )
        except AlreadyDecided as error:
            if error.outcome != wish.outcome:
                raise


async def followed(session: Session, *, last: bool = False) -> tuple[StreamRequest, str] | None:
    """Return the stream of the active run from its beginning, and the id of the run. If none is
    active, the stream of the next queued message, or with `last` of the last run. Returns None if
    there is nothing to follow."""
    live = core_of(session).live
    state = live.state
    run = state.active or (state.run if last and not state.queue else None)
    if run is None:
        if not state.queue:
            return None
        seq = state.queue[0].seq
        return StreamRequest(after=cursor(live.log, seq - 1), input=seq), ""
    after = cursor(live.log, run.seq - 1)
    started = await live.payload(run.seq, ev.RunStarted)
    for seq in started.inputs if started is not None else ():
        return StreamRequest(after=after, input=seq), run.id or ""
    return StreamRequest(after=after, until="idle"), run.id or ""


def resumed_at(live: Live, known: Any, since: int) -> str:
    """Return the cursor from which a client continues: its own cursor, if it belongs to this log
    and is after event `since`, else the end of the log."""
    if not isinstance(known, str):
        return cursor(live.log, live.state.head)
    log, seq = read_cursor(known)
    if log is not None and log != live.log:
        key = live.key
        names = {"tenant": key.tenant, "session": key.session, "thread": key.thread}
        raise LogReplaced(**names, known=log[:200], log=live.log)
    if seq > live.state.head:
        raise InvalidValue(
            field="cursor",
            problem=f"{seq} is past the end of the log (last event: {live.state.head})",
            remedy="read the messages again",
        )
    return cursor(live.log, seq if seq >= since else live.state.head)
