"""One thread of ours in Harn's words: its messages, its calls, its questions, and every other event
verbatim. Blocks where the parts of the bundle are in a file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from ...log import events as ev
from ...log.codec import typed
from ...log.events import Event
from ...log.transcript import Message, Outcome, ToolCall, transcript
from ..archive import Bundle
from ..conversion_loss import Losses
from ..format import Thread
from .names import rfc3339

SPOKEN = {"message.received", "message.completed", "message.interrupted", "tool.finished"}

Tree = dict[str, Any]


class ToldThread:
    """The thread. `done`: its last message was answered, and nothing in it is open."""

    def __init__(self, bundle: Bundle, thread: Thread, losses: Losses) -> None:
        self.started_at = thread.created_at
        self.recordings: list[Tree] = []
        self.questions: list[Tree] = []
        self.task: str | None = None
        self.done = True
        self._path, self._losses = f"$.threads[{thread.thread}]", losses
        self._events: list[Tree] = []
        heard: list[Event] = []
        for event in bundle.events(thread.thread):
            heard.append(event)
            if event.kind not in SPOKEN:
                self._verbatim(event)
        self._calls = {c.id: c for c in bundle.document.tools.calls if c.thread == thread.thread}
        self._messages = [m for message in transcript(heard) for m in self._message(message)]

    def transcript(self, metadata: Tree) -> Tree:
        return {
            "_type": "transcript",
            "messages": self._messages,
            "events": self._events,
            "assets": [],
            "summary": None,
            "metadata": metadata,
        }

    def _verbatim(self, event: Event) -> None:
        """Whatever is no message, as it is; Harn's readers pass it over."""
        told = {"type": event.kind, "id": event.id, "seq": event.seq, "at": rfc3339(event.at)}
        more = {"run": event.run, "actor": event.actor, "cause": event.cause}
        self._events.append(
            {**told, **{n: v for n, v in more.items() if v is not None}, "data": _json(event)}
        )
        kept = "transcript.events"
        self._losses.add(self._path, f"an event {event.kind}", "Harn has none such", kept=kept)
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

    def _message(self, message: Message) -> Iterator[Tree]:
        path = f"{self._path}.events[{message.seq}]"
        self._losses.add(path, "number, id, time and usage of a message", "Harn has none")
        if message.role == "user":
            self.task = self.task or message.text.strip() or None
            self.done = False
            blocks: list[Any] = [{"type": "text", "text": message.text}] if message.text else []
            yield {"role": "user", "content": [*blocks, *message.parts]}
            return
        self.done = all(call.outcome is not None for call in message.calls)
        self.done = self.done and not message.calls and not message.interrupted
        yield self._answer(message, path)
        for call in message.calls:
            if call.outcome is not None:
                yield self._result(call, call.outcome)
            self.recordings.append(self._recording(call))

    def _answer(self, message: Message, path: str) -> Tree:
        told: Tree = {"role": "assistant", "content": message.text}
        if message.thought:
            told["thinking"] = message.thought
        if message.model:
            told["model"] = message.model
        if message.calls:
            told["tool_calls"] = [
                {"id": call.id, "name": call.name, "arguments": call.arguments}
                for call in message.calls
            ]
        if message.parts:
            why = "only the model that made it can read it"
            self._losses.add(path, "a part that is bound to a model", why)
        if message.interrupted:
            self._losses.add(path, "that a message broke off", "Harn's messages are whole")
        return told

    def _result(self, call: ToolCall, outcome: Outcome) -> Tree:
        failed = outcome.outcome != "ok"
        path = f"{self._path}.events[{outcome.seq}]"
        if outcome.outcome not in ("ok", "failed"):
            what = f"that a call was {outcome.outcome}"
            self._losses.add(path, what, "a result is an error there, or none")
        if not isinstance(outcome.result, (str, type(None))) or outcome.content is not None:
            why = "a result is the text that the model read"
            self._losses.add(path, "the values of a result", why)
        return {
            "role": "tool",
            "tool_call_id": call.id,
            "name": call.name,
            "content": _words(outcome),
            "is_error": failed,
        }

    def _recording(self, call: ToolCall) -> Tree:
        known, outcome = self._calls.get(call.id), call.outcome
        arguments = msgspec.json.encode(call.arguments, order="deterministic")
        digest = hashlib.sha256(call.name.encode() + b"\0" + arguments).hexdigest()
        return {
            "tool_name": call.name,
            "tool_use_id": call.id,
            "args_hash": digest[:16],
            "result": _words(outcome) if outcome else "",
            "is_rejected": outcome is not None and outcome.outcome == "denied",
            "duration_ms": (known.duration_ms or 0) if known else 0,
            "iteration": known.step if known else 0,
            "timestamp": known.at if known else "",
        }


def _words(outcome: Outcome) -> str:
    """What a call came to, as its model read it."""
    for said in (outcome.content, outcome.result, outcome.error):
        if said is not None:
            return said if isinstance(said, str) else msgspec.json.encode(said).decode()
    return "" if outcome.outcome == "ok" else outcome.outcome


def _json(event: Event) -> Any:
    try:
        return event.json()
    except ValueError:
        return None
