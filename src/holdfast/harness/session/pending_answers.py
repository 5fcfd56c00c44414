"""A session as persons answer it: what waits for them, in its thread and in those of the sub-agents
that work for it, and their decisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import AlreadyDecided, NotPending
from ...log import events as ev
from ...log.events import NewEvent
from ...log.state import CHILD
from ...stores.port import wall_clock
from ...values.pending import Ask, Decision, ask
from ..agents.subagents import tools_named
from ..live.inbox import Answer, settle
from ..live.inputs import check_seconds
from ..live.log import Live
from .base import Ground, Opener
from .subagents import Subagents, holder


class Answering(Ground):
    """A session whose run may wait for a person, and may have to wait for sub-agents."""

    subagents: Subagents[Any]

    def __init__(self, host: Opener[Any], live: Live, shared: Live) -> None:
        super().__init__(host, live, shared)
        self.subagents = Subagents(self, lambda thread: host.open(live.key.session, thread))

    async def pending(self) -> list[Ask]:
        """What waits for a person, oldest first; then what sub-agents that work for this thread
        ask. All of it is answered here."""
        self.check_open()
        return list(await asks(self))

    async def approve(
        self,
        item: str | None = None,
        *,
        arguments: Mapping[str, Any] | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> Decision:
        """Let a call be made, perhaps with other arguments (`InvalidValue`, and the item stays
        open, if the tool does not take them). Without an item: the only one."""
        answer = None if arguments is None else {"arguments": dict(arguments)}
        return await self.settle(item, "approved", actor=actor, reason=reason, answer=answer)

    async def deny(
        self, item: str | None = None, reason: str | None = None, *, actor: str | None = None
    ) -> Decision:
        """Refuse a call; the model is told the reason."""
        return await self.settle(item, "denied", actor=actor, reason=reason)

    async def answer(
        self, answer: Any, item: str | None = None, *, actor: str | None = None
    ) -> Decision:
        """Answer a question, or say what an outside call came to. What only asks whether a call
        may be made is approved or denied: `InvalidValue`."""
        return await self.settle(item, "answered", actor=actor, answer=answer)

    async def extend(self, item: str, seconds: float | None, *, actor: str | None = None) -> None:
        """Let an item expire so many seconds from now; None: never."""
        self.check_open()
        if item not in self.live.state.pending:
            pending = list(self.live.state.pending)
            raise NotPending(session=self.key.session, item=item, pending=pending)
        if seconds is not None:
            check_seconds("seconds", seconds)
        expires = None if seconds is None else wall_clock() + int(seconds * 1000)
        payload = ev.PendingExtended(id=item, expires=expires)
        await self.append(NewEvent.of("pending.extended", payload, actor=actor))

    async def settle(
        self,
        item: str | None,
        outcome: Answer,
        *,
        actor: str | None = None,
        reason: str | None = None,
        answer: Any = None,
        channel: str | None = None,
    ) -> Decision:
        """Decide on an item of this thread, or of a sub-agent's; None means the only one.
        `channel` is the way by which the decision came."""
        self.check()
        store = self.host.store
        where, item = await holder(store, self.key, item)
        mine = where == self.key
        live = self.live if mine else (await self.subagents.open(where.thread)).live
        more: Any = {"actor": actor, "reason": reason, "answer": answer, "channel": channel}
        tools = tools_named(self.host.config.agent)
        try:
            made = await settle(store, where, item, outcome, tools=tools, **more)
        except AlreadyDecided:
            await self.catch_up(live)  # so that it is not shown as open any more
            raise
        await live.reach(made.seq)
        self.host.wake(live)
        return made


async def asks(session: Answering) -> tuple[Ask, ...]:
    """What waits for a person in this thread, then in those of its sub-agents."""
    found, thread = [], session.key.thread
    for id, item in session.live.state.pending.items():
        if not id.endswith(CHILD) or await session.subagents.gone(id):
            opened = await session.live.payload(item.seq, ev.PendingOpened)
            found.append(ask(id, item, opened, thread))
    return (*found, *await session.subagents.asks())
