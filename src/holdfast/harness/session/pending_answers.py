"""The pending items of a session, in its thread and in the threads of its sub-agents, and the
decisions about them."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from ...environment import wall_clock
from ...errors import AlreadyDecided, NotPending
from ...log import events as ev
from ...log.codec import check_choice
from ...log.events import NewEvent, ids
from ...log.state import OpenItem
from ...values.pending import Ask, Decision, ask
from ..agents.subagents import tools_named
from ..live.decisions import Answer, settle_pending
from ..live.inputs import check_seconds
from .base import SessionCore, SessionPart
from .subagents import Subagents, thread_of_item
from .views import Permissions

Response: TypeAlias = Literal["approve", "decline", "always_allow_category"]
RESPONSES = get_args(Response)


async def asks(core: SessionCore[Any]) -> tuple[Ask, ...]:
    """Return the pending items of this thread, oldest first, then the pending items of its
    sub-agents."""
    found, children = [], Subagents(core)
    for id, item in core.live.state.pending.items():
        if not ids.is_child(id) or await children.gone(id):
            opened = await core.live.payload(item.seq, ev.PendingOpened)
            found.append(ask(id, item, opened, core.key.thread))
    return (*found, *await children.asks())


async def settle_item(
    core: SessionCore[Any],
    item: str | None,
    outcome: Answer,
    *,
    actor: str | None = None,
    reason: str | None = None,
    answer: Any = None,
    channel: str | None = None,
) -> Decision:
    """Decide on a pending item of this thread or of a sub-agent's thread. `item` is its id; None
    means the only pending item. `channel` says where the decision came from."""
    core.check()
    store, live = core.host.store, core.live
    where, item = await thread_of_item(store, core.key, item)
    if where != core.key:
        live = (await core.host.open(where.session, where.thread)).live
    more: Any = {"actor": actor, "reason": reason, "answer": answer, "channel": channel}
    tools = tools_named(core.host.config.agent)
    try:
        made = await settle_pending(store, where, item, outcome, tools=tools, **more)
    except AlreadyDecided:
        await core.catch_up(live)  # so that it is no longer shown as pending
        raise
    await live.reach(made.seq)
    core.host.wake(live)
    return made


async def extend_item(
    core: SessionCore[Any], item: str, seconds: float | None, actor: str | None
) -> None:
    """Change the expiry of a pending item to this many seconds from now; None means that it never
    expires."""
    core.check_open()
    if item not in core.live.state.pending:
        pending = list(core.live.state.pending)
        raise NotPending(session=core.key.session, item=item, pending=pending)
    if seconds is not None:
        check_seconds("seconds", seconds)
    expires = None if seconds is None else wall_clock() + int(seconds * 1000)
    payload = ev.PendingExtended(id=item, expires=expires)
    await core.append(NewEvent.of("pending.extended", payload, actor=actor))


class _PendingPart(SessionPart):
    """Base class for the pending items of one type: approvals, or all other items."""

    _approvals: bool

    def _matches(self, what: str) -> bool:
        return (what == "approval") == self._approvals

    def _items(self) -> list[OpenItem]:
        """Return the items of this thread only."""
        pending = self._state.pending.items()
        return [item for id, item in pending if self._matches(item.what) and not ids.is_child(id)]

    async def list(self) -> list[Ask]:
        """Return the items of this thread, oldest first, then the items of sub-agents that work for
        it."""
        self._core.check_open()
        return [one for one in await asks(self._core) if self._matches(one.what)]


class Suspensions(_PendingPart):
    """Pending tool calls that asked a question and resume with its answer."""

    _approvals = False

    @property
    def has_pending(self) -> bool:
        """Whether a call of this thread waits for an answer."""
        return bool(self._items())

    def has(self, call: str) -> bool:
        """Return whether this call waits for an answer."""
        return any(item.call == call for item in self._items())


class Approvals(_PendingPart):
    """Pending tool calls that need an approval."""

    _approvals = True

    @property
    def is_armed(self) -> bool:
        """Whether a call of this thread waits for an approval."""
        return bool(self._items())

    async def respond(
        self,
        decision: Response,
        item: str | None = None,
        *,
        reason: str | None = None,
        actor: str | None = None,
    ) -> Decision | None:
        """Decide on a call, by default the oldest. `item` is the id of the pending item or of its
        call. Returns None, and does nothing, if the call is no longer pending."""
        check_choice("decision", decision, RESPONSES)
        waiting = [one for one in await self.list() if item in (None, one.id, one.call)]
        if not waiting:
            return None
        if decision == "always_allow_category":
            await self._allow(waiting[0])
        outcome: Answer = "denied" if decision == "decline" else "approved"
        try:
            return await settle_item(self._core, waiting[0].id, outcome, actor=actor, reason=reason)
        except (AlreadyDecided, NotPending):
            return None

    async def _allow(self, one: Ask) -> None:
        """Grant the category of the call's tool, if it has one."""
        detail = one.detail if isinstance(one.detail, dict) else {}
        if (category := detail.get("category")) is not None:
            await Permissions(self._core).grant(category=category)
