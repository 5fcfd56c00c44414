"""A model that replays the answers in a log, and detects when the prompt differs.

Used for replays: the same agent on the same log must send the same prompts. No vendor is called.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any, get_args

import msgspec
from msgspec import Struct

from ..errors import Diverged, ModelError
from ..log import events as ev
from ..log.codec import typed
from ..log.events import Event
from .port import (
    Answered,
    Asked,
    BoundChunk,
    CallChunk,
    Chunk,
    EndChunk,
    FromModel,
    FromTools,
    FromUser,
    ModelCall,
    StopReason,
    Text,
    TextChunk,
    ThoughtChunk,
    split_ref,
)
from .scripted import split_words


class _Said(Struct, frozen=True):
    """A model's message in the log. `whole` is false if it was interrupted; a prompt may omit such
    a message."""

    seq: int
    message: ev.MessageCompleted
    whole: bool = True

    @property
    def empty(self) -> bool:
        """Whether the message is empty or was erased. Prompts omit such a message."""
        return not (self.message.text or self.message.calls)


class RecordedModel:
    """Answers each call with the message that followed in the log.

    The prompt is compared with the log from its beginning, and must contain nothing else:

    - each text of a user message is the next `message.received`, received before the answer
      was given; strings that the log has as context or as a summary are skipped;
    - each model message has the text, and the names and arguments of the calls, of the next
      `message.completed`; a message that was interrupted or is empty is optional;
    - each tool result has the name of its call, and the content of `tool.finished`: its
      `content`, or the `result` as text or as JSON, or for a failure the `error` in it.

    Ids, media, the system prompt, tools and settings are not compared. After a compaction the
    prompt may begin after the summarised part. Raises `Diverged` for a difference, and `ModelError`
    if the log has no further message. `ref` defaults to the model's name in the log.

    See [recorded models](../models.md).
    """

    def __init__(self, events: Iterable[Event], *, ref: str | None = None) -> None:
        self._users: list[tuple[int, str]] = []
        self._said: list[_Said] = []
        self._results: dict[str, ev.ToolFinished] = {}
        self._beside: set[str] = set()
        self._starts = [0]
        for event in events:
            self._note(event)
        named = [said.message.model for said in self._said if said.message.model]
        self.ref = ref or (named[-1] if named else "recorded/log")
        split_ref(self.ref, "ref")

    def __repr__(self) -> str:
        return f"RecordedModel({self.ref}, {sum(said.whole for said in self._said)} messages)"

    def _note(self, event: Event) -> None:
        payload = typed(event)
        if isinstance(payload, ev.MessageReceived) and payload.text:
            self._users.append((event.seq, payload.text))
        elif isinstance(payload, ev.MessageCompleted):
            self._said.append(_Said(event.seq, payload))
        elif isinstance(payload, ev.MessageInterrupted):
            part = ev.MessageCompleted(text=payload.text)
            self._said.append(_Said(event.seq, part, whole=False))
        elif isinstance(payload, ev.ToolFinished):
            self._results.setdefault(payload.call, payload)
        elif isinstance(payload, ev.ContextBuilt):
            self._beside.update(payload.messages)
        elif isinstance(payload, ev.ContextAdded):
            self._beside.add(payload.content)
        elif isinstance(payload, ev.CompactionMade):
            self._starts.append(payload.upto)
            self._beside.add(payload.summary or "")

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        message = self._answer(call)
        for chunk in recorded_chunks(message):
            yield chunk

    def _answer(self, call: ModelCall) -> ev.MessageCompleted:
        """Return the message that answers the call. The prompt may begin at the beginning of the
        log or after any compaction."""
        differs: list[Diverged] = []
        for start in reversed(self._starts):
            reading = _Reading(
                self.ref,
                call,
                users=[user for user in self._users if user[0] > start],
                said=[said for said in self._said if said.seq > start],
                results=self._results,
                beside=[text for text in self._beside if text],
            )
            try:
                return reading.answer()
            except Diverged as error:
                differs.append(error)
        raise max(differs, key=lambda error: error.step)


class _Reading:
    """Compares a prompt with a log, message by message."""

    def __init__(
        self,
        ref: str,
        call: ModelCall,
        *,
        users: list[tuple[int, str]],
        said: list[_Said],
        results: dict[str, ev.ToolFinished],
        beside: Sequence[str],
    ) -> None:
        self._ref, self._call = ref, call
        self._users, self._said = users, said
        self._results, self._beside = results, beside
        self._heard = self._spoken = self._step = 0
        self._calls: list[ev.Call] = []

    def answer(self) -> ev.MessageCompleted:
        for number, message in enumerate(self._call.messages):
            self._step = number
            if isinstance(message, FromUser):
                self._user(message)
            elif isinstance(message, FromModel):
                self._model(message)
            else:
                self._tools(message)
        self._step = len(self._call.messages)
        since, last = self._users[self._heard - 1] if self._heard else (0, "")
        for said in self._said[self._spoken :]:
            if said.whole and since < said.seq:
                return said.message
            if said.whole and not said.empty:
                raise self._differs("a message received before the answer", last)
        raise ModelError(model=self._ref, problem="the log has no more model messages to replay")

    def _user(self, message: FromUser) -> None:
        for part in message.content:
            if not isinstance(part, Text):
                continue
            expected = self._users[self._heard][1] if self._heard < len(self._users) else None
            if part.text == expected:
                self._heard += 1
            elif not any(text in part.text for text in self._beside):
                raise self._differs(expected, part.text)

    def _model(self, message: FromModel) -> None:
        while self._spoken < len(self._said):
            said = self._said[self._spoken]
            if _same(said.message, message):
                self._spoken += 1
                self._calls = list(said.message.calls)
                return
            if said.whole and not said.empty:
                raise self._differs(_words(said.message), _words(message))
            self._spoken += 1
        raise self._differs(None, _words(message))

    def _tools(self, message: FromTools) -> None:
        if len(message.results) != len(self._calls):
            raise self._differs([c.name for c in self._calls], [r.name for r in message.results])
        for call, result in zip(self._calls, message.results, strict=True):
            finished = self._results.get(call.id)
            if finished is None or call.name != result.name or not _fits(finished, result):
                raise self._differs(
                    _result_text(call, finished), f"{result.name}: {result.content}"
                )

    def _differs(self, expected: Any, found: Any) -> Diverged:
        return Diverged(
            model=self._ref,
            problem=f"message {self._step + 1} of the prompt differs from the log",
            expected=expected,
            found=found,
            step=self._step,
        )


def _same(said: ev.MessageCompleted, message: FromModel) -> bool:
    calls = [(call.name, call.arguments) for call in said.calls]
    return said.text == message.text and calls == [(c.name, c.arguments) for c in message.calls]


def _words(message: ev.MessageCompleted | FromModel) -> dict[str, Any]:
    calls: Sequence[ev.Call | Asked] = message.calls
    return {"text": message.text, "calls": [[call.name, call.arguments] for call in calls]}


def _fits(finished: ev.ToolFinished, result: Answered) -> bool:
    if finished.content is not None:
        return finished.content == result.content
    if finished.outcome != "ok":
        return (finished.error or "") in result.content
    if isinstance(finished.result, str):
        return finished.result == result.content
    try:
        return bool(msgspec.json.decode(result.content) == finished.result)
    except msgspec.DecodeError:
        return finished.result is None


def _result_text(call: ev.Call, finished: ev.ToolFinished | None) -> Any:
    if finished is None:
        return f"{call.name}: no result yet"
    return f"{call.name}: {finished.content or finished.error or finished.result}"


def recorded_chunks(message: ev.MessageCompleted) -> list[Chunk]:
    """Return the chunks of a recorded message, as a model would stream them."""
    reason: Any = message.reason if message.reason in get_args(StopReason) else None
    calls = [CallChunk(name=c.name, arguments=c.arguments, id=c.provider_id) for c in message.calls]
    return [
        *map(ThoughtChunk, split_words(message.thought)),
        *map(TextChunk, split_words(message.text)),
        *calls,
        *map(BoundChunk, message.parts),
        EndChunk(reason or ("calls" if calls else "stop"), dict(message.usage)),
    ]
