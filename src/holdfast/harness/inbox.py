"""Answering what waits: decided once, by whoever is first, from any process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from .. import events as ev
from ..catalog import Row
from ..codec import typed
from ..errors import AlreadyDecided, InvalidValue, NotPending
from ..events import Event, Key, NewEvent
from ..store import Store, wall_clock
from .answers import mismatch
from .tools import BadArguments, Tool
from .tools.values import ROOT

Answer: TypeAlias = Literal["approved", "denied", "answered"]
Tools: TypeAlias = Callable[[str], Sequence[Tool]]


class Decision(Struct, frozen=True):
    """A decision that is in the log."""

    item: str
    outcome: str
    by: str | None
    seq: int


async def settle(
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
    """Decide on an item; None means the only one. `AlreadyDecided` if somebody did before,
    `NotPending` if there is no such item. It needs no driver and no lease. `channel` is the
    way by which the decision came.

    `InvalidValue`, and the item stays open, for an answer that the question does not allow, for
    one to a call that can only be approved or denied, and for arguments that the tool does not
    take, where `tools` knows the tools of a name."""
    row = await store.row(key)
    item = await _meant(store, key, row, item)
    about = row.pending.get(item, {}) if row is not None else {}
    if about and outcome != "denied" and (opened := await _opened(store, key, about["seq"])):
        _check_answer(item, opened, outcome, answer)
        _check_arguments(opened, outcome, answer, tools)
    payload = ev.PendingSettled(
        id=item, outcome=outcome, answer=answer, reason=reason, channel=channel
    )
    late = await _late(store, key, item, about)
    if late:  # nobody was there to say so
        payload, actor = ev.PendingSettled(id=item, outcome="expired"), None
    event = NewEvent.of("pending.settled", payload, id=f"settle:{item}", actor=actor)
    done = await store.append(key, [event], log=row.log if row is not None else None)
    if late or not done.fresh:
        raise await _decided(store, key, item, done.seqs[0])
    return Decision(item, outcome, actor, done.seqs[0])


async def _meant(store: Store, key: Key, row: Row | None, item: str | None) -> str:
    waiting = list(row.pending) if row is not None else []
    if item is None and len(waiting) == 1:
        return waiting[0]
    if item is not None and (item in waiting or await was(store, key, item)):
        return item
    raise NotPending(session=key.session, item=item, pending=waiting)


async def _late(store: Store, key: Key, item: str, about: Mapping[str, Any]) -> bool:
    """Whether its time was over before anybody answered."""
    if (expires := about.get("expires")) is None or expires > wall_clock():
        return False
    async for event in store.read(key, after=about["seq"]):
        extended = typed(event) if event.kind == "pending.extended" else None
        if isinstance(extended, ev.PendingExtended) and extended.id == item:
            expires = extended.expires
    return expires is not None and expires <= wall_clock()


async def _opened(store: Store, key: Key, seq: int) -> ev.PendingOpened | None:
    """The question itself, event `seq`; None if it cannot be read any more."""
    found: ev.Payload | None = None
    async for event in store.read(key, after=seq - 1, before=seq + 1):
        found = typed(event)
    return found if isinstance(found, ev.PendingOpened) else None


def _check_answer(item: str, opened: ev.PendingOpened, outcome: Answer, answer: Any) -> None:
    """Refuse an answer that the question does not allow; the item stays open."""
    if outcome != "answered":
        return
    if opened.what == "approval" and not opened.parked:
        raise InvalidValue(
            field="answer",
            problem=f"item {item!r} asks whether a call may be made, which an answer does not say",
            remedy="approve it, perhaps with other arguments, or deny it with a reason",
        )
    schema = opened.detail.get("schema") if isinstance(opened.detail, dict) else None
    if schema is not None and (wrong := mismatch(schema, answer)) is not None:
        raise InvalidValue(field="answer", problem=wrong, remedy="give what is asked for")


def _check_arguments(
    opened: ev.PendingOpened, outcome: Answer, answer: Any, tools: Tools | None
) -> None:
    """Refuse other arguments that the tool does not take; the item stays open. Nothing is said of
    a tool that is not known here, or not as it was when it was asked about."""
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
            remedy=f"give what {tool.name} takes; nothing was decided",
        )
    return None


async def was(store: Store, key: Key, item: str) -> bool:
    """Whether there ever was such an item: then its decision is in the log."""
    async for event in store.read(key, reverse=True):
        if event.kind == "pending.settled" and event.id == f"settle:{item}":
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
    outcome = said.outcome if isinstance(said, ev.PendingSettled) else "decided"
    by, at = (found.actor, found.at) if found is not None else (None, 0)
    return AlreadyDecided(session=key.session, item=item, outcome=outcome, by=by, at=at)
