"""Decides from the events of a log whether a message is done. Pure.

`MessageWatch` receives the events after the message, one by one. A caller that also has the newest
state of the log calls `is_done`, since a run that was waiting may have continued.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from ..log import events as ev
from ..log.codec import typed
from ..log.events import Event, Key, ids
from ..log.state import FINAL, State
from .metrics import RunTally
from .pending import Ask
from .result import Result, ResultStatus
from .stream_items import Item, Trouble

Rest: TypeAlias = Literal["finished", "waiting"]


class Conclusion(Struct, frozen=True):
    """The status of a message after event `seq`. It may change unless it is `final`."""

    status: ResultStatus
    seq: int = 0
    code: str | None = None
    error: str | None = None

    @property
    def final(self) -> bool:
        return self.status not in ("waiting", "queued")


class MessageWatch:
    """Follows one message or one run through the events of its log. `end` is None until the run
    waits for user input or has ended."""

    def __init__(self, key: Key, input: int | None = None, run: str | None = None) -> None:
        self.key, self.input, self.run = key, input, run
        self.text = ""
        self.model: str | None = None
        self.reason: str | None = None
        self.output: Any = None
        self.stack: str | None = None
        self.end: Conclusion | None = None
        self._finals: set[str] = set()  # calls whose arguments are the typed answer
        self._open: set[str] = set()  # pending items
        self._tally = RunTally()

    def see(self, item: Item) -> bool:
        """Process one more item. Returns whether the item belongs to the message: every item from
        the start to the end of its run does, and every `Trouble`."""
        if isinstance(item, Trouble):
            return True
        if not isinstance(item, Event):
            return self.run is not None
        if item.seq == self.input:
            return True
        payload = typed(item)
        if isinstance(payload, (ev.RunStarted, ev.ModelCalled)) and self.input in payload.inputs:
            self.run = item.run
        elif isinstance(payload, ev.QueueChanged) and self.input in payload.remove:
            self.end = Conclusion("removed", item.seq)
        elif isinstance(payload, ev.ThreadRewound):
            if self.run is None and self.input is not None and self.input > payload.to:
                self.end = Conclusion("removed", item.seq)
        elif isinstance(payload, ev.PendingOpened):
            self._open.add(payload.id)
        elif item.kind == "pending.settled":
            self._open.discard(ids.settled_item(item.id))
        if self.run is None or item.run != self.run:
            return self.run is not None
        self._tally.add(item)
        self._take(item, payload)
        return True

    def _take(self, item: Event, payload: ev.Payload | None) -> None:
        if isinstance(payload, ev.MessageCompleted):
            self.text, self.model, self.reason = payload.text, payload.model, payload.reason
            self._finals.update(c.id for c in payload.calls if c.name == FINAL)
        elif isinstance(payload, ev.MessageInterrupted) and payload.shown:
            self.text, self.reason = payload.text, payload.reason
        elif isinstance(payload, ev.ToolFinished):
            if payload.call in self._finals and payload.outcome == "ok":
                self.output = payload.result
        elif isinstance(payload, ev.RunResumed):
            self.end = None
        elif item.kind == "run.waiting":
            waiting = payload if isinstance(payload, ev.RunWaiting) else ev.RunWaiting()
            if waiting.reason != "handover" and not _all_children(self._open):
                self.end = Conclusion("waiting", item.seq)
        elif isinstance(payload, ev.RunFinished):
            self.end = Conclusion(payload.status, item.seq, payload.code, payload.error)
            self.stack = payload.stack

    def is_done(
        self,
        state: State,
        rest: Callable[[], Rest | None],
        *,
        asked: bool = False,
        newest: bool = False,
    ) -> bool:
        """Return whether the message is done for now; if so, `end` contains its status.

        `state` is the newest state of the log, and `rest` returns None while work continues in the
        log. `asked` is true if a sub-agent of the thread waits for user input. `newest` is true if
        this watch has seen all events of `state`; otherwise more events will follow.
        """
        if self.end is not None and self.end.final:
            return True
        if any(item.seq == self.input for item in state.queue):
            blocked = asked or rest() is not None
            self.end = Conclusion("queued", state.head) if blocked else None
            return blocked
        if state.active is None or state.active.id != self.run:
            return False
        if self.end is None and newest and (asked or asks_within(state)):
            self.end = Conclusion("waiting", state.head)
        return self.end is not None and (asked or rest() is not None)

    def result(
        self,
        pending: tuple[Ask, ...],
        agent: str,
        mode: str,
        convert: Callable[[Any], Any] | None = None,
        causes: Mapping[str, BaseException] = {},
    ) -> Result:
        """Return the result that is known so far. `convert` parses the typed answer; `causes` maps
        runs that failed in this process to their exceptions."""
        end = self.end or Conclusion("done" if self.run is None else "interrupted")
        output = self.output
        if output is not None and convert is not None:
            output = convert(output)
        result = Result(
            session=self.key.session,
            thread=self.key.thread,
            run=self.run,
            status=end.status,
            text=self.text,
            output=output,
            agent=agent,
            mode=mode,
            model=self.model,
            reason=self.reason,
            code=end.code,
            error=end.error,
            stack=self.stack,
            seq=end.seq,
            pending=() if end.final else pending,
            metrics=self._tally.metrics(),
        )
        if end.status == "failed":
            result.__dict__["cause"] = causes.get(self.run or "")
        return result


def rest(state: State, *, idle: bool) -> Rest | None:
    """Return `finished` if all work in a log is done, `waiting` if only user input can continue it,
    or None while work continues. `idle` is true if no driver has work to do in the log."""
    if delegates(state):
        return None
    if asks_within(state):
        return "waiting"
    if not idle:
        return None
    return "finished" if state.active is None else "waiting"


def delegates(state: State) -> bool:
    """Return whether the run waits only for sub-agents."""
    if state.active is None or state.active.status != "waiting" or state.abort is not None:
        return False
    return _all_children(state.pending)


def asks_within(state: State) -> bool:
    """Return whether the run waits only for user input that nested calls requested."""
    calls = state.calls
    parents = {call.parent for call in calls.values() if call.parent is not None}
    leaves = [call for id, call in calls.items() if id not in parents]
    return bool(parents) and all(call.status == "waiting" for call in leaves)


def _all_children(items: set[str] | dict[str, Any]) -> bool:
    """Return whether every pending item waits for a sub-agent, so that no user has to answer."""
    return bool(items) and all(ids.is_child(id) for id in items)
