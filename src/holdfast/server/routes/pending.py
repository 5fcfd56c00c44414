"""What waits for a person: looked at and decided, by those who may."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import get, post
from litestar.params import JSONBody, PathParameter

from ...codec import typed
from ...errors import AlreadyDecided, Forbidden
from ...events import ModelCalled, RunStarted
from ...harness.inbox import Decision
from ...harness.session import Session
from ...wire import Answer, Approve, Asks, Deny, Extend
from ..asking import Ask, Asking, SessionId, Thread

READ = {"scope": "sessions:read"}
Item = Annotated[str, PathParameter(min_length=1, max_length=512)]
DECIDE = {"scope": "pending:decide"}
BASE = "/sessions/{session_id:str}/pending"


@get(BASE, opt=READ, operation_id="list_pending")
async def waiting(ask: Ask, session_id: SessionId, thread: Thread = "main") -> Asks:
    """What waits for a person in a session, oldest first, also what its sub-agents ask."""
    async with ask.session(session_id, thread) as session:
        await session.catch_up()
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
        await session.catch_up()
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
        await session.catch_up()
        if ask.service.settings.two_person:
            await _another(ask, session)
        try:
            return await session.settle(
                item, outcome, actor=ask.actor, reason=reason, answer=answer, channel="http"
            )
        except AlreadyDecided as decided:
            mine = (decided.outcome, decided.by) == (outcome, ask.actor)
            if ask.again and mine:  # it was decided, and nobody was there to say so
                return Decision(item, outcome, ask.actor, session.live.state.head)
            raise


async def _another(ask: Asking, session: Session) -> None:
    """Refuse to let those decide who have asked for what is to be decided."""
    live, run = session.live, session.live.state.active
    asked = {session.identity.user}
    first = run.seq if run is not None else live.state.head + 1
    async for event in live.store.read(session.key, after=first - 1, log=live.log):
        payload = typed(event)
        for seq in payload.inputs if isinstance(payload, (RunStarted, ModelCalled)) else ():
            message = await live.event(seq)
            asked.add(message.actor if message is not None else None)
    if ask.actor in asked:
        raise Forbidden(problem="somebody else has to decide this")


HANDLERS: list[Any] = [waiting, approve, deny, answer, extend]
