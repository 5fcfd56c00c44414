"""Translates the items of a stream to chunks of the Vercel AI SDK's UI message stream. Pure: the
chunks depend on the items alone.

One run is one assistant message, whose id is the id of the run. `MAPPED` says which chunks an event
becomes; the kinds in `LOST` become none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from ...log import events as ev
from ...log.codec import typed
from ...log.events import Event, ids
from ...values.delta import Delta
from ...values.pending import Ask
from ...values.result import Result
from ...values.stream_items import Trouble
from ...wire import End, Resync
from ..streams.session_stream import Part
from .text_parts import Chunk, TextParts
from .text_parts import Part as TextPart

Version: TypeAlias = Literal["v5", "v7"]
DONE = b"data: [DONE]\n\n"

MAPPED: dict[str, tuple[str, ...]] = {
    "run.started": ("start",),
    "run.resumed": ("start",),
    "model.called": ("finish-step", "start-step"),
    "message.completed": (
        *("reasoning-start", "reasoning-delta", "reasoning-end"),
        *("text-start", "text-delta", "text-end", "tool-input-available"),
    ),
    "message.interrupted": ("text-start", "text-delta", "text-end", "reset-step"),
    "tool.started": ("tool-input-available",),
    "tool.nested": ("tool-input-available",),
    "tool.finished": (
        *("tool-output-available", "tool-output-error", "tool-output-denied", "data-unknown"),
    ),
    "progress.reported": ("data-progress",),
    "pending.opened": ("tool-approval-request", "data-pending"),
    "pending.voted": ("data-vote",),
    "pending.settled": ("tool-approval-response", "data-decision"),
    "pending.warned": ("data-expiry",),
    "pending.extended": ("data-expiry",),
    "state.changed": ("data-state",),
    "task.changed": ("data-tasks",),
    "thread.rewound": ("data-rewound",),
}
# `run.waiting` and `run.finished` become the end of the stream: `finish`, `error` or `abort`.
ENDING = ("run.waiting", "run.finished")
LOST = frozenset(ev.KINDS) - {*MAPPED, *ENDING}
REASONS = {
    **{"stop": "stop", "calls": "tool-calls"},
    **{"length": "length", "filtered": "content-filter"},
}


class UiMessageStream(TextParts):
    """Translates one stream. `about` is metadata of the message. `calls` are the tool calls of the
    message that the client already has, and `run` is the run that the stream continues."""

    def __init__(
        self,
        version: Version,
        about: dict[str, Any] | None = None,
        calls: Iterable[str] = (),
        *,
        run: str | None = None,
    ) -> None:
        super().__init__()
        self._run_id = run or None
        self._v7 = version == "v7"
        self._about = about or {}
        self._calls = {*calls}
        self._started = False
        self._step = False  # a step is open
        self._asked: set[str] = set()  # pending items that the client was sent
        self._denied = False

    def frames(self, part: Part, place: str) -> Iterator[bytes]:
        """Return the server-sent events for an item. `place` is the cursor after it."""
        for chunk in self.chunks(part, place):
            yield b"data: %b\n\n" % msgspec.json.encode(chunk, enc_hook=str)
        if isinstance(part, End):
            yield DONE

    def chunks(self, part: Part, place: str = "") -> Iterator[Chunk]:
        """Return the chunks for an item."""
        match part:
            case Event():
                if (translate := _EVENTS.get(part.kind)) is not None:
                    yield from translate(self, part, typed(part))
            case Delta():
                yield from self._start(None)
                yield from self.delta(part)
            case Trouble():
                yield _data("trouble", {"code": part.code}, transient=True)
            case Resync():
                yield _data("resync", {"reason": part.reason}, transient=True)
            case End():
                yield from self._end(part, place)

    # Parts

    def _start(self, run: str | None) -> Iterator[Chunk]:
        if not self._started:
            self._started = True
            run = run or self._run_id
            named = {} if run is None else {"messageId": run}
            yield {"type": "start", **named, "messageMetadata": {**self._about, "run": run}}

    def part_start(self, part: TextPart) -> Iterator[Chunk]:
        yield {"type": f"{part[0]}-start", "id": ":".join(part)}

    def part_delta(self, part: TextPart, text: str) -> Iterator[Chunk]:
        yield {"type": f"{part[0]}-delta", "id": ":".join(part), "delta": text}

    def part_end(self, part: TextPart) -> Iterator[Chunk]:
        yield {"type": f"{part[0]}-end", "id": ":".join(part)}

    def _call(self, call: ev.Call) -> Chunk:
        self._calls.add(call.id)
        shown = {"toolCallId": call.id, "toolName": call.name, "input": call.arguments}
        return {"type": "tool-input-available", **shown}

    # Events

    def _run(self, event: Event, _: Any) -> Iterator[Chunk]:
        yield from self._start(event.run)

    def _model_called(self, event: Event, _: Any) -> Iterator[Chunk]:
        yield from self._start(event.run)
        yield from self._step_over()
        self._step = True
        yield {"type": "start-step"}

    def _step_over(self) -> Iterator[Chunk]:
        yield from self.close()
        if self._step:
            self._step = False
            yield {"type": "finish-step"}

    def _completed(self, event: Event, p: ev.MessageCompleted | None) -> Iterator[Chunk]:
        yield from self._start(event.run)
        p = p or ev.MessageCompleted()
        yield from self.complete(event.id, p.text, p.thought)
        for call in p.calls:
            yield self._call(call)

    def _interrupted(self, event: Event, p: ev.MessageInterrupted | None) -> Iterator[Chunk]:
        if p is not None and p.shown:
            yield from self._start(event.run)
            yield from self.complete(event.id, p.text)
        elif self.streamed(event.id):
            yield from self.complete(event.id, "")
            if self._v7:  # the same answer begins again, and its beginning was streamed
                yield {"type": "reset-step"}

    def _tool_started(self, event: Event, p: ev.ToolStarted | None) -> Iterator[Chunk]:
        if p is not None and p.arguments is not None and p.call in self._calls:
            yield self._call(ev.Call(id=p.call, name=p.name, arguments=p.arguments))

    def _nested(self, event: Event, p: ev.ToolNested | None) -> Iterator[Chunk]:
        if p is not None:
            yield from self._start(event.run)
            yield self._call(p.call)

    def _finished(self, event: Event, p: ev.ToolFinished | None) -> Iterator[Chunk]:
        call = ids.done_call(event.id) if p is None else p.call
        if call not in self._calls:
            return
        p = p or ev.ToolFinished(call=call, outcome="unknown")
        if p.outcome == "ok":
            output = p.content if p.result is None else p.result
            yield {"type": "tool-output-available", "toolCallId": call, "output": output}
        elif p.outcome == "denied" and self._v7 and self._denied:
            yield {"type": "tool-output-denied", "toolCallId": call}
        else:
            text = p.error or p.content or p.code or _SAID[p.outcome]
            yield {"type": "tool-output-error", "toolCallId": call, "errorText": text}
        if p.outcome == "unknown":
            yield _data("unknown", {"call": call, "error": p.error}, id=call)

    def _progress(self, event: Event, p: ev.ProgressReported | None) -> Iterator[Chunk]:
        if p is not None:
            yield _data("progress", {"call": p.call, "progress": p.data}, id=p.call)

    def _opened(self, event: Event, p: ev.PendingOpened | None) -> Iterator[Chunk]:
        if p is None or ids.is_child(p.id):
            return
        yield from self._start(event.run)
        self._asked.add(p.id)
        if self._v7 and p.what == "approval" and p.call in self._calls:
            yield {"type": "tool-approval-request", "approvalId": p.id, "toolCallId": p.call}
        yield _data("pending", pending(p), id=p.id)

    def _voted(self, event: Event, p: ev.PendingVoted | None) -> Iterator[Chunk]:
        if p is not None:
            vote = {"item": p.id, "by": event.actor, "reason": p.reason}
            yield _data("vote", vote, id=f"{p.id}/{event.actor}")

    def _settled(self, event: Event, p: ev.PendingSettled | None) -> Iterator[Chunk]:
        if p is None or ids.is_child(p.id):
            return
        self._denied = self._denied or p.outcome not in ("approved", "answered")
        if self._v7 and _approval(p.id) in self._calls and p.id in self._asked:
            said = {} if p.reason is None else {"reason": p.reason}
            approved = p.outcome == "approved"
            response = {"approvalId": p.id, "approved": approved, **said}
            yield {"type": "tool-approval-response", **response}
        made = {"item": p.id, "outcome": p.outcome, "by": event.actor, "reason": p.reason}
        yield _data("decision", made, id=p.id)

    def _expiry(
        self, event: Event, p: ev.PendingWarned | ev.PendingExtended | None
    ) -> Iterator[Chunk]:
        if p is not None:
            extended = isinstance(p, ev.PendingExtended)
            about = {"item": p.id, "soon": not extended}
            if isinstance(p, ev.PendingExtended):
                about["expires"] = p.expires
            yield _data("expiry", about, id=p.id)

    def _state(self, event: Event, p: ev.StateChanged | None) -> Iterator[Chunk]:
        if p is not None:
            change = {"set": p.set, "drop": p.drop, "replace": p.replace}
            yield _data("state", change, transient=True)

    def _tasks(self, event: Event, p: ev.TaskChanged | None) -> Iterator[Chunk]:
        if p is not None:
            yield _data("tasks", msgspec.to_builtins(p.tasks), id="tasks")

    def _rewound(self, event: Event, p: ev.ThreadRewound | None) -> Iterator[Chunk]:
        if p is not None:
            yield _data("rewound", {"to": p.to}, transient=True)

    # The end

    def _end(self, end: End, place: str) -> Iterator[Chunk]:
        result = end.result
        for ask in () if result is None else result.pending:
            if ask.id not in self._asked:
                yield from self._start(None if result is None else result.run)
                yield from self._again(ask)
        yield from self._step_over()
        status = end.reason if result is None else result.status
        about = {**self._about, "status": status, "cursor": place, **_of(result)}
        if end.reason not in ("finished", "waiting"):
            yield from self._failed(about, end.reason, end.error.message if end.error else "")
        elif status == "failed" and result is not None:
            yield from self._failed(about, result.code or "run_failed", result.error or "")
        else:
            if status == "aborted":
                yield {"type": "abort"}
            if not self._started:  # nothing of the run was shown, so that there is no message
                yield _data("status", about, transient=True)
                about = {}
            shown = {"messageMetadata": about} if about else {}
            yield {"type": "finish", "finishReason": self._reason(status, result), **shown}

    def _again(self, ask: Ask) -> Iterator[Chunk]:
        """Show an item that this stream has not opened: of a sub-agent, or one that still waits
        after a vote, or after a decision on another item."""
        if ask.call in self._calls and self._v7 and ask.what == "approval":
            yield {"type": "tool-approval-request", "approvalId": ask.id, "toolCallId": ask.call}
        elif ask.call in self._calls and ask.tool is not None:
            yield self._call(ev.Call(id=ask.call or "", name=ask.tool, arguments=ask.arguments))
        yield _data("pending", asked(ask), id=ask.id)

    def _failed(self, about: dict[str, Any], code: str, problem: str) -> Iterator[Chunk]:
        if self._started:
            yield {"type": "message-metadata", "messageMetadata": {**about, "code": code}}
        else:
            yield _data("status", {**about, "code": code}, transient=True)
        yield {"type": "error", "errorText": f"{code}: {problem}" if problem else code}

    def _reason(self, status: str, result: Result | None) -> str:
        if status == "waiting":
            return "tool-calls"
        if status in ("aborted", "interrupted", "removed"):
            return "interrupted" if self._v7 else "other"
        reason = None if result is None else result.reason
        return REASONS.get(reason or "stop", "other")


def _data(name: str, data: Any, *, id: str | None = None, transient: bool = False) -> Chunk:
    chunk: Chunk = {"type": f"data-{name}", "data": data}
    if id is not None:
        chunk["id"] = id
    return {**chunk, "transient": True} if transient else chunk


def pending(p: ev.PendingOpened) -> dict[str, Any]:
    """Return a pending item as data for the client."""
    about = {"id": p.id, "what": p.what, "title": p.title or p.what, "call": p.call}
    more = {"detail": p.detail, "expires": p.expires, "risk": p.risk, "approvals": p.approvals}
    return {**about, **more}


def asked(ask: Ask) -> dict[str, Any]:
    """Return a pending item of any thread as data for the client."""
    names = ("id", "what", "title", "call", "detail", "expires", "risk", "approvals", "thread")
    return {name: getattr(ask, name) for name in names}


def _approval(item: str) -> str:
    """Return the call that an item for an approval is about."""
    return item.partition("~")[0]


def _of(result: Result | None) -> dict[str, Any]:
    if result is None:
        return {}
    known: dict[str, Any] = {
        "run": result.run,
        "model": result.model,
        "usage": result.usage or None,
    }
    known["cost"] = None if result.metrics is None else result.metrics.cost
    return {name: value for name, value in known.items() if value is not None}


_SAID = {
    "failed": "the tool failed",
    "denied": "the call was denied",
    "cancelled": "the call was cancelled",
    "unknown": "the outcome of the call is unknown",
}
_EVENTS: dict[str, Callable[[UiMessageStream, Event, Any], Iterator[Chunk]]] = {
    "run.started": UiMessageStream._run,
    "run.resumed": UiMessageStream._run,
    "model.called": UiMessageStream._model_called,
    "message.completed": UiMessageStream._completed,
    "message.interrupted": UiMessageStream._interrupted,
    "tool.started": UiMessageStream._tool_started,
    "tool.nested": UiMessageStream._nested,
    "tool.finished": UiMessageStream._finished,
    "progress.reported": UiMessageStream._progress,
    "pending.opened": UiMessageStream._opened,
    "pending.voted": UiMessageStream._voted,
    "pending.settled": UiMessageStream._settled,
    "pending.warned": UiMessageStream._expiry,
    "pending.extended": UiMessageStream._expiry,
    "state.changed": UiMessageStream._state,
    "task.changed": UiMessageStream._tasks,
    "thread.rewound": UiMessageStream._rewound,
}
