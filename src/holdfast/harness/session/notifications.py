"""Telling a session of something that happened elsewhere: how soon its model reads of it depends on
how urgent it is, and on whether a run is going. Each is in the log before `send` returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ...errors import HeadMoved, InvalidValue
from ...log import events as ev
from ...log.codec import check_name, typed
from ...log.events import Event, NewEvent, ids, new_id
from ...log.state import ENTRIES
from ..live.inputs import check_text, message_id
from .base import SessionPart

NAME = 128  # bytes of the source, of the kind, and of what a notice is about
MARK = "notification"  # in the metadata of what carries one
Priority: TypeAlias = Literal["low", "medium", "high", "urgent"]
Route: TypeAlias = Literal["steer", "queue", "mention", "drop"]
Status: TypeAlias = Literal["pending", "delivered", "replaced", "dropped"]

# What is done while nothing goes on, and while something does.
ROUTES: dict[str, tuple[Route, Route]] = {
    "urgent": ("queue", "steer"),
    "high": ("queue", "queue"),
    "medium": ("queue", "mention"),
    "low": ("mention", "mention"),
}


class Notice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened: where it is from, of which kind, and what it was in a sentence."""

    source: str
    kind: str
    summary: str
    priority: Priority = "medium"
    payload: Any = None
    about: str | None = None

    @property
    def text(self) -> str:
        """What a model reads that is only to know of it."""
        return f"Notification from {self.source} ({self.kind}, {self.priority}): {self.summary}"

    @property
    def full(self) -> str:
        """The same, with all there is."""
        if self.payload is None:
            return self.text
        return f"{self.text}\n{msgspec.json.encode(self.payload).decode()}"


Policy: TypeAlias = Callable[[Notice, bool], Route]


class NoticeDelivery(Struct, frozen=True):
    """What became of a notice. `seq` is the event that carries it; a notice that was dropped at
    once has none."""

    notice: Notice
    route: Route
    status: Status
    seq: int = 0
    at: int = 0


def route(notice: Notice, busy: bool) -> Route:
    """How a notice is passed on, unless a program decides otherwise."""
    return ROUTES[notice.priority][busy]


class Notifications(SessionPart):
    """What the session is told of by programs, not by people."""

    async def send(
        self,
        source: str,
        kind: str,
        summary: str,
        *,
        priority: Priority = "medium",
        payload: Any = None,
        key: str | None = None,
        about: str | None = None,
        policy: Policy = route,
    ) -> NoticeDelivery:
        """Tell the model of something. `steer`: the run that is going reads it at its next safe
        point; `queue`: it has a run of its own; `mention`: the model reads the summary with its
        next call, whatever that is for; `drop`: nothing is written.

        The same `key` again is the same notice. A mention takes the place of an earlier one
        from the same source that is `about` the same, if that was not read yet."""
        notice = _checked(source, kind, summary, priority, payload, about)
        if key is not None:
            check_name("key", key, limit=NAME)
        state = await self._core.catch_up()
        chosen = policy(notice, state.active is not None or bool(state.queue))
        if chosen not in ("steer", "queue", "mention", "drop"):
            remedy = "return steer, queue, mention or drop"
            raise InvalidValue(field="policy", problem=f"returned {chosen!r}", remedy=remedy)
        if chosen == "drop":
            return NoticeDelivery(notice, chosen, "dropped")
        key = None if key is None else ids.notice_id(source, key)
        if chosen == "mention":
            seq = await self._mention(notice, key)
        else:
            seq = await self._core.post(
                notice.full, busy=chosen, key=key, actor=source, metadata=_marked(notice)
            )
        event = await self._core.live.event(seq)
        known = None if event is None else _carried(event)
        if event is None or known is None:
            return NoticeDelivery(notice, chosen, "pending", seq)
        return NoticeDelivery(*known, self._status(event), seq, event.at)

    async def list(self, limit: int = 50) -> list[NoticeDelivery]:
        """The latest notices, oldest first, and what became of each."""
        self._core.check_open()
        live, found = self._core.live, list[NoticeDelivery]()
        removed, later = set[int](), dict[str, bool]()
        async for event in live.store.read(live.key, reverse=True, log=live.log):
            if event.kind == "message.completed":
                later = dict.fromkeys(later, True)
            payload = typed(event)
            if isinstance(payload, ev.QueueChanged):
                removed.update(payload.remove)
            if (carried := _carried(event)) is None:
                continue
            status = "dropped" if event.seq in removed else self._status(event)
            if isinstance(payload, ev.ContextAdded):
                if later.get(payload.id) is False:
                    status = "replaced"
                later[payload.id] = False
            found.append(NoticeDelivery(*carried, status, event.seq, event.at))
            if len(found) == limit:
                break
        return found[::-1]

    def _status(self, event: Event) -> Status:
        queued = [item.seq for item in self._state.queue]
        shown = [item.seq for item in self._state.contexts.values()]
        return "pending" if event.seq in (*queued, *shown) else "delivered"

    async def _mention(self, notice: Notice, key: str | None) -> int:
        """Put a summary where the next model call finds it. It wakes nobody, and is not used up by
        a call that is going on."""
        live, store = self._core.live, self._core.host.store
        payload = ev.ContextAdded(
            id=ids.notice_id(notice.source, notice.about or new_id()),
            content=notice.text,
            role="message",
            scope="session",
            on="model.called",
            metadata=_marked(notice),
        )
        event = NewEvent.of("context.added", payload, id=message_id(key), actor=notice.source)
        while True:
            state = live.state
            full = len(state.contexts) >= ENTRIES and payload.id not in state.contexts
            expected = 0 if full else state.head
            try:
                done = await store.append(live.key, [event], expected=expected, log=live.log)
            except HeadMoved as moved:
                if full:
                    raise _too_many() from None
                await live.reach(moved.head)
            else:
                await live.reach(done.head)
                return done.seqs[0]


def _too_many() -> InvalidValue:
    return InvalidValue(
        field="about",
        problem=f"{ENTRIES} are not read yet",
        remedy="say what they are about, so that one takes the place of another",
        limit=ENTRIES,
    )


def _checked(
    source: str, kind: str, summary: str, priority: Any, payload: Any, about: str | None
) -> Notice:
    check_name("source", source, limit=NAME)
    check_name("kind", kind, limit=NAME)
    check_text("summary", summary)
    if about is not None:
        check_name("about", about, limit=NAME)
    if priority not in ROUTES:
        remedy = f"use one of {', '.join(ROUTES)}"
        raise InvalidValue(field="priority", problem=f"is {priority!r}", remedy=remedy)
    return Notice(
        source=source, kind=kind, summary=summary, priority=priority, payload=payload, about=about
    )


def _marked(notice: Notice) -> dict[str, Any]:
    return {MARK: msgspec.to_builtins(notice)}


def _carried(event: Event) -> tuple[Notice, Route] | None:
    """The notice that an event carries, and how."""
    payload = typed(event)
    if (
        not isinstance(payload, (ev.MessageReceived, ev.ContextAdded))
        or MARK not in payload.metadata
    ):
        return None
    how: Route = "mention"
    if isinstance(payload, ev.MessageReceived):
        how = "steer" if payload.how == "steer" else "queue"
    try:
        return msgspec.convert(payload.metadata[MARK], Notice), how
    except msgspec.ValidationError:  # a program's own metadata of that name
        return None
