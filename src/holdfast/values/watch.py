"""What came of an input: the run that took it up, and how far that run is. Read off the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..log import events as ev
from ..log.codec import typed
from ..log.events import Event, Key
from ..log.state import CHILD, FINAL
from .metrics import RunTally
from .pending import Ask
from .result import Result, ResultStatus
from .stream_items import Item, Trouble


class Watch:
    """Follows one input through the events after it, until its run waits or has ended."""

    def __init__(self, key: Key, input: int) -> None:
        self.key, self.input = key, input
        self.run: str | None = None
        self.text = ""
        self.model: str | None = None
        self.reason: str | None = None
        self.output: Any = None
        self.stack: str | None = None
        self._finals: set[str] = set()
        self._open: set[str] = set()  # items that wait
        self._tally = RunTally()
        self.end: tuple[ResultStatus, str | None, str | None, int] | None = None

    def see(self, item: Item) -> bool:
        """Whether this item belongs to the input: what comes from its pick-up to its end, and
        trouble at any time."""
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
            self.end = ("removed", None, None, item.seq)
        elif isinstance(payload, ev.PendingOpened):
            self._open.add(payload.id)
        elif item.kind == "pending.settled":
            self._open.discard(item.id.removeprefix("settle:"))
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
            if waiting.reason != "handover" and not self._delegates:
                self.end = ("waiting", None, None, item.seq)
        elif isinstance(payload, ev.RunFinished):
            self.end = (payload.status, payload.code, payload.error, item.seq)
            self.stack = payload.stack

    @property
    def _delegates(self) -> bool:
        """Whether the run waits for sub-agents alone: nobody has to answer then."""
        return bool(self._open) and all(id.endswith(CHILD) for id in self._open)

    def result(
        self,
        pending: tuple[Ask, ...],
        agent: str,
        mode: str,
        convert: Callable[[Any], Any] | None = None,
        causes: Mapping[str, BaseException] = {},
    ) -> Result:
        nothing: ResultStatus = "done" if self.run is None else "interrupted"
        status, code, error, seq = self.end or (nothing, None, None, 0)
        output = self.output
        if output is not None and convert is not None:
            output = convert(output)
        result = Result(
            session=self.key.session,
            thread=self.key.thread,
            run=self.run,
            status=status,
            text=self.text,
            output=output,
            agent=agent,
            mode=mode,
            model=self.model,
            reason=self.reason,
            code=code,
            error=error,
            stack=self.stack,
            seq=seq,
            pending=pending if status in ("waiting", "queued") else (),
            metrics=self._tally.metrics(),
        )
        if status == "failed":
            result.__dict__["cause"] = causes.get(self.run or "")
        return result
