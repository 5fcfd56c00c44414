"""Converts one thread to Harn's format: its messages, calls and questions. All other events are
kept unchanged. Blocking if the parts of the bundle are in a file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from ...log import events as ev
from ...log.codec import typed
from ...log.conversation import conversation
from ...log.events import Event
from ...log.transcript import Message, Outcome, ToolCall, transcript
from ..archive import Bundle
from ..conversion_loss import Losses
from ..format import Thread
from ..json_values import JsonObject, to_text
from ..timestamps import rfc3339
from .format import COMPLETED, SUSPENDED

MESSAGES = {"message.received", "message.completed", "message.interrupted", "tool.finished"}


class ThreadWriter:
    """Converts one thread to Harn's format."""

    def __init__(self, bundle: Bundle, thread: Thread, losses: Losses) -> None:
        self.started_at = thread.created_at
        self.recordings: list[JsonObject] = []
        self.questions: list[JsonObject] = []
        self.task: str | None = None
        self._done = True  # the last message has an answer, and nothing is open
        self._path, self._losses = f"$.threads[{thread.thread}]", losses
        self._events: list[JsonObject] = []
        listed = list(bundle.events(thread.thread))
        events = conversation(listed)
        for _ in range(len(listed) - len(events)):
            losses.add(
                self._path, "an event that was rewound away", "it is not in the conversation"
            )
        for event in events:
            if event.kind not in MESSAGES:
                self._verbatim(event)
        self._calls = {c.id: c for c in bundle.document.tools.calls if c.thread == thread.thread}
        self._messages = [m for message in transcript(events) for m in self._message(message)]

    @property
    def status(self) -> str:
        return COMPLETED if self._done else SUSPENDED

    def transcript(self, metadata: JsonObject) -> JsonObject:
        return {
            "_type": "transcript",
            "messages": self._messages,
            "events": self._events,
            "assets": [],
            "summary": None,
            "metadata": metadata,
        }

    def _verbatim(self, event: Event) -> None:
        """Keep an event that is not a message; Harn's readers ignore it."""
        fields = {"type": event.kind, "id": event.id, "seq": event.seq, "at": rfc3339(event.at)}
        more = {"run": event.run, "actor": event.actor, "cause": event.cause}
        self._events.append(
            {**fields, **{n: v for n, v in more.items() if v is not None}, "data": _json(event)}
        )
        kept = "transcript.events"
        self._losses.add(self._path, f"an event {event.kind}", "Harn has no such event", kept=kept)
        payload = typed(event)
        if isinstance(payload, ev.PendingOpened) and payload.what == "question":
            self.questions.append(
                {
                    "request_id": payload.id,
                    "prompt": payload.title or "",
                    "agent": payload.assignee or "",
                    "trace_id": event.run,
                    "asked_at": rfc3339(event.at),
                }
            )

    def _message(self, message: Message) -> Iterator[JsonObject]:
        path = f"{self._path}.events[{message.seq}]"
        self._losses.add(path, "number, id, time and usage of a message", "Harn has no such fields")
        if message.role == "user":
            self.task = self.task or message.text.strip() or None
            self._done = False
            blocks: list[Any] = [{"type": "text", "text": message.text}] if message.text else []
            yield {"role": "user", "content": [*blocks, *message.parts]}
            return
        self._done = not message.calls and not message.interrupted
        yield self._answer(message, path)
        for call in message.calls:
            if call.outcome is not None:
                yield self._result(call, call.outcome)
            self.recordings.append(self._recording(call))

    def _answer(self, message: Message, path: str) -> JsonObject:
        answer: JsonObject = {"role": "assistant", "content": message.text}
        if message.thought:
            answer["thinking"] = message.thought
        if message.model:
            answer["model"] = message.model
        if message.calls:
            answer["tool_calls"] = [
                {"id": call.id, "name": call.name, "arguments": call.arguments}
                for call in message.calls
            ]
        if message.parts:
            why = "only the model that wrote it can read it"
            self._losses.add(path, "a part that only one model can read", why)
        if message.interrupted:
            self._losses.add(path, "the interruption of a message", "Harn has no field for it")
        return answer

    def _result(self, call: ToolCall, outcome: Outcome) -> JsonObject:
        failed = outcome.outcome != "ok"
        path = f"{self._path}.events[{outcome.seq}]"
        if outcome.outcome not in ("ok", "failed"):
            what = f"the outcome '{outcome.outcome}' of a call"
            self._losses.add(path, what, "Harn only distinguishes errors from other results")
        if not isinstance(outcome.result, (str, type(None))) or outcome.content is not None:
            why = "Harn keeps only the text that the model received"
            self._losses.add(path, "the values of a result", why)
        return {
            "role": "tool",
            "tool_call_id": call.id,
            "name": call.name,
            "content": _text(outcome),
            "is_error": failed,
        }

    def _recording(self, call: ToolCall) -> JsonObject:
        known, outcome = self._calls.get(call.id), call.outcome
        arguments = msgspec.json.encode(call.arguments, order="deterministic")
        digest = hashlib.sha256(call.name.encode() + b"\0" + arguments).hexdigest()
        return {
            "tool_name": call.name,
            "tool_use_id": call.id,
            "args_hash": digest[:16],
            "result": _text(outcome) if outcome else "",
            "is_rejected": outcome is not None and outcome.outcome == "denied",
            "duration_ms": (known.duration_ms or 0) if known else 0,
            "iteration": known.step if known else 0,
            "timestamp": known.at if known else "",
        }


def _text(outcome: Outcome) -> str:
    """Return the result of a call as the model received it."""
    for value in (outcome.content, outcome.result, outcome.error):
        if value is not None:
            return to_text(value)
    return "" if outcome.outcome == "ok" else outcome.outcome


def _json(event: Event) -> Any:
    try:
        return event.json()
    except ValueError:
        return None
