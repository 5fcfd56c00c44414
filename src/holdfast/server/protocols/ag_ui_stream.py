"""Translates the items of a stream to events of AG-UI. Pure: the events depend on the items alone.

The stream is one run of the protocol, with the id that the client gave it. `MAPPED` says which
events of the protocol an event of the log becomes; the kinds in `LOST` become none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

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
from .ai_sdk_stream import asked, pending
from .text_parts import Chunk, TextParts
from .text_parts import Part as TextPart

MAPPED: dict[str, tuple[str, ...]] = {
    "model.called": ("STEP_FINISHED", "STEP_STARTED"),
    "message.completed": (
        *("REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT"),
        *("REASONING_MESSAGE_END", "REASONING_END"),
        *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
        *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "CUSTOM"),
    ),
    "message.interrupted": (
        *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "CUSTOM"),
    ),
    "tool.nested": ("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"),
    "tool.finished": ("TOOL_CALL_RESULT", "CUSTOM"),
    "progress.reported": ("CUSTOM",),
    "pending.opened": ("CUSTOM",),
    "pending.voted": ("CUSTOM",),
    "pending.settled": ("CUSTOM",),
    "pending.warned": ("CUSTOM",),
    "pending.extended": ("CUSTOM",),
    "state.changed": ("STATE_SNAPSHOT", "STATE_DELTA"),
    "task.changed": ("CUSTOM",),
    "thread.rewound": ("CUSTOM",),
}
# `run.waiting` and `run.finished` become the end of the stream: RUN_FINISHED or RUN_ERROR.
ENDING = ("run.waiting", "run.finished")
LOST = frozenset(ev.KINDS) - {*MAPPED, *ENDING}


class AgUiStream(TextParts):
    """Translates one stream. `state` is the user state, and `messages` are the messages that the
    client gets first, if it may not have them."""

    def __init__(
        self,
        thread: str,
        run: str,
        state: dict[str, Any],
        messages: list[dict[str, Any]] | None = None,
    ) -> None:
        super().__init__()
        self._names = {"threadId": thread, "runId": run}
        self._state, self._messages = dict(state), messages
        self._started = False
        self._step: str | None = None

    def frames(self, part: Part, place: str) -> Iterator[bytes]:
        """Return the server-sent events for an item. `place` is the cursor after it."""
        for chunk in self.chunks(part, place):
            yield b"data: %b\n\n" % msgspec.json.encode(chunk, enc_hook=str)

    def chunks(self, part: Part, place: str = "") -> Iterator[Chunk]:
        """Return the events of the protocol for an item."""
        yield from self._start()
        match part:
            case Event():
                if (translate := _EVENTS.get(part.kind)) is not None:
                    yield from translate(self, part, typed(part))
                if part.kind in ("message.completed", "tool.finished"):
                    yield custom("cursor", place)
            case Delta():
                yield from self.delta(part)
            case Trouble():
                yield custom("trouble", {"code": part.code})
            case Resync():
                yield custom("resync", {"reason": part.reason})
            case End():
                yield from self._end(part, place)

    def _start(self) -> Iterator[Chunk]:
        if not self._started:
            self._started = True
            yield {"type": "RUN_STARTED", **self._names}
            messages, self._messages = self._messages, None  # not kept for as long as the stream
            if messages is not None:
                yield {"type": "MESSAGES_SNAPSHOT", "messages": messages}
            yield {"type": "STATE_SNAPSHOT", "snapshot": dict(self._state)}

    # Parts

    def part_start(self, part: TextPart) -> Iterator[Chunk]:
        sort, message = part
        if sort == "text":
            yield {"type": "TEXT_MESSAGE_START", "messageId": message, "role": "assistant"}
        else:
            id = f"{message}:reasoning"
            yield {"type": "REASONING_START", "messageId": id}
            yield {"type": "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning"}

    def part_delta(self, part: TextPart, text: str) -> Iterator[Chunk]:
        sort, message = part
        id = message if sort == "text" else f"{message}:reasoning"
        name = "TEXT_MESSAGE_CONTENT" if sort == "text" else "REASONING_MESSAGE_CONTENT"
        yield {"type": name, "messageId": id, "delta": text}

    def part_end(self, part: TextPart) -> Iterator[Chunk]:
        sort, message = part
        if sort == "text":
            yield {"type": "TEXT_MESSAGE_END", "messageId": message}
        else:
            yield {"type": "REASONING_MESSAGE_END", "messageId": f"{message}:reasoning"}
            yield {"type": "REASONING_END", "messageId": f"{message}:reasoning"}

    def _call(self, call: ev.Call, parent: str | None) -> Iterator[Chunk]:
        named = {} if parent is None else {"parentMessageId": parent}
        start = {"toolCallId": call.id, "toolCallName": call.name, **named}
        yield {"type": "TOOL_CALL_START", **start}
        yield {"type": "TOOL_CALL_ARGS", "toolCallId": call.id, "delta": text_of(call.arguments)}
        yield {"type": "TOOL_CALL_END", "toolCallId": call.id}

    # Events

    def _model_called(self, event: Event, p: ev.ModelCalled | None) -> Iterator[Chunk]:
        yield from self._step_over()
        self._step = f"step {p.step if p is not None else event.seq}"
        yield {"type": "STEP_STARTED", "stepName": self._step}

    def _step_over(self) -> Iterator[Chunk]:
        yield from self.close()
        if self._step is not None:
            step, self._step = self._step, None
            yield {"type": "STEP_FINISHED", "stepName": step}

    def _completed(self, event: Event, p: ev.MessageCompleted | None) -> Iterator[Chunk]:
        p = p or ev.MessageCompleted()
        yield from self.complete(event.id, p.text, p.thought)
        for call in p.calls:
            yield from self._call(call, event.id)

    def _interrupted(self, event: Event, p: ev.MessageInterrupted | None) -> Iterator[Chunk]:
        if p is not None and p.shown:
            yield from self.complete(event.id, p.text)
        elif self.streamed(event.id):  # the same answer begins again
            yield from self.complete(event.id, "")
            yield custom("retracted", {"messageId": event.id})

    def _nested(self, event: Event, p: ev.ToolNested | None) -> Iterator[Chunk]:
        if p is not None:
            yield from self._call(p.call, None)

    def _finished(self, event: Event, p: ev.ToolFinished | None) -> Iterator[Chunk]:
        call = ids.done_call(event.id) if p is None else p.call
        p = p or ev.ToolFinished(call=call, outcome="unknown")
        yield {"type": "TOOL_CALL_RESULT", **result_of(call, p)}
        if p.outcome != "ok":
            yield custom("outcome", {"call": call, "outcome": p.outcome, "code": p.code})

    def _progress(self, event: Event, p: ev.ProgressReported | None) -> Iterator[Chunk]:
        if p is not None:
            yield custom("progress", {"call": p.call, "progress": p.data})

    def _opened(self, event: Event, p: ev.PendingOpened | None) -> Iterator[Chunk]:
        if p is not None and not ids.is_child(p.id):
            yield custom("pending", pending(p))

    def _voted(self, event: Event, p: ev.PendingVoted | None) -> Iterator[Chunk]:
        if p is not None:
            yield custom("vote", {"item": p.id, "by": event.actor, "reason": p.reason})

    def _settled(self, event: Event, p: ev.PendingSettled | None) -> Iterator[Chunk]:
        if p is not None and not ids.is_child(p.id):
            made = {"item": p.id, "outcome": p.outcome, "by": event.actor, "reason": p.reason}
            yield custom("decision", made)

    def _expiry(self, event: Event, p: Any) -> Iterator[Chunk]:
        if p is not None:
            expires = {"expires": p.expires} if isinstance(p, ev.PendingExtended) else {}
            yield custom("expiry", {"item": p.id, "soon": not expires, **expires})

    def _state_changed(self, event: Event, p: ev.StateChanged | None) -> Iterator[Chunk]:
        if p is None:
            return
        if p.replace:
            self._state = dict(p.set)
            yield {"type": "STATE_SNAPSHOT", "snapshot": dict(self._state)}
            return
        gone = [name for name in p.drop if name in self._state]
        delta: list[Chunk] = [
            {"op": "add", "path": pointer(name), "value": value} for name, value in p.set.items()
        ]
        delta += [{"op": "remove", "path": pointer(name)} for name in gone]
        self._state = {**self._state, **p.set}
        for name in gone:
            del self._state[name]
        if delta:
            yield {"type": "STATE_DELTA", "delta": delta}

    def _tasks(self, event: Event, p: ev.TaskChanged | None) -> Iterator[Chunk]:
        if p is not None:
            yield custom("tasks", msgspec.to_builtins(p.tasks))

    def _rewound(self, event: Event, p: ev.ThreadRewound | None) -> Iterator[Chunk]:
        if p is not None:
            yield custom("rewound", {"to": p.to})

    # The end

    def _end(self, end: End, place: str) -> Iterator[Chunk]:
        result = end.result
        yield from self._step_over()
        if end.reason not in ("finished", "waiting"):
            problem = end.error.message if end.error is not None else end.reason
            yield {"type": "RUN_ERROR", "message": problem, "code": end.reason}
            return
        if result is not None and result.status == "failed":
            code = result.code or "run_failed"
            yield {"type": "RUN_ERROR", "message": result.error or code, "code": code}
            return
        about = {"cursor": place, "status": end.reason, **_of(result)}
        finished: Chunk = {"type": "RUN_FINISHED", **self._names, "result": about}
        asks = () if result is None else result.pending
        if asks:
            interrupts = [interrupt(ask) for ask in asks]
            finished["outcome"] = {"type": "interrupt", "interrupts": interrupts}
        elif result is None or result.status == "done":
            finished["outcome"] = {"type": "success"}
        yield finished


def custom(name: str, value: Any) -> Chunk:
    """Return a custom event of the protocol, with this name and value."""
    return {"type": "CUSTOM", "name": name, "value": value}


def text_of(value: Any) -> str:
    """Return a value as text: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()


