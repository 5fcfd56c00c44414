"""Notifications to a session from other programs. How soon the model reads a notice depends on
its priority, and on whether a run is active. Each notice is in the log before `send` returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from ...errors import HeadMoved, InvalidValue
from ...log import events as ev
from ...log.codec import check_choice, check_name, typed
from ...log.events import Event, NewEvent, ids, new_id
from ...log.state import ENTRIES
from ..live.inputs import check_text, message_id
from ..loop.detached import MARK
from .base import SessionPart

NAME = 128  # bytes of the source, of the kind, and of the subject (`about`)
Priority: TypeAlias = Literal["low", "medium", "high", "urgent"]
Route: TypeAlias = Literal["steer", "queue", "mention", "drop"]
Status: TypeAlias = Literal["pending", "delivered", "replaced", "dropped"]

# By priority: the route while the session is idle, and while it is busy.
ROUTES: dict[str, tuple[Route, Route]] = {
    "urgent": ("queue", "steer"),
    "high": ("queue", "queue"),
    "medium": ("queue", "mention"),
    "low": ("mention", "mention"),
}


class Notice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A notification: its source, its kind and a one-sentence summary. `about` is its subject."""

    source: str
    kind: str
    summary: str
    priority: Priority = "medium"
    payload: Any = None
    about: str | None = None

    @property
    def text(self) -> str:
        """The notice as text for the model, without the payload."""
        return f"Notification from {self.source} ({self.kind}, {self.priority}): {self.summary}"

    @property
    def full(self) -> str:
        """The notice as text for the model, with the whole payload."""
        if self.payload is None:
            return self.text
        return f"{self.text}\n{msgspec.json.encode(self.payload).decode()}"


Policy: TypeAlias = Callable[[Notice, bool], Route]


class NoticeDelivery(Struct, frozen=True):
    """How a notice was delivered: its route and its status. `seq` is the event that contains the
    notice, or 0 if the notice was dropped immediately."""

    notice: Notice
    route: Route
    status: Status
    seq: int = 0
    at: int = 0


def route(notice: Notice, busy: bool) -> Route:
    """Return the default route of a notice. `busy` says whether a run is active or messages are
    queued."""
    return ROUTES[notice.priority][busy]


class Notifications(SessionPart):
    """Notifications from programs to the model of this session."""

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
        """Send a notice to the model. `policy` chooses one of these routes:

        - `steer`: the active run reads the notice at its next safe point.
        - `queue`: the notice gets its own run.
        - `mention`: the model reads the summary with its next call.
        - `drop`: nothing is written.

        `key` is an idempotency key: a notice with a known key is not sent again. A mention replaces
        an unread mention with the same source and the same `about`.
        """
        notice = Notice(
            source=source,
            kind=kind,
            summary=summary,
            priority=priority,
            payload=payload,
            about=about,
        )
        _check(notice)
        if key is not None:
            check_name("key", key, limit=NAME)
        state = await self._core.catch_up()
        chosen = _route(policy, notice, busy=state.active is not None or bool(state.queue))
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
        """Return the latest notices, oldest first, with their delivery status."""
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
        """Add a summary to the context of the next model call. It wakes no driver, and a call in
        progress does not consume it."""
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
        problem=f"the session already has {ENTRIES} unread notices, the maximum",
        remedy="pass the same `about` for notices that replace each other",
        limit=ENTRIES,
    )


def _check(notice: Notice) -> None:
    check_name("source", notice.source, limit=NAME)
    check_name("kind", notice.kind, limit=NAME)
    check_text("summary", notice.summary)
    if notice.about is not None:
        check_name("about", notice.about, limit=NAME)
    check_choice("priority", notice.priority, ROUTES)


def _marked(notice: Notice) -> dict[str, Any]:
    return {MARK: msgspec.to_builtins(notice)}


def _route(policy: Policy, notice: Notice, *, busy: bool) -> Route:
    """Return the route that the policy chooses. Raises `InvalidValue` if it is not a route."""
    chosen = policy(notice, busy)
    if chosen not in ("steer", "queue", "mention", "drop"):
        raise InvalidValue(
            field="policy",
            problem=f"must return 'steer', 'queue', 'mention' or 'drop', got {chosen!r}",
            remedy="correct the policy",
        )
    return chosen


def _carried(event: Event) -> tuple[Notice, Route] | None:
    """Return the notice that an event contains and its route, or None."""
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
    except msgspec.ValidationError:  # metadata of an application under the same key
        return None
