"""Builds a log from another program's record of a conversation. Pure.

Such a log has no runs, except for one waiting run if a call is open. Messages, calls and results
become ordinary events. Open items stay open, so that a harness can continue: it answers an
unanswered message, and asks about a call that may have had an effect instead of repeating it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any

from ..errors import InvalidValue
from ..log import events as ev
from ..log.codec import LIMITS, check_name
from ..log.events import Event, ids, to_json

MISSING = "no result was recorded"


class LogBuilder:
    """Builds the log of one thread, event by event. Ids are derived from the order and the ids of
    the source, so the same source yields the same log.
    """

    def __init__(self, thread: str, prefix: str, *, at: int = 0) -> None:
        self.thread = thread
        self.events: list[Event] = []
        self.open: dict[str, str] = {}  # the calls without an outcome: id and tool
        self._prefix, self._at = prefix, max(at, 0)
        self._ids: set[str] = set()

    def add(
        self,
        kind: str,
        payload: Any = None,
        *,
        at: int | None = None,
        id: str | None = None,
        **envelope: Any,
    ) -> Event:
        """Add an event. Its default time is the time of the previous event."""
        self._at = self._at if at is None or at < 0 else at
        event = Event(
            kind=kind,
            data=to_json({} if payload is None else payload),
            id=self._id(id),
            seq=len(self.events) + 1,
            at=self._at,
            **envelope,
        )
        self.events.append(event)
        return event

    def _id(self, wanted: str | None) -> str:
        number = f"{self._prefix}{len(self.events) + 1}"
        id = wanted or number
        if not _fits(id):
            id = self._prefix + hashlib.sha256(id.encode("utf-8", "backslashreplace")).hexdigest()
        if id in self._ids:
            id = f"{number}:again"
        self._ids.add(id)
        return id

    def received(self, message: ev.MessageReceived, **more: Any) -> Event:
        """Add a message of a user."""
        return self.add("message.received", message, **more)

    def completed(self, message: ev.MessageCompleted, **more: Any) -> list[str]:
        """Add a message of a model. Earlier calls that are still open get the outcome `unknown`;
        returns the ids of these calls.
        """
        lost = self.abandon()
        self.add("message.completed", message, **more)
        self.open.update({call.id: call.name for call in message.calls})
        return lost

    def finished(self, outcome: ev.ToolFinished, **more: Any) -> bool:
        """Add the outcome of a call. Returns False and adds nothing if the call is not open."""
        if outcome.call not in self.open:
            return False
        del self.open[outcome.call]
        more.setdefault("id", ids.done_id(outcome.call))
        self.add("tool.finished", outcome, **more)
        return True

    def abandon(self) -> list[str]:
        """Give every open call the outcome `unknown`, and return the ids of these calls."""
        lost = list(self.open)
        for call in lost:
            self.finished(ev.ToolFinished(call=call, outcome="unknown", error=MISSING))
        return lost

    def leave_open(self) -> list[str]:
        """Mark every open call as started, in a waiting run, so that the harness asks about its
        outcome and does not repeat it. Call this at the end of the log. Returns the ids of the
        calls.
        """
        run = f"{self._prefix}run"
        for call, name in self.open.items():
            self.add("tool.started", ev.ToolStarted(call=call, name=name), run=run)
        if self.open:
            self.add("run.started", ev.RunStarted(), run=run)
            self.add("run.waiting", ev.RunWaiting(due=self._at, reason="imported"), run=run)
        return list(self.open)


def _fits(id: str, limit: int = LIMITS.name_bytes) -> bool:
    return id.isprintable() and len(id.encode("utf-8", "replace")) <= limit


def as_name(value: Any) -> str | None:
    """Return the value if it is a valid name, otherwise None."""
    try:
        check_name("name", value)
    except InvalidValue:
        return None
    return str(value)


def new_call_id(thread: str, wanted: str, taken: Collection[str]) -> str:
    """Return an id for a call that no other call of the session has."""
    id = wanted if _fits(wanted, LIMITS.name_bytes - 16) else ""
    if not id:
        id = "call:" + hashlib.sha256(f"{thread}\0{wanted}".encode("utf-8", "replace")).hexdigest()
    number, found = 1, id
    while found in taken:
        number += 1
        found = f"{id}:{number}"
    return found
