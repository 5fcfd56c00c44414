"""Decisions about pending items. Each item is decided once, from any process; the first decision
counts. If a call needs several approvals, the last required approval decides, and a single denial
denies the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from ...environment import wall_clock
from ...errors import AlreadyDecided, HeadMoved, InvalidValue, NotPending
from ...log import events as ev
from ...log.catalog import Row
from ...log.codec import typed
from ...log.events import Event, Key, NewEvent, ids
from ...sessions.budgets import extend
from ...stores.port import Store
from ...stores.rules import found
from ...values.pending import Decision
from ..tools import BadArguments, Tool
from ..tools.values import ROOT
from .answers import mismatch

Answer: TypeAlias = Literal["approved", "denied", "answered"]
Tools: TypeAlias = Callable[[str], Sequence[Tool]]


async def settle_pending(
    store: Store,
    key: Key,
    item: str | None,
    outcome: Answer,
    *,
    actor: str | None = None,
    reason: str | None = None,
    answer: Any = None,
    channel: str | None = None,
    tools: Tools | None = None,
) -> Decision:
    """Decide on the pending item with the id `item`; None means the only pending item. Needs no
    driver and no lease. `channel` says where the decision came from.

    Raises `AlreadyDecided` if the item was decided before, and `NotPending` if it does not exist.
    Raises `InvalidValue`, and leaves the item pending, for an answer that does not fit the
    question, for an answer to a call that can only be approved or denied, and for arguments that do
    not fit the tool (if `tools` finds it). If several approvals are required, changed arguments and
    approvals without an `actor` are invalid too.
    """
    row = await store.row(key)
    item = await _meant(store, key, row, item)
    about = row.pending.get(item, {}) if row is not None else {}
    opened: ev.PendingOpened | None = None
    if about and outcome != "denied" and (opened := await _opened(store, key, about["seq"])):
        _check_answer(item, opened, outcome, answer)
        _check_arguments(opened, outcome, answer, tools)
    payload = ev.PendingSettled(
        id=item, outcome=outcome, answer=answer, reason=reason, channel=channel
    )
    late = await _late(store, key, item, about)
    if ids.is_budget(item) and outcome != "denied" and opened is not None and not late:
        if outcome == "approved":
            raise _only_extended(item)
        await extend(store, key.tenant, opened, answer, actor)
    if row is not None and opened is not None and opened.approvals > 1 and not late:
        return await _vote(store, row, opened, payload, actor)
    if late:  # no driver was active to expire it
        payload, actor = ev.PendingSettled(id=item, outcome="expired"), None
    event = NewEvent.of("pending.settled", payload, id=ids.settle_id(item), actor=actor)
    done = await store.append(key, [event], log=row.log if row is not None else None)
    if late or not done.fresh:
        raise await _decided(store, key, item, done.seqs[0])
    return Decision(item, outcome, actor, done.seqs[0])


def _only_extended(item: str) -> InvalidValue:
    return InvalidValue(
        field="outcome",
        problem=f"is 'approved', but item {item!r} asks for an extension of a budget",
        remedy='answer it with {"extend": {...}}, or deny it',
    )


async def _vote(
    store: Store, row: Row, opened: ev.PendingOpened, payload: ev.PendingSettled, actor: str | None
) -> Decision:
    """Record an approval. If it is the last one required, decide in the same append."""
    if actor is None:
        problem = f"is missing, and this call needs {opened.approvals} approvals"
        raise InvalidValue(field="actor", problem=problem, remedy="pass the name of the approver")
    if payload.answer is not None:
        problem = "cannot be changed for a call that needs several approvals"
        remedy = (
            "approve the call unchanged, or deny it and state the correct arguments in the reason"
        )
        raise InvalidValue(field="arguments", problem=problem, remedy=remedy)
    item, key = opened.id, row.key
    said = ev.PendingVoted(id=item, reason=payload.reason, channel=payload.channel)
    vote = NewEvent.of("pending.voted", said, id=ids.vote_id(item, actor), actor=actor)
    decided = NewEvent.of("pending.settled", payload, id=ids.settle_id(item), actor=actor)
    while True:
        if item not in row.pending:
            raise await _settled(store, key, item)
        voted = await _votes(store, row, item)
        if (before := next((one for one in voted if one.actor == actor), None)) is not None:
            raise AlreadyDecided(
                session=key.session, item=item, outcome="voted", by=actor, at=before.at
            )
        left = max(0, opened.approvals - len({one.actor for one in voted}) - 1)
        events = [vote] if left else [vote, decided]
        try:
            done = await store.append(key, events, expected=row.head, log=row.log)
        except HeadMoved:
            row = found(key, await store.row(key), row.log)
        else:
            if not done.fresh:  # the same approval, sent twice, was recorded in the meantime
                raise await _decided(store, key, item, done.seqs[-1])
            return Decision(item, "voted" if left else "approved", actor, done.seqs[-1], left)


async def _votes(store: Store, row: Row, item: str) -> list[Event]:
    """Return the approvals of an open item, oldest first."""
    voted: list[Event] = []
    events = store.read(row.key, after=row.pending[item]["seq"], before=row.head + 1, log=row.log)
    async for event in events:
        said = typed(event) if event.kind == "pending.voted" else None
        if isinstance(said, ev.PendingVoted) and said.id == item and event.actor is not None:
            voted.append(event)
    return voted


async def _settled(store: Store, key: Key, item: str) -> AlreadyDecided:
    """Return the error for an item that was decided in the meantime."""
    async for event in store.read(key, reverse=True):
        if event.kind == "pending.settled" and event.id == ids.settle_id(item):
            return await _decided(store, key, item, event.seq)
    return AlreadyDecided(session=key.session, item=item, outcome="decided", by=None, at=0)


async def _meant(store: Store, key: Key, row: Row | None, item: str | None) -> str:
    waiting = list(row.pending) if row is not None else []
    if item is None and len(waiting) == 1:
        return waiting[0]
    if item is not None and (item in waiting or await was(store, key, item)):
        return item
    raise NotPending(session=key.session, item=item, pending=waiting)


async def _late(store: Store, key: Key, item: str, about: Mapping[str, Any]) -> bool:
    """Return whether the item expired before it was answered."""
    if (expires := about.get("expires")) is None or expires > wall_clock():
        return False
    async for event in store.read(key, after=about["seq"]):
        extended = typed(event) if event.kind == "pending.extended" else None
        if isinstance(extended, ev.PendingExtended) and extended.id == item:
            expires = extended.expires
    return expires is not None and expires <= wall_clock()


async def _opened(store: Store, key: Key, seq: int) -> ev.PendingOpened | None:
    """Return the pending item that event `seq` opened, or None if the event can no longer be
    read."""
    found: ev.Payload | None = None
    async for event in store.read(key, after=seq - 1, before=seq + 1):
        found = typed(event)
    return found if isinstance(found, ev.PendingOpened) else None


def _check_answer(item: str, opened: ev.PendingOpened, outcome: Answer, answer: Any) -> None:
    """Reject an answer that does not fit the question; the item stays open."""
    if outcome != "answered":
        return
    if opened.what == "approval" and not opened.parked:
        raise InvalidValue(
            field="answer",
            problem=f"does not fit item {item!r}, which asks for an approval",
            remedy="approve it, optionally with other arguments, or deny it with a reason",
        )
    schema = opened.detail.get("schema") if isinstance(opened.detail, dict) else None
    if schema is not None and (wrong := mismatch(schema, answer)) is not None:
        raise InvalidValue(
            field="answer", problem=wrong, remedy="pass an answer that fits the question"
        )


def _check_arguments(
    opened: ev.PendingOpened, outcome: Answer, answer: Any, tools: Tools | None
) -> None:
    """Reject changed arguments that do not fit the tool; the item stays open. Arguments are not
    checked if the tool is unknown in this process, or has changed since the item was opened."""
    changed = outcome == "approved" and isinstance(answer, dict) and "arguments" in answer
    if not changed or tools is None or opened.parked or not isinstance(opened.detail, dict):
        return
    mark = opened.detail.get("fingerprint")
    known = [
        tool for tool in tools(str(opened.detail.get("tool"))) if mark in (None, tool.fingerprint)
    ]
    wrong = [error for tool in known if (error := _wrong(tool, answer["arguments"])) is not None]
    if wrong and len(wrong) == len(known):
        raise wrong[0]


def _wrong(tool: Tool, arguments: Any) -> InvalidValue | None:
    try:
        tool.parse(arguments)
    except BadArguments as error:
        first, *more = error.issues
        rest = "".join(f"; {issue.path}: {issue.problem}" for issue in more)
        return InvalidValue(
            field="arguments" if first.path == ROOT else f"arguments.{first.path}",
            problem=f"{first.problem}{rest}",
            remedy=f"pass arguments that {tool.name!r} accepts; the item is still pending",
        )
    return None


async def was(store: Store, key: Key, item: str) -> bool:
    """Return whether the log contains a decision on this item."""
    async for event in store.read(key, reverse=True):
        if event.kind == "pending.settled" and event.id == ids.settle_id(item):
            return True
        if event.kind == "pending.opened":
            opened = typed(event)
            if isinstance(opened, ev.PendingOpened) and opened.id == item:
                return False
    return False


async def _decided(store: Store, key: Key, item: str, seq: int) -> AlreadyDecided:
    found: Event | None = None
    async for event in store.read(key, after=seq - 1, before=seq + 1):
        found = event
    said = typed(found) if found is not None else None
    outcome: str = "voted" if isinstance(said, ev.PendingVoted) else "decided"
    if isinstance(said, ev.PendingSettled):
        outcome = said.outcome
    by, at = (found.actor, found.at) if found is not None else (None, 0)
    return AlreadyDecided(session=key.session, item=item, outcome=outcome, by=by, at=at)
