"""Validates and sanitizes the output of a model, chunk by chunk.

A custom model may return anything. Values that cannot be logged are converted to text where that is
harmless; everything else is an error of the model.
"""

from __future__ import annotations

import asyncio
import contextlib
import reprlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...errors import InvalidValue, ModelError, ModelUnavailable
from ...log.codec import check_data
from ...log.events import to_json
from ...models.port import (
    BoundChunk,
    CallChunk,
    Chunk,
    EndChunk,
    Model,
    ModelCall,
    TextChunk,
    ThoughtChunk,
)
from ..agents.config import ANSWER
from ..tools.thread_runner import asked_to_stop
from ..tools.values import clean

REASONS = frozenset(get_args(get_type_hints(EndChunk)["reason"]))
ROOM = 8  # levels of nesting that events add around arguments


class AnswerTooLong(Exception):
    """The model's answer exceeds the maximum length."""

    def __init__(self, ref: str) -> None:
        super().__init__(f"{ref}: the answer is longer than {ANSWER} characters")


class ModelOutput(Struct):
    """The output of a model so far, collected from its chunks."""

    text: list[str] = []
    thought: list[str] = []
    calls: list[CallChunk] = []
    bound: list[Any] = []
    end: EndChunk | None = None

    def add(self, chunk: Chunk) -> None:
        if isinstance(chunk, TextChunk):
            self.text.append(chunk.text)
        elif isinstance(chunk, ThoughtChunk):
            self.thought.append(chunk.text)
        elif isinstance(chunk, CallChunk):
            self.calls.append(chunk)
        elif isinstance(chunk, BoundChunk):
            self.bound.append(chunk.data)
        else:
            self.end = chunk

    @property
    def begun(self) -> bool:
        return bool(self.text or self.thought or self.calls or self.bound)


async def checked_chunks(model: Model, call: ModelCall) -> AsyncGenerator[Chunk, None]:
    """Yield the chunks of the model's answer. Raises `ModelError` for an invalid chunk,
    `ModelUnavailable` if the model cancelled its own call, and `AnswerTooLong` if the answer
    exceeds the limit, after the text up to the limit."""
    left = ANSWER
    async with aclosing(model.stream(call)) as stream:
        while (chunk := await _next(model.ref, stream)) is not None:
            if (size := _size(chunk)) > left:
                if isinstance(chunk, TextChunk | ThoughtChunk) and left:
                    yield replace(chunk, text=chunk.text[:left])
                raise AnswerTooLong(model.ref)
            left -= size
            yield chunk


def _size(chunk: Chunk) -> int:
    """Return the size of a chunk in characters; an empty chunk counts as one."""
    if isinstance(chunk, TextChunk | ThoughtChunk):
        return max(1, len(chunk.text))
    if isinstance(chunk, CallChunk):
        return len(chunk.name) + len(chunk.id or "") + len(to_json(chunk.arguments)) + 1
    if isinstance(chunk, BoundChunk):
        with contextlib.suppress(InvalidValue, TypeError):  # the write rejects this chunk
            return len(to_json(chunk.data)) + 1
    return 0


async def _next(ref: str, stream: AsyncGenerator[Chunk, None]) -> Chunk | None:
    try:
        return _kept(ref, await anext(stream))
    except StopAsyncIteration:
        return None
    except asyncio.CancelledError as error:
        if asked_to_stop():
            raise
        problem = "the model call was cancelled without a request to stop"
        raise ModelUnavailable(model=ref, problem=problem) from error


def _kept(ref: str, chunk: Any) -> Chunk:
    """Return the chunk in a form that can be logged."""
    match chunk:
        case TextChunk(text=str()) | ThoughtChunk(text=str()):
            text = clean(chunk.text)
            return chunk if text == chunk.text else replace(chunk, text=text)
        case CallChunk(name=str(), id=str() | None):
            return CallChunk(
                name=clean(chunk.name),
                arguments=arguments(chunk.arguments),
                id=None if chunk.id is None else clean(chunk.id),
            )
        case EndChunk(usage=dict() | None):
            reason = chunk.reason if chunk.reason in REASONS else "other"
            return EndChunk(reason, {clean(str(k)): n for k, n in (chunk.usage or {}).items()})
        case BoundChunk():
            return chunk
    given = type(chunk).__name__
    whole = isinstance(chunk, TextChunk | ThoughtChunk | CallChunk | EndChunk)
    wrong = f"a {given} with a field of the wrong type" if whole else f"{given}, not a chunk"
    raise ModelError(model=ref, problem=f"the model returned {wrong}")


def arguments(given: Any) -> Any:
    """Return the arguments of a call as JSON values. Arguments that JSON cannot represent become
    text, which every tool rejects."""
    try:
        text = to_json(given)
        wrapped = b"[" * ROOM + bytes(text) + b"]" * ROOM
        check_data(msgspec.Raw(wrapped))
    except InvalidValue:
        return clean(_written(given))
    return msgspec.json.decode(text)


def _written(value: Any) -> str:
    try:
        return repr(value)
    except Exception:
        return reprlib.repr(value)
