"""Typed answers. A run that must return a typed answer ends with a call of the tool `final_result`,
whose only argument is the answer. This works with every model that supports tool calls."""

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
    """Create the tool whose argument is an answer of this type."""

    def final(value: Any) -> Any:
        return value

    final.__annotations__ = {VALUE: type}
    try:
        return tool(final, name=FINAL, description=ABOUT)
    except InvalidValue as error:
        raise InvalidValue(
            field="output_type", problem=error.problem, remedy="use a type that JSON can represent"
        ) from error


def output_request(type: Any) -> dict[str, Any]:
    """Return the name and the JSON Schema of an output type, as stored in a message for the driver
    of its run."""
    made = output_tool(type)
    return {"name": getattr(type, "__name__", str(type)), "schema": made.schema}


async def answer_tool(driving: Driving) -> Tool | None:
    """Return the tool with which the model gives the typed answer of the active run, or None if the
    answer is plain text."""
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
    # In a thread: the schema validator is imported on first use.
    made = await asyncio.to_thread(_by_schema, schema)
    outputs[mark] = made
    return made


def _by_schema(schema: dict[str, Any]) -> Tool:
    """Create the tool for this schema. Without the package `jsonschema`, only the main keywords of
    the schema are checked."""
    try:
        return Tool.from_schema(FINAL, ABOUT, schema, _same)
    except MissingExtra:
        return Tool(name=FINAL, description=ABOUT, form=Outline(schema), function=_same)


def _same(given: dict[str, Any]) -> dict[str, Any]:
    return given


@dataclass(frozen=True)
class Outline:
    """The arguments of the answer tool if `jsonschema` is not installed: validated with `mismatch`,
    which supports only the main keywords of JSON Schema."""

    schema: dict[str, Any]

    def read(self, arguments: dict[str, Any]) -> tuple[dict[str, Any], list[Issue]]:
        wrong = mismatch(self.schema, arguments)
        return dict(arguments), [] if wrong is None else [Issue(ROOT, wrong)]

    def call(self, function: Callable[..., Any], arguments: dict[str, Any], context: Any) -> Any:
        return function(arguments)


async def output_spec(driving: Driving) -> ToolSpec | None:
    """Return the description of the answer tool for the model, or None if the answer is plain
    text."""
    found = await answer_tool(driving)
    return None if found is None else found.spec


def answer(result: Any) -> Any:
    """Return the answer that is contained in the arguments of a call of `final_result`."""
    return result.get(VALUE) if isinstance(result, dict) else result


def convert(value: Any, type: Any) -> Any:
    """Convert a stored answer to `type`, which is a type or an answer tool."""
    made = type if isinstance(type, Tool) else output_tool(type)
    return made.parse({VALUE: msgspec.to_builtins(value)})[VALUE]
