"""A conversation as Harn keeps it, told as events of ours: the messages of a section, or the events
of an agent session. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from ...log import events as ev
from ...log.events import ids
from ..conversion_loss import Losses
from ..foreign_log import Telling, as_name, new_call_id
from .stream import AgentEvent, text_of

KEPT = "the blob with the whole document"
RESULTS = ("tool", "tool_result", "function")
CALLS = ("tool_use", "tool_call")
SETTLED = {"answered": "answered", "timeout": "expired", "cancelled": "abandoned"}
ENDED = ("completed", "failed")


class Messages:
    """Tells the messages of one section."""

    def __init__(self, log: Telling, losses: Losses, path: str, model: str | None) -> None:
        self._log, self._losses, self._path, self._model = log, losses, path, model
        self._names: dict[str, str] = {}  # Harn's id of a call: ours

    def tell(self, messages: Sequence[Any], at: int | None) -> None:
        for number, message in enumerate(messages):
            path = f"{self._path}.messages[{number}]"
            if not isinstance(message, dict):
                self._log.add("harn.message", message, at=at)
                self._losses.add(path, "what is no message", "it is no object", kept="harn.message")
                continue
            self._one(message, path, at)

    def _one(self, message: dict[str, Any], path: str, at: int | None) -> None:
        role, content = message.get("role"), message.get("content")
        known = {"role", "content"}
        if role == "user":
            self._user(content, path, at)
        elif role == "assistant":
            known |= {"tool_calls", "thinking", "model"}
            self._assistant(message, path, at)
        elif role in RESULTS:
            known |= {"tool_call_id", "tool_use_id", "name", "is_error"}
            self._result(message, path, at)
        else:
            self._log.add("harn.message", message, at=at)
            why = "there are messages of people and of models"
            self._losses.add(path, f"a message of role {role!r}", why, kept="harn.message")
            return
        for name in sorted(message.keys() - known):
            self._losses.add(f"{path}.{name}", "a field of a message", "unknown here", kept=KEPT)

    def _user(self, content: Any, path: str, at: int | None) -> None:
        blocks = content if isinstance(content, list) else [content]
        results = [b for b in blocks if isinstance(b, dict) and b.get("type") == "tool_result"]
        for block in results:
            self._result(block, path, at)
        others = [block for block in blocks if block not in results]
        if others or not results:
            text, parts = _content(others)
            self._log.heard(ev.MessageReceived(text=text, parts=parts), at=at)

    def _assistant(self, message: dict[str, Any], path: str, at: int | None) -> None:
        content = message.get("content")
        blocks = content if isinstance(content, list) else [content]
        called = [b for b in blocks if isinstance(b, dict) and b.get("type") in CALLS]
        thoughts = [b for b in blocks if isinstance(b, dict) and b.get("type") == "thinking"]
        text, parts = _content([b for b in blocks if b not in called and b not in thoughts])
        listed = message.get("tool_calls")
        told = [*called, *(listed if isinstance(listed, list) else [])]
        thinking = [message.get("thinking"), *(b.get("thinking") for b in thoughts)]
        model = message.get("model")
        said = ev.MessageCompleted(
            text=text,
            parts=parts,
            calls=[call for one in told if (call := self._call(one, path))],
            model=model if isinstance(model, str) else self._model,
            thought="\n\n".join(t for t in thinking if isinstance(t, str) and t),
        )
        for lost in self._log.said(said, at=at):
            why = "the document has none; it is unknown whether the call acted"
            self._losses.add(path, f"the result of call {lost!r}", why)

    def _call(self, one: Any, path: str) -> ev.Call | None:
        inner = one.get("function") if isinstance(one, dict) else None
        about = {**one, **inner} if isinstance(inner, dict) else one
        name = about.get("name") or about.get("tool_name") if isinstance(about, dict) else None
        if not isinstance(name, str):
            self._losses.add(path, "a call", "it has no name", kept=KEPT)
            return None
        wanted = about.get("id") or about.get("tool_call_id") or about.get("tool_use_id")
        wanted = wanted if isinstance(wanted, str) else ""
        id = new_call_id(self._log.thread, wanted or f"{path}.{name}", set(self._names.values()))
        self._names[wanted or id] = id
        given = next((about[n] for n in ("arguments", "args", "input") if n in about), None)
        return ev.Call(id=id, name=name, arguments=_arguments(given), provider_id=wanted or None)

    def _result(self, message: dict[str, Any], path: str, at: int | None) -> None:
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
        if not self._log.ended(ended, at=at):
            self._log.add("harn.message", message, at=at)
            why = "no open call has its id"
            self._losses.add(path, "the result of a call", why, kept="harn.message")

    def recorded(self, calls: Sequence[dict[str, Any]]) -> None:
        """Take results from the recordings of calls for calls that the messages leave open."""
        for number, call in enumerate(calls):
            id = self._names.get(str(call.get("tool_use_id")), "")
            if id not in self._log.open:
                if id == "":
                    path = f"$.tools.calls[{number}]"
                    what, why = "a recorded call", "no message makes it, and it has no arguments"
                    self._losses.add(path, what, why, kept=KEPT)
                continue
            denied, result = bool(call.get("is_rejected")), call.get("result")
            outcome = ev.ToolFinished(
                call=id,
                outcome="denied" if denied else "ok",
                result=None if denied else result,
                error=str(result) if denied else None,
            )
            self._log.ended(outcome)


def _content(blocks: Sequence[Any]) -> tuple[str, list[Any]]:
    """The text of a message, and its other parts as they are."""
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
    """The id of a question, as an id of ours; None for what is none."""
    if not isinstance(request, str) or not request:
        return None
    return as_name(request) or hashlib.sha256(request.encode()).hexdigest()


def _arguments(given: Any) -> Any:
    if not isinstance(given, str):
        return given
    try:
        return msgspec.json.decode(given)
    except (msgspec.DecodeError, RecursionError):
        return given


class Stream:
    """Tells the events of an agent session: chunks are joined into messages, and a call's result
    stands behind the message that made it."""

    def __init__(self, log: Telling, losses: Losses, path: str) -> None:
        self._log, self._losses, self._path = log, losses, path
        self._text: list[str] = []
        self._thought: list[str] = []
        self._calls: list[ev.Call] = []
        self._ended: list[tuple[ev.ToolFinished, int]] = []
        self._names: dict[str, str] = {}
        self._asked: dict[str, None] = {}
        self._model: str | None = None
        self._at = 0

    def tell(self, events: Sequence[AgentEvent]) -> None:
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
                self._losses.add(path, what, "there is no such event here", kept=KEPT)
            else:
                step(event)
        self._flush()

    @property
    def asked(self) -> list[str]:
        """The questions that nobody has answered."""
        return list(self._asked)

    def _user(self, event: AgentEvent) -> None:
        self._flush()
        content = event.event.get("content")
        text, parts = _content(content if isinstance(content, list) else [content])
        heard = ev.MessageReceived(text=text, parts=parts)
        self._log.heard(heard, at=event.occurred_at_ms, id=f"harn:{event.event_id}")

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
            return  # its next status
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
        words = error if isinstance(error, str) else None if error is None else text_of([error])
        ended = ev.ToolFinished(
            call=id or "",
            outcome="failed" if failed else "ok",
            result=output,
            error=(words or "the tool failed") if failed else None,
        )
        if id in {call.id for call in self._calls}:
            self._ended.append((ended, event.occurred_at_ms))
        elif not self._log.ended(ended, at=event.occurred_at_ms):
            why = "no call has its id"
            self._losses.add(self._path, "the result of a call", why, kept=KEPT)

    def _ask(self, event: AgentEvent) -> None:
        self._flush()
        about = event.event
        id = _item(about.get("request_id")) or f"harn:{event.event_id}"
        payload = about.get("payload")
        prompt = payload.get("prompt") if isinstance(payload, dict) else None
        asks = ev.PendingOpened(
            id=id,
            what="approval" if "approv" in str(about.get("kind")) else "question",
            title=prompt if isinstance(prompt, str) else None,
            detail={"kind": about.get("kind"), "payload": payload},
        )
        if id not in self._asked:
            self._asked[id] = None
            self._log.add("pending.opened", asks, at=event.occurred_at_ms)

    def _resolve(self, event: AgentEvent) -> None:
        id, how = _item(event.event.get("request_id")) or "", str(event.event.get("outcome"))
        if id not in self._asked:
            return
        del self._asked[id]
        outcome: Any = SETTLED.get(how, "answered")
        settled = ev.PendingSettled(id=id, outcome=outcome, reason=how)
        self._log.add("pending.settled", settled, id=ids.settle_id(id), at=event.occurred_at_ms)
        self._losses.add(self._path, "an answer to a question", "its events do not have it")

    def _iteration(self, event: AgentEvent) -> None:
        self._flush()
        provider, model = event.event.get("provider"), event.event.get("model")
        if event.type == "iteration_start" and isinstance(model, str):
            self._model = f"{provider}/{model}" if isinstance(provider, str) else model

    def _flush(self) -> None:
        if self._text or self._thought or self._calls:
            said = ev.MessageCompleted(
                text="".join(self._text),
                thought="".join(self._thought),
                calls=self._calls,
                model=self._model,
            )
            self._log.said(said, at=self._at)
        for ended, at in self._ended:
            self._log.ended(ended, at=at)
        self._text, self._thought, self._calls, self._ended = [], [], [], []
