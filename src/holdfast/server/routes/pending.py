"""Routes that list, approve, deny, answer and extend the pending items of a session."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

from litestar import get, post
from litestar.params import JSONBody, PathParameter

from ...errors import AlreadyDecided, Forbidden
from ...harness import Live, Session, core_of, settle_item, settle_pending, thread_of_item
from ...log.catalog import Parent, PendingQuery
from ...log.codec import LIMITS, typed
from ...log.events import (
    Event,
    Key,
    ModelCalled,
    PendingOpened,
    PendingSettled,
    PendingVoted,
    QueueChanged,
    RunStarted,
    ids,
)
from ...values.pending import Ask, Decision, ask
from ...wire import Answer, Approve, Asks, Deny, Extend
from ..http.context import Context, RequestContext
from ..streams.session_stream import UnservedSession, live_of
from .parameters import DECIDE, READ, SESSION, SessionId, Thread

Item = Annotated[str, PathParameter(min_length=1, max_length=512)]
BASE = f"{SESSION}/pending"


@get(BASE, opt=READ, operation_id="list_pending")
async def waiting(ctx: Context, session_id: SessionId, thread: Thread = "main") -> Asks:
    """Return the pending items of a session and of its sub-agents, oldest first."""
    _, row = await ctx.find(session_id, thread)
    if row.sealed is not None:  # the session was moved, and its pending items with it
        return Asks(items=[])
    async with ctx.reading(session_id, thread) as session:
        if isinstance(session, UnservedSession):
            return Asks(items=await unserved_asks(session.live))
        await core_of(session).catch_up()
        return Asks(items=await session.pending())


@post(BASE + "/{item:str}/approve", status_code=200, opt=DECIDE, operation_id="approve")
async def approve(
    ctx: Context,
    session_id: SessionId,
    item: Item,
    data: JSONBody[Approve | None] = None,
    thread: Thread = "main",
) -> Decision:
    """Approve a pending tool call, optionally with other arguments."""
    body = data or Approve()
    answer = None if body.arguments is None else {"arguments": body.arguments}
    if answer is not None and ctx.service.settings.two_person:
        raise Forbidden(
            problem="this server requires two-person approval, so arguments cannot be changed: "
            "approve the call unchanged, or deny it"
        )
    return await decide(ctx, session_id, thread, item, "approved", body.reason, answer)


@post(BASE + "/{item:str}/deny", status_code=200, opt=DECIDE, operation_id="deny")
async def deny(
    ctx: Context,
    session_id: SessionId,
    item: Item,
    data: JSONBody[Deny | None] = None,
    thread: Thread = "main",
) -> Decision:
    """Deny a pending tool call; the model receives the reason."""
    reason = None if data is None else data.reason
    return await decide(ctx, session_id, thread, item, "denied", reason)


@post(BASE + "/{item:str}/answer", status_code=200, opt=DECIDE, operation_id="answer")
async def answer(
    ctx: Context, session_id: SessionId, item: Item, data: JSONBody[Answer], thread: Thread = "main"
) -> Decision:
    """Answer a question, or record the result of an external call."""
    return await decide(ctx, session_id, thread, item, "answered", None, data.answer)


@post(BASE + "/{item:str}/extend", status_code=200, opt=DECIDE, operation_id="extend")
async def extend(
    ctx: Context, session_id: SessionId, item: Item, data: JSONBody[Extend], thread: Thread = "main"
) -> Asks:
    """Set when a pending item expires: after this many seconds, or never."""
    _check_operator(ctx, item)
    async with ctx.session(session_id, thread, current=True) as session:
        await _check_other_person(ctx, session, item)
        await session.extend(item, data.seconds, actor=ctx.actor)
        return Asks(items=await session.pending())


async def decide(
    ctx: RequestContext,
    id: str,
    thread: str,
    item: str,
    outcome: Any,
    reason: str | None,
    answer: Any = None,
) -> Decision:
    """Decide on a pending item of a session, for the caller. Only an operator extends a budget."""
    _check_operator(ctx, item)
    async with ctx.reading(id, thread) as session:
        live = live_of(session)
        said = {"actor": ctx.actor, "reason": reason, "answer": answer, "channel": "http"}
        try:
            if isinstance(session, UnservedSession):
                return await _decide_unserved(ctx, session, item, outcome, said)
            await core_of(session).catch_up()
            await _check_other_person(ctx, session, item)
            return await settle_item(core_of(session), item, outcome, **said)
        except AlreadyDecided:
            known = await _decided(live, item, outcome, ctx.actor) if ctx.again else None
            if known is None:
                raise
            return known  # decided by an earlier attempt of this request


def _check_operator(ctx: RequestContext, item: str) -> None:
    if ids.is_budget(item):
        ctx.caller.need("admin")


async def _decide_unserved(
    ctx: RequestContext, session: UnservedSession, item: str, outcome: Any, said: dict[str, Any]
) -> Decision:
    """Decide on an item of a session whose agent this server does not serve. The process that
    serves it continues the run. Changed arguments cannot be checked against the tool here."""
    if ctx.service.settings.two_person or (said["answer"] is not None and outcome == "approved"):
        raise session.unknown
    live = session.live
    where, found = await thread_of_item(live.store, live.key, item)
    return await settle_pending(live.store, where, found, outcome, **said)


async def unserved_asks(live: Live) -> list[Ask]:
    """Return the pending items of a thread that this server does not serve, and for thread `main`
    those of all threads of the session, oldest first."""
    found: list[Ask] = []
    query = PendingQuery(tenant=live.key.tenant, session=live.key.session)
    page = await live.store.pending(query, limit=LIMITS.page)
    whole = live.key.thread == "main"
    for thread in sorted(
        {one.thread for one in page.items if whole or one.thread == live.key.thread}
    ):
        where = Live(live.store, Key(live.key.tenant, live.key.session, thread))
        await where.open()
        try:
            for id, item in where.state.pending.items():
                if not ids.is_child(id):
                    opened = await where.payload(item.seq, PendingOpened)
                    found.append(ask(id, item, opened, thread))
        finally:
            await where.aclose()
    return sorted(found, key=lambda one: one.at)


async def _decided(live: Live, item: str, outcome: str, actor: str) -> Decision | None:
    """Return the decision on an item by this actor, or the actor's vote for it, or None."""
    where, _ = await thread_of_item(live.store, live.key, item)
    voters: dict[str | None, int] = {}  # the users who approved, most recent first
    opened: PendingOpened | None = None
    async for event in live.store.read(where, reverse=True):
        payload = typed(event)
        if getattr(payload, "id", None) != item:
            continue
        if isinstance(payload, PendingSettled):
            if event.actor == actor and payload.outcome == outcome:
                return Decision(item, outcome, actor, event.seq)
        elif isinstance(payload, PendingVoted):
            voters[event.actor] = event.seq
        elif isinstance(payload, PendingOpened):
            opened = payload
            break
    if opened is None or outcome != "approved" or actor not in voters:
        return None
    before = sum(1 for seq in voters.values() if seq < voters[actor])
    return Decision(item, "voted", actor, voters[actor], max(0, opened.approvals - before - 1))


