"""A log written from what another program kept of a conversation. Pure.

Nobody drives such a log: it has no runs, but for one that waits where a call is open. What was
said and done is there as events of ours, and what was left open is open, so that a harness can go
on with it: a message without an answer is answered, and a call that may have acted is asked about,
never made again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from ..errors import InvalidValue
from ..log import events as ev
from ..log.codec import LIMITS, check_name
from ..log.events import Event, ids, to_json

MISSING = "no result was recorded"


class Telling:
    """One log in the making. Ids follow from the order and from what the source calls things, so
    that the same source gives the same log."""

    def __init__(self, thread: str, prefix: str, *, at: int = 0) -> None:
        self.thread = thread
        self.events: list[Event] = []
        self._prefix, self._at = prefix, max(at, 0)
        self._ids: set[str] = set()
        self._open: dict[str, str] = {}  # the name of each call without an outcome

    @property
    def open(self) -> dict[str, str]:
        """The calls that have no outcome yet, and their names."""
        return dict(self._open)

    def add(
        self,
        kind: str,
        payload: Any = None,
        *,
        at: int | None = None,
        id: str | None = None,
        **envelope: Any,
    ) -> Event:
        """The next event. Without a time it has that of the event before."""
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
        id = wanted or f"{self._prefix}{len(self.events) + 1}"
        if not id.isprintable() or len(id.encode("utf-8", "replace")) > LIMITS.name_bytes:
            id = self._prefix + hashlib.sha256(id.encode("utf-8", "backslashreplace")).hexdigest()
        if id in self._ids:
            id = f"{self._prefix}{len(self.events) + 1}:again"
        self._ids.add(id)
        return id

    def heard(self, message: ev.MessageReceived, **more: Any) -> Event:
        """A person's message."""
        return self.add("message.received", message, **more)

    def said(self, message: ev.MessageCompleted, **more: Any) -> list[str]:
        """A model's message, and the calls before it that never got an outcome and now will
        not: they end as unknown. Returns those."""
        lost = self.abandon()
        self.add("message.completed", message, **more)
        self._open.update({call.id: call.name for call in message.calls})
        return lost

    def ended(self, outcome: ev.ToolFinished, **more: Any) -> bool:
        """What a call came to; False where no such call is open, and nothing is written."""
        if outcome.call not in self._open:
            return False
        del self._open[outcome.call]
        more.setdefault("id", ids.done_id(outcome.call))
        self.add("tool.finished", outcome, **more)
        return True

    def abandon(self) -> list[str]:
        """End every open call as unknown; their ids."""
        lost = list(self._open)
        for call in lost:
            self.ended(ev.ToolFinished(call=call, outcome="unknown", error=MISSING))
        return lost

    def left_open(self) -> list[str]:
        """Say of every open call that it was begun, in a run that waits, so that whoever goes on
        asks what came of it and does not make it again; at the end of the log. Their ids."""
        run = f"{self._prefix}run"
        for call, name in self._open.items():
            self.add("tool.started", ev.ToolStarted(call=call, name=name), run=run)
        if self._open:
            self.add("run.started", ev.RunStarted(), run=run)
            self.add("run.waiting", ev.RunWaiting(due=self._at, reason="imported"), run=run)
        return list(self._open)


def as_name(value: Any) -> str | None:
    """The value if it can be the name of something here; None for what cannot."""
    try:
        check_name("name", value)
    except InvalidValue:
        return None
    return str(value)


def new_call_id(thread: str, wanted: str, taken: Sequence[str] | set[str]) -> str:
    """An id for a call that no other call of the session has."""
    id = (
        wanted
        if wanted and len(wanted.encode("utf-8", "replace")) <= LIMITS.name_bytes - 16
        else ""
    )
    id = id if id.isprintable() else ""
    if not id:
        id = "call:" + hashlib.sha256(f"{thread}\0{wanted}".encode("utf-8", "replace")).hexdigest()
    number, found = 1, id
    while found in taken:
        number += 1
        found = f"{id}:{number}"
    return found
