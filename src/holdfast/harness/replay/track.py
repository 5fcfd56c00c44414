"""One recorded log, and the position of its replay.

The replay must reproduce the events that a driver decided to write. All other events are inputs,
which the replay adds at their recorded positions. Pure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from typing import Any, TypeVar

from ...log import events as ev
from ...log.codec import typed
from ...log.events import Event, Key
from ...log.state import FINAL

P = TypeVar("P", bound=ev.Payload)

_ALWAYS = {
    *("run.started", "run.resumed", "run.waiting", "run.finished", "model.called"),
    *("message.completed", "message.interrupted", "tool.started", "queue.changed"),
    "tool.probed",
}


class Track:
    """The events of one thread, and the position of the replay in them. `at` is the number of
    events replayed so far, `start` the number of events that it shares with the thread it was
    forked from."""

    def __init__(
        self,
        key: Key,
        events: Sequence[Event],
        *,
        start: int = 0,
        whole: bool = True,
        masked: bool = False,
        ignore: Collection[str] = (),
    ) -> None:
        self.key, self.events, self.start = key, events, start
        self.at = self.steps = self.compared = self.given = 0
        self.payloads = [typed(event) for event in events]
        self.ours = self._ours(whole, masked, ignore)
        self.moved = asyncio.Event()
        self.owner = "replay"
        self.waiting = False  # the current run is waiting
        self._shown: ev.ContextBuilt | None = None
        self.fingerprints: dict[str, str | None] = {}
        self.late = False  # the time limit of the run is reached
        self.stopped = False  # the driver was stopped, as in the recording
        self.free = False  # the replay no longer follows the recording
        self.over = False

    def _ours(self, whole: bool, masked: bool, ignore: Collection[str]) -> list[bool]:
        """Return, for each event, whether the replay must produce it. Without the program's agent,
        approvals and denials cannot be decided again; if text is redacted, typed answers cannot be
        checked."""
        completed = [p for p in self.payloads if masked and isinstance(p, ev.MessageCompleted)]
        nested = {call.id for p in completed for call in p.calls if call.name == FINAL}
        begun: set[str] = set()  # calls that were started, or needed an approval
        found = []
        for event, payload in self.recorded():
            mine = event.run is not None and event.seq > self.start
            mine = mine and not event.id.startswith("copied:")  # written by an export
            call = getattr(payload, "call", None)
            if isinstance(payload, ev.ToolNested):
                nested.add(payload.call.id)
                mine = False
            elif isinstance(payload, ev.ToolFinished):
                mine = mine and call not in nested and (whole or call in begun)
            elif isinstance(payload, ev.PendingOpened):
                mine = mine and call not in nested and (whole or payload.parked)
            elif isinstance(payload, ev.PendingSettled):
                mine = mine and payload.outcome in ("superseded", "abandoned")
            elif isinstance(payload, ev.MessageReceived):
                mine = mine and event.actor is None  # a message that the loop wrote for the model
            elif isinstance(payload, ev.ContextBuilt):
                mine = mine and whole
            else:
                mine = mine and event.kind in _ALWAYS and call not in nested
            if isinstance(payload, (ev.ToolStarted, ev.PendingOpened)) and isinstance(call, str):
                begun.add(call)
            found.append(mine and event.kind not in ignore)
        return found

    @property
    def played(self) -> bool:
        return self.at >= len(self.events)

    def expected(self) -> int | None:
        """Return the position of the next event that the replay must produce."""
        places = range(self.at, len(self.events))
        return next((place for place in places if self.ours[place]), None)

    def outside(self) -> Event | None:
        """Return the next event if it is an input, otherwise None."""
        if self.at < len(self.events) and not self.ours[self.at]:
            return self.events[self.at]
        return None

    def ahead(self) -> Iterator[tuple[Event, Any]]:
        """Return the remaining events that the replay must produce, with their payloads."""
        for place in range(self.at, len(self.events)):
            if self.ours[place]:
                yield self.events[place], self.payloads[place]

    def following(self) -> tuple[Event, Any] | None:
        """Return the next event that the replay must produce, with its payload."""
        return next(self.ahead(), None)

    @property
    def next_event(self) -> Event | None:
        """The next event that the replay must produce."""
        coming = self.following()
        return coming[0] if coming is not None else None

    def every(self, kind: type[P]) -> list[P]:
        """Return all recorded payloads of one type, whether replayed yet or not."""
        return [payload for payload in self.payloads if isinstance(payload, kind)]

    def recorded(self) -> Iterator[tuple[Event, Any]]:
        """Return all events with their payloads, whether replayed yet or not."""
        return zip(self.events, self.payloads, strict=True)

    def answer(self) -> tuple[Event, Any] | None:
        """Return the recorded answer to the current model call. It may follow a `context.built`
        event of the same call."""
        return next((found for found in self.ahead() if found[0].kind != "context.built"), None)

    def passed(self) -> None:
        """Move the position past the next event, and update the counters."""
        event, payload = self.events[self.at], self.payloads[self.at]
        if self.ours[self.at]:
            self.compared += 1
        else:
            self.given += 1
        self.at += 1
        self.stopped = self.late = False
        if event.kind.startswith("run."):
            self.waiting = event.kind == "run.waiting"
        if isinstance(payload, ev.ModelCalled) and event.seq > self.start:
            self.steps += 1
        if isinstance(payload, ev.ContextBuilt):
            self._shown = payload
        for call in payload.calls if isinstance(payload, ev.MessageCompleted) else ():
            self.fingerprints[call.name] = call.fingerprint
        self.moved.set()
        self.moved = asyncio.Event()

    def shown(self) -> ev.ContextBuilt | None:
        """Return the last `context.built` event: what the model sees besides the conversation."""
        coming = self.payloads[self.at] if self.at < len(self.payloads) else None
        return coming if isinstance(coming, ev.ContextBuilt) else self._shown