async def _check_other_person(ctx: RequestContext, session: Session, item: str) -> None:
    """If the server requires two-person approval, reject a decision by a user whose messages led to
    the item: messages in its thread, or in a parent thread that may have delegated the work to
    it."""
    if not ctx.service.settings.two_person:
        return
    where, _ = await thread_of_item(core_of(session).live.store, session.key, item)
    asked: set[str | None] = {session.identity.user}
    thread: str | None = where.thread
    while thread is not None:
        async with ctx.session(session.key.session, thread, current=True) as above:
            parent = await _parent(above)
            asked |= await _askers(above, parent)
            thread = None if parent is None else parent.thread
    if ctx.actor in asked:
        raise Forbidden(
            problem="this server requires two-person approval: another user must decide"
        )


async def _parent(session: Session) -> Parent | None:
    row = await core_of(session).live.store.row(session.key)
    return None if row is None else row.parent


async def _askers(session: Session, parent: Parent | None) -> set[str | None]:
    """Return the actors of the messages that the current run has read, and the actor who forked its
    thread."""
    live = core_of(session).live
    if live.state.active is None:
        return set()
    found = await _senders(session, live.state.active.seq)
    if parent is not None:
        first = live.store.read(session.key, after=parent.at, limit=1, log=live.log)
        found |= {event.actor async for event in first}
    return found


async def _senders(session: Session, begun: int) -> set[str | None]:
    """Return the actors of the messages that were read by the run that started with event
    `begun`."""
    live = core_of(session).live
    inputs: set[int] = set()
    async for event in live.store.read(session.key, after=begun - 1, log=live.log):
        payload = typed(event)
        if isinstance(payload, (RunStarted, ModelCalled)):
            inputs.update(payload.inputs)
    first = min(inputs, default=live.state.head + 1)
    events = live.store.read(session.key, after=first - 1, log=live.log)
    return {event.actor async for event in events if event.seq in inputs or _rewords(event, inputs)}


def _rewords(event: Event, inputs: Collection[int]) -> bool:
    """Return whether an event edits the text of one of these messages."""
    payload = typed(event) if event.kind == "queue.changed" else None
    return isinstance(payload, QueueChanged) and any(str(seq) in payload.texts for seq in inputs)


HANDLERS: list[Any] = [waiting, approve, deny, answer, extend]
