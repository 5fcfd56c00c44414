"""Converts Harn's conversations into events: the messages of a section, or the events of an agent
session. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from ...log import events as ev
from ...log.events import ids
from ..conversion_loss import Losses
from ..foreign_log import LogBuilder, as_name, new_call_id
from ..json_values import NOT_JSON, JsonObject, as_dict, as_list, as_str, as_text
from .agent_events import AgentEvent, text_of

KEPT = "the blob with the whole document"
RESULTS = ("tool", "tool_result", "function")
CALLS = ("tool_use", "tool_call")
SETTLED = {"answered": "answered", "timeout": "expired", "cancelled": "abandoned"}
ENDED = ("completed", "failed")


class MessageReader:
    """Converts the messages of one section."""

    def __init__(self, log: LogBuilder, losses: Losses, path: str, model: str | None) -> None:
        self._log, self._losses, self._path, self._model = log, losses, path, model
        self._names: dict[str, str] = {}  # Harn's id of a call: its id here

    def read(self, messages: Sequence[Any]) -> None:
        for number, message in enumerate(messages):
            path = f"{self._path}.messages[{number}]"
            if isinstance(message, dict):
                self._one(message, path)
            else:
                self._store(message, path, "a message", "it is not an object")

    def _store(self, message: Any, path: str, what: str, why: str) -> None:
        """Store a message that cannot be converted as an event `harn.message`, and report it as a
        loss.
        """
        self._log.add("harn.message", message)
        self._losses.add(path, what, why, kept="harn.message")

    def _one(self, message: JsonObject, path: str) -> None:
        role = message.get("role")
        known = {"role", "content"}
        if role == "user":
            self._user(message, path)
        elif role == "assistant":
            known |= {"tool_calls", "thinking", "model"}
            self._assistant(message, path)
        elif role in RESULTS:
            known |= {"tool_call_id", "tool_use_id", "name", "is_error"}
            self._result(message, path)
        else:
            why = "only users and models have messages"
            self._store(message, path, f"a message of role {role!r}", why)
            return
        for name in sorted(message.keys() - known):
            self._losses.add(f"{path}.{name}", "a field of a message", "unknown field", kept=KEPT)

    def _user(self, message: JsonObject, path: str) -> None:
        results, others = _split(message, "tool_result")
        for block in results:
            self._result(block, path)
        if others or not results:
            text, parts = _content(others)
            self._log.received(ev.MessageReceived(text=text, parts=parts))

    def _assistant(self, message: JsonObject, path: str) -> None:
        called, others = _split(message, *CALLS)
        thoughts, others = _split({"content": others}, "thinking")
        text, parts = _content(others)
        thinking = [message.get("thinking"), *(b.get("thinking") for b in thoughts)]
        calls = [self._call(one, path) for one in (*called, *as_list(message.get("tool_calls")))]
        model = message.get("model")
        completed = ev.MessageCompleted(
            text=text,
            parts=parts,
            calls=[call for call in calls if call is not None],
            model=model if isinstance(model, str) else self._model,
            thought="\n\n".join(t for t in thinking if isinstance(t, str) and t),
        )
        for lost in self._log.completed(completed):
            why = "the document has no result; it is unknown whether the call took effect"
            self._losses.add(path, f"the result of call {lost!r}", why)

    def _call(self, one: Any, path: str) -> ev.Call | None:
        call = as_dict(one)
        about = {**call, **as_dict(call.get("function"))}
        name = about.get("name") or about.get("tool_name")
        if not isinstance(name, str):
            self._losses.add(path, "a call", "it has no name", kept=KEPT)
            return None
        wanted = about.get("id") or about.get("tool_call_id") or about.get("tool_use_id")
        wanted = as_str(wanted) or ""
        id = new_call_id(self._log.thread, wanted or f"{path}.{name}", set(self._names.values()))
        self._names[wanted or id] = id
        given = next((about[n] for n in ("arguments", "args", "input") if n in about), None)
        return ev.Call(id=id, name=name, arguments=_arguments(given), provider_id=wanted or None)

    def _result(self, message: JsonObject, path: str) -> None:
        named = message.get("tool_call_id") or message.get("tool_use_id")
        text = text_of(message.get("content"))
        failed = bool(message.get("is_error"))
        ended = ev.ToolFinished(
            call=self._names.get(str(named), str(named)),
            outcome="failed" if failed else "ok",
            result=None if failed else text,
            error=text if failed else None,
            content=text if failed else None,
        )
        if not self._log.finished(ended):
            self._store(message, path, "the result of a call", "no open call has this id")

    def read_recordings(self, calls: Sequence[JsonObject]) -> None:
        """Use recorded results for the calls that have no result in the messages."""
        for number, call in enumerate(calls):
            id = self._names.get(str(call.get("tool_use_id")), "")
            if id not in self._log.open:
                if id == "":
                    path = f"$.tools.calls[{number}]"
                    what, why = "a recorded call", "it is in no message, and has no arguments"
                    self._losses.add(path, what, why, kept=KEPT)
                continue
            denied, result = bool(call.get("is_rejected")), call.get("result")
            outcome = ev.ToolFinished(
                call=id,
                outcome="denied" if denied else "ok",
                result=None if denied else result,
                error=str(result) if denied else None,
            )
            self._log.finished(outcome)


def _split(message: JsonObject, *types: str) -> tuple[list[JsonObject], list[Any]]:
    """Split the content of a message into the blocks of these types and the other blocks."""
    content = message.get("content")
    blocks = content if isinstance(content, list) else [content]
    found = [b for b in blocks if isinstance(b, dict) and b.get("type") in types]
    return found, [block for block in blocks if block not in found]


def _content(blocks: Sequence[Any]) -> tuple[str, list[Any]]:
    """Return the text of a message, and its other parts unchanged."""
    texts: list[str] = []
    parts: list[Any] = []
    for block in blocks:
        if isinstance(block, str):
            texts.append(block)
        elif isinstance(block, dict) and isinstance(block.get("text"), str):
            texts.append(block["text"])
            if block.keys() - {"type", "text"}:
                parts.append({name: v for name, v in block.items() if name != "text"})
        elif block is not None:
            parts.append(block)
    return "\n".join(texts), parts


def _item(request: Any) -> str | None:
    """Return the id of a pending item for the id of a question; None if the question has no id."""
    id = as_text(request)
    return id and (as_name(id) or hashlib.sha256(id.encode()).hexdigest())


def _arguments(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    try:
        return msgspec.json.decode(given)
    except NOT_JSON:
        return given


class AgentEventReader:
    """Converts the events of an agent session. Chunks are joined into messages, and the result of a
    call follows the message with the call.
    """

    def __init__(self, log: LogBuilder, losses: Losses, path: str) -> None:
        self._log, self._losses, self._path = log, losses, path
        self._text: list[str] = []
        self._thought: list[str] = []
        self._calls: list[ev.Call] = []
        self._ended: list[tuple[ev.ToolFinished, int]] = []
        self._names: dict[str, str] = {}
        self.asked: dict[str, None] = {}  # the questions without an answer
        self._model: str | None = None
        self._at = 0

    def read(self, events: Sequence[AgentEvent]) -> None:
        steps = {
            "user_message": self._user,
            "agent_message_chunk": self._chunk,
            "agent_thought_chunk": self._chunk,
            "tool_call": self._call,
            "tool_call_update": self._update,
            "hitl_requested": self._ask,
            "hitl_resolved": self._resolve,
            "iteration_start": self._iteration,
            "iteration_end": self._iteration,
            "session_closed": self._iteration,
        }
        for number, event in enumerate(events):
            if (step := steps.get(event.type)) is None:
                path, what = f"{self._path}.events[{number}]", f"an event {event.type!r}"
                self._losses.add(path, what, "no counterpart", kept=KEPT)
            else:
                step(event)
        self._flush()

    def _user(self, event: AgentEvent) -> None:
        self._flush()
        text, parts = _content(_split(event.event)[1])
        message = ev.MessageReceived(text=text, parts=parts)
        self._log.received(message, at=event.occurred_at_ms, id=f"harn:{event.event_id}")

    def _chunk(self, event: AgentEvent) -> None:
        if self._ended:
            self._flush()
        into = self._text if event.type == "agent_message_chunk" else self._thought
        into.append(text_of(event.event.get("content")))
        self._at = event.occurred_at_ms

    def _call(self, event: AgentEvent) -> None:
        about = event.event
        wanted = str(about.get("tool_call_id") or "")
        if wanted and wanted in self._names:
            return  # a later status of the same call
        if self._ended and len(self._ended) == len(self._calls):
            self._flush()
        id = new_call_id(self._log.thread, wanted or f"call:{event.event_id}", {*self._names})
        self._names[wanted or id] = id
        name = str(about.get("tool_name") or "unknown")
        arguments = about.get("raw_input")
        call = ev.Call(id=id, name=name, arguments=arguments, provider_id=wanted or None)
        self._calls.append(call)
        self._at = event.occurred_at_ms

    def _update(self, event: AgentEvent) -> None:
        about = event.event
        status, id = about.get("status"), self._names.get(str(about.get("tool_call_id")))
        if status not in ENDED:
            return
        output, error = about.get("raw_output"), about.get("error")
        failed = status == "failed"
        text = error if isinstance(error, str) else None if error is None else text_of([error])
        ended = ev.ToolFinished(
            call=id or "",
            outcome="failed" if failed else "ok",
            result=output,
            error=(text or "the tool failed") if failed else None,
        )
        if id in {call.id for call in self._calls}:
            self._ended.append((ended, event.occurred_at_ms))
        elif not self._log.finished(ended, at=event.occurred_at_ms):
            why = "no call has its id"
            self._losses.add(self._path, "the result of a call", why, kept=KEPT)

    def _ask(self, event: AgentEvent) -> None:
        self._flush()
        about = event.event
        id = _item(about.get("request_id")) or f"harn:{event.event_id}"
        payload = about.get("payload")
        asks = ev.PendingOpened(
            id=id,
            what="approval" if "approv" in str(about.get("kind")) else "question",
            title=as_str(as_dict(payload).get("prompt")),
            detail={"kind": about.get("kind"), "payload": payload},
        )
        if id not in self.asked:
            self.asked[id] = None
            self._log.add("pending.opened", asks, at=event.occurred_at_ms)

    def _resolve(self, event: AgentEvent) -> None:
        id, how = _item(event.event.get("request_id")) or "", str(event.event.get("outcome"))
        if id not in self.asked:
            return
        del self.asked[id]
        outcome: Any = SETTLED.get(how, "answered")
        settled = ev.PendingSettled(id=id, outcome=outcome, reason=how)
        self._log.add("pending.settled", settled, id=ids.settle_id(id), at=event.occurred_at_ms)
        self._losses.add(
            self._path, "an answer to a question", "the events do not contain the question"
        )

    def _iteration(self, event: AgentEvent) -> None:
        self._flush()
        provider, model = event.event.get("provider"), event.event.get("model")
        if event.type == "iteration_start" and isinstance(model, str):
            self._model = f"{provider}/{model}" if isinstance(provider, str) else model

    def _flush(self) -> None:
        if self._text or self._thought or self._calls:
            message = ev.MessageCompleted(
                text="".join(self._text),
                thought="".join(self._thought),
                calls=self._calls,
                model=self._model,
            )
            self._log.completed(message, at=self._at)
        for ended, at in self._ended:
            self._log.finished(ended, at=at)
        self._text, self._thought, self._calls, self._ended = [], [], [], []
