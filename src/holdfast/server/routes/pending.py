"""What waits for a person: looked at and decided, by those who may."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

from litestar import get, post
from litestar.params import JSONBody, PathParameter

from ...errors import AlreadyDecided, Forbidden
from ...harness.session.pending_answers import settle_item
from ...harness.session.session import Session, core_of
from ...harness.session.subagents import holder
from ...log.catalog import Parent
from ...log.codec import typed
from ...log.events import (
    Event,
    ModelCalled,
    PendingOpened,
    PendingSettled,
    PendingVoted,
    QueueChanged,
    RunStarted,
)
from ...values.pending import Decision
from ...wire import Answer, Approve, Asks, Deny, Extend
from ..http.context import Ask, Asking, SessionId, Thread

READ = {"scope": "sessions:read"}
Item = Annotated[str, PathParameter(min_length=1, max_length=512)]
DECIDE = {"scope": "pending:decide"}
BASE = "/sessions/{session_id:str}/pending"


@get(BASE, opt=READ, operation_id="list_pending")
async def waiting(ask: Ask, session_id: SessionId, thread: Thread = "main") -> Asks:
    """What waits for a person in a session, oldest first, also what its sub-agents ask."""
    _, row = await ask.find(session_id, thread)
    if row.sealed is not None:  # it waits where it was moved to, if anywhere
        return Asks(items=[])
    async with ask.session(session_id, thread) as session:
        await core_of(session).catch_up()
        return Asks(items=await session.pending())


@post(BASE + "/{item:str}/approve", status_code=200, opt=DECIDE, operation_id="approve")
async def approve(
    ask: Ask,
    session_id: SessionId,
    item: Item,
    data: JSONBody[Approve | None] = None,
    thread: Thread = "main",
) -> Decision:
    """Let a call be made, perhaps with other arguments."""
    said = data or Approve()
    if said.arguments is not None and ask.service.settings.two_person:
        raise Forbidden(problem="one person alone does not say what is called: approve it or deny")
    answer = None if said.arguments is None else {"arguments": said.arguments}
    return await _decide(ask, session_id, thread, item, "approved", said.reason, answer)


@post(BASE + "/{item:str}/deny", status_code=200, opt=DECIDE, operation_id="deny")
async def deny(
    ask: Ask,
    session_id: SessionId,
    item: Item,
    data: JSONBody[Deny | None] = None,
    thread: Thread = "main",
) -> Decision:
    """Refuse a call; the model is told the reason."""
    said = data or Deny()
    return await _decide(ask, session_id, thread, item, "denied", said.reason)


@post(BASE + "/{item:str}/answer", status_code=200, opt=DECIDE, operation_id="answer")
async def answer(
    ask: Ask, session_id: SessionId, item: Item, data: JSONBody[Answer], thread: Thread = "main"
) -> Decision:
    """Answer a question, or say what an outside call came to."""
    return await _decide(ask, session_id, thread, item, "answered", None, data.answer)


@post(BASE + "/{item:str}/extend", status_code=200, opt=DECIDE, operation_id="extend")
async def extend(
    ask: Ask, session_id: SessionId, item: Item, data: JSONBody[Extend], thread: Thread = "main"
) -> Asks:
    """Let an item expire so many seconds from now, or never."""
    async with ask.session(session_id, thread) as session:
        await core_of(session).catch_up()
        await _another(ask, session, item)
        await session.extend(item, data.seconds, actor=ask.actor)
        return Asks(items=await session.pending())


async def _decide(
    ask: Asking,
    id: str,
    thread: str,
    item: str,
    outcome: Any,
    reason: str | None,
    answer: Any = None,
) -> Decision:
    async with ask.session(id, thread) as session:
        await core_of(session).catch_up()
        await _another(ask, session, item)
        try:
            return await settle_item(
                core_of(session),
                item,
                outcome,
                actor=ask.actor,
                reason=reason,
                answer=answer,
                channel="http",
            )
        except AlreadyDecided:
            said = await _said(session, item, outcome, ask.actor) if ask.again else None
            if said is None:
                raise
            return said  # it was said, and nobody was there to answer; others may have decided


async def _said(session: Session, item: str, outcome: str, actor: str) -> Decision | None:
    """What somebody was told, or was to be told, who has decided on an item or agreed to it."""
    where, _ = await holder(core_of(session).live.store, session.key, item)
    voters: dict[str | None, int] = {}  # who agreed, the last first
    opened: PendingOpened | None = None
    async for event in core_of(session).live.store.read(where, reverse=True):
        said = typed(event)
        if isinstance(said, PendingSettled) and said.id == item:
            if event.actor == actor and said.outcome == outcome:
                return Decision(item, outcome, actor, event.seq)
        elif isinstance(said, PendingVoted) and said.id == item:
            voters[event.actor] = event.seq
        elif isinstance(said, PendingOpened) and said.id == item:
            opened = said
            break
    if opened is None or outcome != "approved" or actor not in voters:
        return None
    before = sum(1 for seq in voters.values() if seq < voters[actor])
    return Decision(item, "voted", actor, voters[actor], max(0, opened.approvals - before - 1))


async def _another(ask: Asking, session: Session, item: str) -> None:
    """With two persons, refuse to let those decide who have asked for what is to be decided: in the
    thread in which the item waits, and in those above, which may have handed it on to it."""
    if not ask.service.settings.two_person:
        return
    where, _ = await holder(core_of(session).live.store, session.key, item)
    asked: set[str | None] = {session.identity.user}
    thread: str | None = where.thread
    while thread is not None:
        async with ask.session(session.key.session, thread) as above:
            await core_of(above).catch_up()
            asked |= await _askers(above)
            parent = await _parent(above)
            thread = None if parent is None else parent.thread
    if ask.actor in asked:
        raise Forbidden(problem="somebody else has to decide this")


async def _parent(session: Session) -> Parent | None:
    row = await core_of(session).live.store.row(session.key)
    return None if row is None else row.parent


async def _askers(session: Session) -> set[str | None]:
    """Those whose words the run that is going has read, and who wanted them to be asked again."""
    run = core_of(session).live.state.active
    if run is None:
        return set()
    return await _forker(session) | await _senders(session, run.seq)


async def _forker(session: Session) -> set[str | None]:
    """Who had a thread branch off, which may have asked a message again."""
    if (parent := await _parent(session)) is None:
        return set()
    live = core_of(session).live
    first = live.store.read(session.key, after=parent.at, limit=1, log=live.log)
    return {event.actor async for event in first}


async def _senders(session: Session, begun: int) -> set[str | None]:
    """Whose words a run has read that began with this event."""
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
    """Whether somebody gave one of these messages other words."""
    payload = typed(event) if event.kind == "queue.changed" else None
    return isinstance(payload, QueueChanged) and any(str(seq) in payload.texts for seq in inputs)


HANDLERS: list[Any] = [waiting, approve, deny, answer, extend]
