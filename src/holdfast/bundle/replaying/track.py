"""One recorded log, and how far it has been played.

Its events are of two sorts: those that a driver wrote because it had decided so, which must come
again, and all others, which are handed in where they stood. Pure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal

import msgspec

from ...harness.agents.limits import RunBounds
from ...harness.tools import Park, Ref, ToolResult
from ...log import events as ev
from ...log.codec import typed
from ...log.events import Event, Key, ids
from ...log.state import FINAL
from ...values.options import RunLimits

NEVER = 1 << 62
STRUCK = ("limit_steps", "limit_tokens", "limit_cost", "limit_time", "crash_loop", "driver_lost")
_ALWAYS = {
    *("run.started", "run.resumed", "run.waiting", "run.finished", "model.called"),
    *("message.completed", "message.interrupted", "tool.started", "queue.changed"),
}


class Track:
    """The events of one thread. `at` is how many of them have been played; `start` is where its
    own begin, behind those of the thread that it was forked from."""

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
        self._waited = False  # whether the run that is going waits
        self._shown: ev.ContextBuilt | None = None
        self.fingerprints: dict[str, str | None] = {}
        self.late = False  # the time of the run is up
        self.struck = False  # the driver has been stopped, as it was then
        self.free = False  # what comes now stands in the log, and not what was recorded
        self.over = False

    # What was recorded

    def _ours(self, whole: bool, masked: bool, ignore: Collection[str]) -> list[bool]:
        """Whether each event must come again. Without the program's agent, nobody can say again
        what was asked about and what was refused; nor, where texts were replaced, whether an
        answer was of its type."""
        said = [p for p in self.payloads if masked and isinstance(p, ev.MessageCompleted)]
        nested = {call.id for p in said for call in p.calls if call.name == FINAL}
        begun: set[str] = set()  # calls that were started, or about which a person was asked
        found = []
        for event, payload in zip(self.events, self.payloads, strict=True):
            mine = event.run is not None and event.seq > self.start
            mine = mine and not event.id.startswith("copied:")  # whoever made a copy ended it
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
                mine = mine and event.actor is None  # a word of the loop to the model
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
        """The place of the next event that must come."""
        places = range(self.at, len(self.events))
        return next((place for place in places if self.ours[place]), None)

    def outside(self) -> Event | None:
        """The next event, if it is one that is handed in."""
        if self.at < len(self.events) and not self.ours[self.at]:
            return self.events[self.at]
        return None

    def ahead(self) -> Iterator[tuple[Event, Any]]:
        """What must come, in order, with its payloads."""
        for place in range(self.at, len(self.events)):
            if self.ours[place]:
                yield self.events[place], self.payloads[place]

    def following(self) -> tuple[Event, Any] | None:
        return next(self.ahead(), None)

    def answer(self) -> tuple[Event, Any] | None:
        """What a model that is being called came to; what it was shown is written with that."""
        return next((found for found in self.ahead() if found[0].kind != "context.built"), None)

    def passed(self) -> None:
        """One more event has been played."""
        event, payload = self.events[self.at], self.payloads[self.at]
        if self.ours[self.at]:
            self.compared += 1
        else:
            self.given += 1
        self.at += 1
        self.struck = self.late = False
        if event.kind.startswith("run."):
            self._waited = event.kind == "run.waiting"
        if isinstance(payload, ev.ModelCalled) and event.seq > self.start:
            self.steps += 1
        if isinstance(payload, ev.ContextBuilt):
            self._shown = payload
        for call in payload.calls if isinstance(payload, ev.MessageCompleted) else ():
            self.fingerprints[call.name] = call.fingerprint
        self.moved.set()
        self.moved = asyncio.Event()

    # What it was like then

    @property
    def clock(self) -> int:
        """The time as it was when the next step was decided: that of what came last, for it may
        have been written much later; of what the clock brought about, the time when it came."""
        coming = self.following()
        before = self.events[self.at - 1].at if self.at else self.events[0].at
        if coming is None or not (self.late or _by_the_clock(coming[1])):
            return before
        if isinstance(coming[1], ev.PendingWarned):
            return max(before, min(coming[0].at, self._next_expiry() - 1))
        return coming[0].at

    def _next_expiry(self) -> int:
        """When the first of the items runs out that are open."""
        open: dict[str, int] = {}
        for payload in self.payloads[: self.at]:
            if isinstance(payload, (ev.PendingOpened, ev.PendingExtended)):
                open[payload.id] = payload.expires or NEVER
            elif isinstance(payload, ev.PendingSettled):
                open.pop(payload.id, None)
        return min(open.values(), default=NEVER)

    def ends_with(self, code: str) -> bool:
        """Whether the run that is going ends so, and nothing but its end comes before."""
        for event, payload in self.ahead():
            if isinstance(payload, ev.RunFinished):
                return payload.code == code
            if event.kind not in ("message.interrupted", "tool.finished", "pending.settled"):
                return False
        return False

    def breaks(self) -> Literal["lost", "left"] | None:
        """Whether a driver ends here: its process died, or it handed the run over. Told by what
        follows, since words may have been replaced; only a run that waits for a person has no
        reason, and its next time to look may have passed before the event was written."""
        ahead = self.ahead()
        event, payload = next(ahead, (None, None))
        if isinstance(payload, ev.MessageInterrupted) and not payload.shown:
            event, payload = next(ahead, (None, None))
        if isinstance(payload, ev.RunResumed):
            return None if self._waited else "lost"
        if event is not None and isinstance(payload, ev.RunWaiting):
            if payload.reason is None or payload.due is None:
                return None
            return "left" if payload.due <= event.at + 1 else None
        return None

    def driver(self) -> str:
        """Who drove: those who came later have no more of what was granted to others."""
        coming = self.following()
        payload = coming[1] if coming is not None else None
        if isinstance(payload, (ev.RunStarted, ev.RunResumed)) and payload.driver:
            self.owner = payload.driver
        return self.owner

    def model(self) -> str | None:
        """The model that is called next."""
        found = (p.model for _, p in self.ahead() if isinstance(p, ev.ModelCalled))
        return next((ref for ref in found if "/" in ref), None)

    def models(self) -> list[str]:
        """All that have answered."""
        said = (p.model for p in self.payloads if isinstance(p, ev.MessageCompleted))
        return list(dict.fromkeys(ref for ref in said if ref and "/" in ref))

    def bounds(self) -> RunBounds:
        """Bounds within which a driver does what was done: none, but for the one that was met."""
        nothing = RunLimits(steps=None)
        open = RunBounds(limits=nothing, tokens=NEVER, turns=NEVER, crashes=NEVER)
        coming = [payload for _, payload in zip(range(2), self._payloads_ahead(), strict=False)]
        if not coming:
            return open
        if isinstance(coming[0], ev.RunStarted):
            full = len(coming) > 1 and not isinstance(coming[1], ev.ModelCalled)
            return msgspec.structs.replace(open, turns=0) if full else open
        code = coming[0].code if isinstance(coming[0], ev.RunFinished) else None
        if self.late and self.ends_with("limit_time"):
            code = "limit_time"
        return _bounds(open, code)

    def _payloads_ahead(self) -> Iterator[Any]:
        return (payload for _, payload in self.ahead())

    # What was answered

    def fate(self, call: str) -> ToolResult | Park | None:
        """What a call that has been started comes to: a result, or a question of its own; None if
        it never got that far."""
        for event, payload in self.ahead():
            if event.kind in ("run.resumed", "run.started"):
                return None
            if isinstance(payload, ev.PendingOpened) and payload.call == call and payload.parked:
                return parked(payload)
            if isinstance(payload, ev.ToolFinished) and payload.call == call:
                return result(payload) if payload.outcome in ("ok", "failed") else None
        return None

    def decision(self, name: str, arguments: Any) -> str:
        """What was decided about a call of the message that comes next; `bad` where its arguments
        were refused."""
        coming = self.answer()
        if coming is None or not isinstance(coming[1], ev.MessageCompleted):
            return "auto"
        made = [c for c in coming[1].calls if c.name == name and c.arguments == arguments]
        if not made:
            return "auto"
        for payload in self.payloads[self.at :]:
            if isinstance(payload, ev.ToolStarted) and payload.call == made[0].id:
                return "auto"
            if isinstance(payload, ev.PendingOpened) and payload.call == made[0].id:
                return "auto" if payload.parked else "ask"
            if isinstance(payload, ev.ToolFinished) and payload.call == made[0].id:
                known = {"denied": "deny", "bad_arguments": "bad"}
                return known.get(payload.code or "", "auto")
        return "auto"

    def fingerprint(self, name: str) -> str | None:
        """That of a tool, as it was then: in the message that comes, or in the last that had it."""
        coming = self.answer()
        made = coming[1].calls if coming and isinstance(coming[1], ev.MessageCompleted) else []
        found = next((call.fingerprint for call in made if call.name == name), None)
        return found or self.fingerprints.get(name)

    def typed(self) -> dict[int, str | None]:
        """The messages that want an answer of a type, and the fingerprints of what gave it."""
        found: dict[int, str | None] = {}
        for event, payload in zip(self.events, self.payloads, strict=True):
            if isinstance(payload, ev.MessageReceived) and payload.output is not None:
                found[event.seq] = None
            for call in payload.calls if isinstance(payload, ev.MessageCompleted) else ():
                if call.name == FINAL and found:
                    found[next(reversed(found))] = call.fingerprint
        return found

    def answers(self) -> bool:
        """Whether the agent itself wanted answers of a type: its model was told so, or gave one,
        though no message had asked for it."""
        if self.typed():
            return False
        for event, payload in zip(self.events, self.payloads, strict=True):
            if isinstance(payload, ev.MessageReceived) and event.run and event.actor is None:
                return True
            calls = payload.calls if isinstance(payload, ev.MessageCompleted) else ()
            if event.run and any(call.name == FINAL for call in calls):
                return True
        return False

    def shown(self) -> ev.ContextBuilt | None:
        """What a model is shown now, beside the conversation."""
        coming = self.payloads[self.at] if self.at < len(self.payloads) else None
        return coming if isinstance(coming, ev.ContextBuilt) else self._shown

    def threads(self) -> bool:
        """Whether a call was stopped that could not be: its function ran in a thread."""
        ended = (p for p in self.payloads if isinstance(p, ev.ToolFinished))
        return any(p.outcome == "unknown" and "cancelled" in str(p.result) for p in ended)


def _bounds(open: RunBounds, code: str | None) -> RunBounds:
    met = {
        "limit_steps": RunLimits(steps=0),
        "limit_tokens": RunLimits(steps=None, tokens=0),
        "limit_cost": RunLimits(steps=None, cost=0.0),
        "limit_time": RunLimits(steps=None, seconds=0.0),
    }
    if code in met:
        return msgspec.structs.replace(open, limits=met[code])
    if code == "crash_loop":
        return msgspec.structs.replace(open, crashes=0)
    if code == "driver_lost":
        return msgspec.structs.replace(open, recovery="close")
    return open


def result(said: ev.ToolFinished) -> ToolResult:
    """A result that is written down as it was."""
    refs = []
    for ref in said.refs:
        try:
            refs.append(msgspec.convert(ref, Ref))
        except msgspec.ValidationError:  # what was written by others is not compared
            continue
    plain = said.content is None and isinstance(said.result, str)
    return ToolResult(
        content=str(said.result) if plain else said.content or "",
        data=None if plain else said.result,
        failed=said.outcome == "failed",
        code=said.code,
        metadata=dict(said.metadata),
        refs=refs,
    )


def parked(opened: ev.PendingOpened) -> Park:
    """The question that a call asked."""
    detail = opened.detail if isinstance(opened.detail, dict) else {}
    own = {name: value for name, value in detail.items() if name not in ("tool", "arguments")}
    what: Any = opened.what
    known = opened.id if ids.is_child(opened.id) else None
    return Park(opened.title or "", what=what, detail=own, id=known)


def _by_the_clock(payload: Any) -> bool:
    """Whether a driver wrote this because of the time."""
    if isinstance(payload, ev.PendingSettled):
        return payload.outcome == "expired"
    # A message that a driver writes is that of a timer.
    return isinstance(payload, (ev.PendingWarned, ev.TimerFired, ev.MessageReceived))
