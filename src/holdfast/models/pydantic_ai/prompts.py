"""Converts a `ModelCall` into pydantic-ai's messages. Pure and deterministic.

Data that only the model can read is stored as one layout per message: the list of all parts of the
message with the data bound to them, but without text and arguments, which the message itself
contains. With the layout, the original parts can be restored exactly, and nothing is stored twice.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from typing import Any, Literal

import msgspec
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from ..port import Asked, FromModel, FromTools, FromUser, ModelCall, Text, ToolSpec

FORM = "pydantic-ai/1"
OF_RESPONSE = (
    "model_name",
    "provider_name",
    "provider_url",
    "canonical_system",
    "provider_response_id",
    "provider_details",
    "finish_reason",
)
OF_CALL = ("tool_name", "args", "tool_call_id")
PLAIN = {"part_kind", "content", "provider_name", *OF_CALL}


def messages(call: ModelCall, id_length: int | None = None) -> list[ModelMessage]:
    """Return the messages of a call for pydantic-ai. `id_length` is the required length of call
    ids, if the vendor has one."""
    made: list[ModelMessage] = []
    for message in call.messages:
        if isinstance(message, FromModel):
            response = _response(message, id_length)
            if response.parts:
                made.append(response)
            continue
        asked = _results(message, id_length) if isinstance(message, FromTools) else [_user(message)]
        if made and isinstance(made[-1], ModelRequest):
            made[-1] = ModelRequest(parts=[*made[-1].parts, *asked])
        else:
            made.append(ModelRequest(parts=asked))
    if call.system and made and isinstance(made[-1], ModelRequest):
        made[-1].instructions = call.system
    return made


def parameters(call: ModelCall) -> ModelRequestParameters:
    """Return the tools of a call for pydantic-ai. With an `output` tool, the model can answer only
    by calling it."""
    tools = [_tool(tool) for tool in call.tools]
    if call.output is None:
        return ModelRequestParameters(function_tools=tools)
    return ModelRequestParameters(
        function_tools=tools,
        output_tools=[_tool(call.output, "output")],
        output_mode="tool",
        allow_text_output=False,
    )


def _tool(tool: ToolSpec, kind: Literal["function", "output"] = "function") -> ToolDefinition:
    return ToolDefinition(
        kind=kind,
        name=tool.name,
        description=tool.description or None,
        parameters_json_schema=tool.schema,
    )


def _user(message: FromUser) -> UserPromptPart:
    content: list[UserContent] = [
        part.text
        if isinstance(part, Text)
        else BinaryContent(data=part.data, media_type=part.media_type)
        for part in message.content
    ]
    if len(content) == 1 and isinstance(content[0], str):
        return UserPromptPart(content=content[0])
    return UserPromptPart(content=content)


def _results(message: FromTools, id_length: int | None) -> list[ModelRequestPart]:
    return [
        ToolReturnPart(
            tool_name=result.name,
            content=result.content,
            tool_call_id=_fit(result.id, id_length),
            outcome="failed" if result.failed else "success",
        )
        for result in message.results
    ]


def _response(message: FromModel, id_length: int | None) -> ModelResponse:
    calls = [_call(call, id_length) for call in message.calls]
    for bound in message.bound:
        if isinstance(bound, dict) and bound.get("form") == FORM:
            with suppress(
                LookupError, TypeError, ValueError
            ):  # a format that this version cannot read
                return _laid_out(bound, message.text, calls)
    parts: list[ModelResponsePart] = [TextPart(content=message.text)] if message.text else []
    return ModelResponse(parts=[*parts, *calls])


def _call(call: Asked, id_length: int | None) -> ToolCallPart:
    arguments = call.arguments
    if not isinstance(arguments, (dict, str)):
        arguments = {} if arguments is None else msgspec.json.encode(arguments).decode()
    return ToolCallPart(tool_name=call.name, args=arguments, tool_call_id=_fit(call.id, id_length))


def _fit(id: str, length: int | None) -> str:
    if length is None or re.fullmatch(rf"[0-9A-Za-z]{{{length}}}", id):
        return id
    return hashlib.sha256(id.encode()).hexdigest()[:length]


# The layout of a message


def layout(response: ModelResponse, text: str) -> dict[str, Any] | None:
    """Return the layout of a response as JSON: the data that is needed, in addition to `text` and
    the calls, to restore it. None if no such data is needed, or if its text is not `text`."""
    whole = msgspec.json.decode(ModelMessagesTypeAdapter.dump_json([response]))[0]
    parts = [part for part in whole["parts"] if _kept(part)]
    texts = [part["content"] for part in parts if part["part_kind"] == "text"]
    if "".join(texts) != text or _is_plain(parts):
        return None
    facts = {name: whole[name] for name in OF_RESPONSE if whole.get(name) is not None}
    if "@" in facts.get("provider_url", "") or "?" in facts.get("provider_url", ""):
        del facts["provider_url"]  # it may contain a secret
    return {"form": FORM, "response": facts, "parts": [_without_content(part) for part in parts]}


def _extras(part: dict[str, Any]) -> set[str]:
    return {name for name, value in part.items() if value is not None} - PLAIN


def _kept(part: dict[str, Any]) -> bool:
    """Return whether a part of a response must be sent back to the model. Reasoning without bound
    data and empty text are not sent back."""
    if part["part_kind"] == "thinking":
        return bool(_extras(part))
    return part["part_kind"] != "text" or bool(part["content"] or _extras(part))


def _is_plain(parts: list[dict[str, Any]]) -> bool:
    kinds = [part["part_kind"] for part in parts]
    simple = kinds[: kinds.count("text")] in ([], ["text"])
    known = all(kind in ("text", "tool-call") for kind in kinds)
    return known and simple and not any(_extras(part) for part in parts)


def _without_content(part: dict[str, Any]) -> dict[str, Any]:
    part = {name: value for name, value in part.items() if value is not None}
    if part["part_kind"] == "text":
        return {**part, "content": len(part["content"])}
    if part["part_kind"] == "tool-call":
        return {name: value for name, value in part.items() if name not in OF_CALL}
    return part


def _laid_out(bound: dict[str, Any], text: str, calls: list[ToolCallPart]) -> ModelResponse:
    """Restore the original message from its layout. Raises `ValueError` if its text or calls have
    changed since."""
    parts: list[dict[str, Any]] = []
    place, left = 0, iter(calls)
    for part in bound["parts"]:
        own: dict[str, Any] = {}
        if part["part_kind"] == "text":
            end = place + part["content"]
            own, place = {"content": text[place:end]}, end
        elif part["part_kind"] == "tool-call":
            call = next(left, None)
            if call is None:
                raise ValueError("the message has fewer calls than its recorded layout")
            own = {name: getattr(call, name) for name in OF_CALL}
        parts.append({**part, **own})
    if place != len(text) or next(left, None) is not None:
        raise ValueError("the message has other text, or more calls, than its recorded layout")
    whole = {**bound["response"], "kind": "response", "parts": parts}
    [response] = ModelMessagesTypeAdapter.validate_json(msgspec.json.encode([whole]))
    assert isinstance(response, ModelResponse)
    return response
