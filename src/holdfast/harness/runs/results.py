"""What came of an input: the run that took it up, and how far that run is. Read off the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from ... import events as ev
from ...codec import typed
from ...errors import RunFailed
from ...events import Event, Key
from ...state import CHILD, FINAL, OpenItem
from ..live.log import Item, Trouble
from ..live.risk import risk
from ..telemetry.metrics import RunMetrics, Tally
from .typed_output import convert

Status: TypeAlias = Literal[
    "waiting", "done", "failed", "aborted", "interrupted", "queued", "removed"
]


class Ask(Struct, frozen=True):
    """Something that waits for a person: one id and one shape, wherever it is shown. `risk` is
    how much harm the call could do: a hint, by which nothing is decided. `approvals` people must
    say yes; `approved_by` did."""

    id: str
    what: str
    title: str
    call: str | None = None
    tool: str | None = None
    arguments: Any = None
    at: int = 0
    expires: int | None = None
    detail: Any = None
    thread: str = "main"
    risk: str | None = None
    approvals: int = 1
    approved_by: tuple[str, ...] = ()


class Result(Struct, frozen=True, kw_only=True, dict=True):
    """How an input stands. `waiting`: a person must answer `pending` first. `queued`: it waits
    behind a run that waits for a person. `removed`: it was taken out of the queue. The others
    are how its run ended; `text` is the answer, `output` the typed one, if one was asked for,
    `reason` why the model stopped: `stop` and `calls` are well, `length` and `filtered` not."""

    session: str
    thread: str
    run: str | None
    status: Status
    text: str = ""
    output: Any = None
    agent: str = ""
    mode: str = ""
    model: str | None = None
    reason: str | None = None
    code: str | None = None
    error: str | None = None
    stack: str | None = None
    seq: int = 0
    pending: tuple[Ask, ...] = ()
    metrics: RunMetrics | None = None

    @property
    def usage(self) -> dict[str, int]:
        return dict(self.metrics.usage) if self.metrics is not None else {}

    @property
    def cause(self) -> BaseException | None:
        """The exception that the run failed by, where it failed in this process. It is no part of
        the result as it is compared, sent or stored."""
        found: BaseException | None = self.__dict__.get("cause")
        return found

    def raise_for_status(self) -> Result:
        """This result, or `RunFailed` if the run did not end well; `cause` is its `__cause__`."""
        if self.status in ("done", "waiting", "queued"):
            return self
        failed = RunFailed(
            session=self.session,
            run=self.run or "",
            status=self.status,
            reason=self.code,
            problem=self.error or self.code or self.status,
        )
        if self.cause is not None:
            raise failed from self.cause
        raise failed


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
        self._tally = Tally()
        self.end: tuple[Status, str | None, str | None, int] | None = None

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
        type: Any = None,
        causes: Mapping[str, BaseException] = {},
    ) -> Result:
        nothing: Status = "done" if self.run is None else "interrupted"
        status, code, error, seq = self.end or (nothing, None, None, 0)
        output = self.output
        if output is not None and type is not None:
            output = convert(output, type)
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


def ask(id: str, item: OpenItem, opened: ev.PendingOpened | None, thread: str = "main") -> Ask:
    """An open item in the shape that everyone is shown."""
    detail = opened.detail if opened is not None else None
    known = detail if isinstance(detail, dict) else {}
    return Ask(
        id=id,
        what=item.what,
        title=(opened.title if opened is not None else None) or item.what,
        call=item.call,
        tool=known.get("tool"),
        arguments=known.get("arguments"),
        at=item.at,
        expires=item.expires,
        detail=detail,
        thread=thread,
        risk=risk(opened),
        approvals=item.approvals,
        approved_by=item.voters,
    )
