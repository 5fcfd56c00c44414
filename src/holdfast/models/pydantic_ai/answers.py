"""Converts the stream of a vendor's answer into chunks.

Text and reasoning are passed on immediately. Tool calls are passed on at the end of the stream,
since vendors may interleave them, and a call from an interrupted stream must not be executed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import msgspec
from pydantic_ai.messages import (
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import StreamedResponse
from pydantic_ai.usage import RequestUsage

from ...errors import ModelUnavailable
from ..port import BoundChunk, CallChunk, Chunk, EndChunk, StopReason, TextChunk, ThoughtChunk
from .prompts import layout

REASONS: dict[str | None, StopReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "filtered",
    "tool_call": "calls",
}
MADE_UP = "pyd_ai_"  # prefix of the ids that pydantic-ai generates for calls without a vendor's id


class VendorAnswer:
    """Converts one answer into chunks while it is being received."""

    def __init__(self, ref: str) -> None:
        self._ref = ref
        self._text: list[str] = []

    def chunks_of(self, event: Any) -> Iterator[Chunk]:
        """Return the chunks for one event of the vendor's stream."""
        part: Any = None
        text: Any = None
        if isinstance(event, PartStartEvent):
            part, text = event.part, getattr(event.part, "content", None)
        elif isinstance(event, PartDeltaEvent):
            part, text = event.delta, getattr(event.delta, "content_delta", None)
        if text and isinstance(part, (TextPart, TextPartDelta)):
            yield self._said(text)
        elif text and isinstance(part, (ThinkingPart, ThinkingPartDelta)):
            yield ThoughtChunk(text)

    def _said(self, text: str) -> TextChunk:
        self._text.append(text)
        return TextChunk(text)

    def ending(self, stream: StreamedResponse) -> list[Chunk]:
        """Return the last chunks: the tool calls, the data bound to the model, and the end. Raises
        `ModelUnavailable` if the stream was interrupted."""
        if _was_cut(stream):
            raise ModelUnavailable(model=self._ref, problem="the answer was truncated")
        if stream.finish_reason == "error":
            raise ModelUnavailable(model=self._ref, problem="the provider interrupted the answer")
        response = stream.get()
        calls = [_call(part) for part in response.parts if isinstance(part, ToolCallPart)]
        bound = layout(response, "".join(self._text))
        reason = REASONS.get(stream.finish_reason, "other")
        if calls and reason == "stop":
            reason = "calls"
        return [
            *calls,
            *([BoundChunk(bound)] if bound is not None else []),
            EndChunk(reason, _usage(response)),
        ]


def _was_cut(stream: StreamedResponse) -> bool:
    """Return whether the stream ended before the vendor sent the reason why the model stopped. For
    OpenAI's chat protocol, pydantic-ai generates a reason, so only the vendor's own value
    counts."""
    told = (stream.provider_details or {}).get("finish_reason") is not None
    if stream.state == "incomplete":
        return True
    if _speaks_chat(stream):
        return not told and stream.finish_reason != "content_filter"
    return not told and stream.finish_reason is None


def _speaks_chat(stream: StreamedResponse) -> bool:
    return any(base.__name__ == "OpenAIStreamedResponse" for base in type(stream).__mro__)


def _call(part: ToolCallPart) -> CallChunk:
    id = None if part.tool_call_id.startswith(MADE_UP) else part.tool_call_id
    return CallChunk(name=part.tool_name, arguments=_arguments(part.args), id=id)


def _arguments(args: str | dict[str, Any] | None) -> Any:
    if not isinstance(args, str):
        return args or {}
    try:
        return msgspec.json.decode(args) if args.strip() else {}
    except msgspec.DecodeError:
        return args


def _usage(response: ModelResponse) -> dict[str, int]:
    usage = response.usage
    counted: dict[str, int] = {
        name: value for name, value in usage.details.items() if isinstance(value, int) and value
    }
    for field in fields(RequestUsage):
        value = getattr(usage, field.name)
        if type(value) is int and (value or field.name in ("input_tokens", "output_tokens")):
            counted[field.name] = value
    return counted
