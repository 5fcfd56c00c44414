"""Typed answers: a run that wants one ends with a call of the tool `final_result`, whose one
argument is the answer. That works with every model that can call tools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from ...errors import InvalidValue, MissingExtra
from ...log import events as ev
from ...log.state import FINAL
from ...models.port import ToolSpec
from ..live.answers import mismatch
from ..tools import Tool, tool
from ..tools.values import ROOT, Issue
from .driver import Driving

VALUE = "value"
ABOUT = "Give the answer. Call this once, when the answer is complete."
NUDGE = f"Give your answer by calling {FINAL}."


def output_tool(type: Any) -> Tool:
    """The tool whose argument is an answer of this type."""

    def final(value: Any) -> Any:
        return value

    final.__annotations__ = {VALUE: type}
    try:
        return tool(final, name=FINAL, description=ABOUT)
    except InvalidValue as error:
        raise InvalidValue(
            field="output_type", problem=error.problem, remedy="use a type that JSON can carry"
        ) from error


def wish(type: Any) -> dict[str, Any]:
    """The type as a message carries it, for whoever drives the run."""
    made = output_tool(type)
    return {"name": getattr(type, "__name__", str(type)), "schema": made.schema}


async def wanted(driving: Driving) -> Tool | None:
    """The tool that gives the answer of the run that is going, if it is to be typed."""
    seq = driving.run.output
    if seq is None:
        kind = driving.config.agent.output_type
        return None if kind is None else output_tool(kind)
    outputs, mark = driving.runtime.outputs, (driving.live.log, seq)
    if (known := outputs.get(mark)) is not None:
        return known  # type: ignore[no-any-return]
    message = await driving.live.payload(seq, ev.MessageReceived)
    if message is None or message.output is None:
        return None
    schema = message.output.get("schema") or {}
    # In a thread: what checks a schema is imported when it is first used.
    made = await asyncio.to_thread(_by_schema, schema)
    outputs[mark] = made
    return made


def _by_schema(schema: dict[str, Any]) -> Tool:
    """The tool that takes what this schema says. Where the package `jsonschema` is missing, the
    answer is checked by its main words."""
    try:
        return Tool.from_schema(FINAL, ABOUT, schema, _same)
    except MissingExtra:
        return Tool(name=FINAL, description=ABOUT, form=Outline(schema), function=_same)


def _same(given: dict[str, Any]) -> dict[str, Any]:
    return given


@dataclass(frozen=True)
class Outline:
    """The form of one dict, checked by what `mismatch` knows of a schema."""

    schema: dict[str, Any]

    def read(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], list[Issue]]:
        wrong = mismatch(self.schema, arguments)
        return dict(arguments), [] if wrong is None else [Issue(ROOT, wrong)]

    def call(self, function: Callable[..., Any], arguments: dict[str, Any], context: Any) -> Any:
        return function(arguments)


async def output_spec(driving: Driving) -> ToolSpec | None:
    """The same as a model is told of it."""
    found = await wanted(driving)
    return None if found is None else found.spec


def answer(result: Any) -> Any:
    """The answer out of the arguments of the call that gave it."""
    return result.get(VALUE) if isinstance(result, dict) else result


def convert(value: Any, type: Any) -> Any:
    """The stored answer as the type that the caller asked for, or of the tool that gave it."""
    made = type if isinstance(type, Tool) else output_tool(type)
    return made.parse({VALUE: msgspec.to_builtins(value)})[VALUE]