def result_of(call: str, p: Any) -> Chunk:
    """Return the result of a call as a message. `p` is its outcome."""
    shown = p.content if p.result is None else p.result
    if p.outcome != "ok":
        shown = p.error or p.content or p.code or f"the call is {p.outcome}"
    message = {"messageId": f"{call}:result", "toolCallId": call, "role": "tool"}
    return {**message, "content": text_of("" if shown is None else shown)}


def pointer(name: str) -> str:
    """Return the JSON pointer to an entry of the state."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def interrupt(ask: Ask) -> Chunk:
    """Return a pending item as an interrupt."""
    found: Chunk = {"id": ask.id, "reason": ask.what, "message": ask.title}
    if ask.call is not None and ask.thread == "main":
        found["toolCallId"] = ask.call
    if ask.expires is not None:
        found["expiresAt"] = datetime.fromtimestamp(ask.expires / 1000, UTC).isoformat()
    return {**found, "metadata": msgspec.to_builtins(asked(ask), enc_hook=str)}


def _of(result: Result | None) -> dict[str, Any]:
    if result is None:
        return {}
    cost = None if result.metrics is None else result.metrics.cost
    known = {"status": result.status, "run": result.run, "model": result.model, "cost": cost}
    known["usage"] = result.usage or None  # type: ignore[assignment]
    return {name: value for name, value in known.items() if value is not None}


_EVENTS: dict[str, Callable[[AgUiStream, Event, Any], Iterable[Chunk]]] = {
    "model.called": AgUiStream._model_called,
    "message.completed": AgUiStream._completed,
    "message.interrupted": AgUiStream._interrupted,
    "tool.nested": AgUiStream._nested,
    "tool.finished": AgUiStream._finished,
    "progress.reported": AgUiStream._progress,
    "pending.opened": AgUiStream._opened,
    "pending.voted": AgUiStream._voted,
    "pending.settled": AgUiStream._settled,
    "pending.warned": AgUiStream._expiry,
    "pending.extended": AgUiStream._expiry,
    "state.changed": AgUiStream._state_changed,
    "task.changed": AgUiStream._tasks,
    "thread.rewound": AgUiStream._rewound,
}
