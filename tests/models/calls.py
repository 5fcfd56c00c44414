"""Calls as tests make them, and answers as tests read them."""

from __future__ import annotations

from typing import Any

from holdfast.models import Model, ModelCall
from holdfast.models.port import (
    Answered,
    Asked,
    BoundChunk,
    CallChunk,
    Chunk,
    EndChunk,
    FromModel,
    FromTools,
    FromUser,
    PromptMessage,
    Text,
    TextChunk,
    ThoughtChunk,
    ToolSpec,
)

SCHEMA = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
REFUND = ToolSpec("refund", "Give the money back.", SCHEMA)


def user(*texts: str) -> FromUser:
    return FromUser(tuple(map(Text, texts)))


def said(text: str = "", *calls: tuple[str, str, Any], bound: tuple[Any, ...] = ()) -> FromModel:
    return FromModel(text, tuple(Asked(*call) for call in calls), bound)


def results(*answers: tuple[str, str, str], failed: bool = False) -> FromTools:
    return FromTools(tuple(Answered(*answer, failed=failed) for answer in answers))


def call(*messages: PromptMessage, **rest: Any) -> ModelCall:
    return ModelCall(model="m", messages=messages or (user("hi"),), **rest)


async def listen(model: Model, asked: ModelCall) -> list[Chunk]:
    return [chunk async for chunk in model.stream(asked)]


def text(chunks: list[Chunk]) -> str:
    return "".join(c.text for c in chunks if isinstance(c, TextChunk))


def thought(chunks: list[Chunk]) -> str:
    return "".join(c.text for c in chunks if isinstance(c, ThoughtChunk))


def calls(chunks: list[Chunk]) -> list[CallChunk]:
    return [c for c in chunks if isinstance(c, CallChunk)]


def bound(chunks: list[Chunk]) -> tuple[Any, ...]:
    return tuple(c.data for c in chunks if isinstance(c, BoundChunk))


def end(chunks: list[Chunk]) -> EndChunk:
    ends = [c for c in chunks if isinstance(c, EndChunk)]
    assert ends == chunks[-1:]
    return ends[0]


def again(chunks: list[Chunk]) -> FromModel:
    """The message that these chunks made, as the next prompt holds it."""
    asked = tuple(
        Asked(c.id or f"own-{n}", c.name, c.arguments) for n, c in enumerate(calls(chunks))
    )
    return FromModel(text(chunks), asked, bound(chunks))
