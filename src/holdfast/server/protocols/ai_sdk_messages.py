"""Messages of the Vercel AI SDK: what a client sent becomes content and decisions, and the
transcript becomes UI messages. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...errors import InvalidValue
from ...log.transcript import Message, ToolCall
from ...values.pending import Ask
from ...wire import MediaPart
from ...wire.ai_sdk import ChatMessage, UiMessage
from .ai_sdk_stream import Version, asked
from .conversation import MESSAGE, Wish

DATA = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w-]+=[^;,]*)*;base64,")
ANSWERED = ("output-available", "output-error")


def content(message: ChatMessage) -> list[str | MediaPart]:
    """Return the texts and attachments of a user's message. Other parts are ignored."""
    found: list[str | MediaPart] = []
    for number, part in enumerate(message.parts):
        if part.get("type") == "text":
            found.append(_text(part, "text", number))
        elif part.get("type") == "file":
            found.append(_file(part, number))
    return found


def _text(part: Mapping[str, Any], name: str, number: int) -> str:
    value = part.get(name)
    if not isinstance(value, str):
        raise _wrong(number, name, "is not a string", "pass a string")
    return value


def _file(part: Mapping[str, Any], number: int) -> MediaPart:
    url = _text(part, "url", number)
    known = DATA.match(url)
    if known is None:
        raise _wrong(
            number, "url", "is not a data URL in base64", "send attachments as data:…;base64,…"
        )
    try:
        data = base64.b64decode(url[known.end() :], validate=True)
    except (binascii.Error, ValueError):
        raise _wrong(number, "url", "is not base64", "encode the data as base64") from None
    name = part.get("filename")
    named = name[:400] if isinstance(name, str) and name else None
    return MediaPart(data=data, media_type=known[1], name=named)


def _wrong(number: int, name: str, problem: str, remedy: str) -> InvalidValue:
    return InvalidValue(
        field=f"messages[-1].parts[{number}].{name}", problem=problem, remedy=remedy
    )


def calls(message: ChatMessage) -> list[str]:
    """Return the ids of the tool calls in a message."""
    return [part["toolCallId"] for _, part in _tools(message)]


def _tools(message: ChatMessage) -> Iterable[tuple[int, dict[str, Any]]]:
    for number, part in enumerate(message.parts):
        sort = part.get("type")
        if isinstance(sort, str) and (sort.startswith("tool-") or sort == "dynamic-tool"):
            _text(part, "toolCallId", number)
            yield number, part


def wishes(message: ChatMessage, pending: Iterable[Ask]) -> list[Wish]:
    """Return the decisions that a client made in an assistant's message: responses to approvals,
    and outputs of calls that wait for one."""
    waiting = {ask.call: ask for ask in pending if ask.call is not None}
    found = []
    for number, part in _tools(message):
        ask = waiting.get(part["toolCallId"])
        if part.get("state") == "approval-responded":
            found.append(_response(part.get("approval"), number, "approval"))
        elif ask is not None and part.get("state") in ANSWERED:
            found.append(_output(ask, part, number))
    return found


def _response(given: Any, number: int, field: str, item: str | None = None) -> Wish:
    given = given if isinstance(given, dict) else {}
    id, approved, reason = item or given.get("id"), given.get("approved"), given.get("reason")
    if not isinstance(id, str) or not 0 < len(id) <= 512:
        raise _wrong(number, f"{field}.id", "is not the id of an approval", "pass its id unchanged")
    if not isinstance(approved, bool):
        raise _wrong(number, f"{field}.approved", "is not true or false", "pass true or false")
    if reason is not None and not isinstance(reason, str):
        raise _wrong(number, f"{field}.reason", "is not a string", "pass a string, or omit it")
    return Wish(id, "approved" if approved else "denied", reason and reason[:400])


def _output(ask: Ask, part: dict[str, Any], number: int) -> Wish:
    if part["state"] == "output-error":
        reason = part.get("errorText")
        return Wish(ask.id, "denied", reason[:400] if isinstance(reason, str) and reason else None)
    if ask.what == "approval":  # of a client that knows no approvals
        return _response(part.get("output"), number, "output", ask.id)
    return Wish(ask.id, "answered", answer=part.get("output"))


# The history


def ui_messages(
    messages: Iterable[Message],
    pending: Iterable[Ask],
    version: Version,
    blob: Callable[[str, str], str],
    about: dict[str, Any],
) -> list[UiMessage]:
    """Return a transcript as UI messages: the messages of one run become one message, without
    answers that were begun again. `blob` is the URL of an attachment; `about` is metadata of
    assistants' messages."""
    waiting = {ask.call: ask for ask in pending if ask.call is not None}
    found: list[UiMessage] = []
    for message in messages:
        if message.role == "user":
            id = message.metadata.get(MESSAGE)
            parts = [{"type": "text", "text": message.text}] if message.text else []
            parts += [_shown(part, blob) for part in message.parts if isinstance(part, dict)]
            seen = {"seq": message.seq, "actor": message.actor}
            name = id if isinstance(id, str) else message.id
            found.append(UiMessage(id=name, role="user", parts=parts, metadata=seen))
            continue
        if message.retracted:
            continue
        name = message.run or message.id
        parts = [*_said(message, waiting, version)]
        last = next((one for one in reversed(found) if one.id == name), None)
        if last is not None and last.role == "assistant":
            last.parts.extend(parts)
        else:
            seen = {**about, "run": message.run, "model": message.model}
            found.append(UiMessage(id=name, role="assistant", parts=parts, metadata=seen))
    return found


def _shown(part: dict[str, Any], blob: Callable[[str, str], str]) -> dict[str, Any]:
    kind = str(part.get("media_type") or "application/octet-stream")
    shown = {"type": "file", "mediaType": kind, "url": blob(str(part.get("sha256", "")), kind)}
    return {**shown, "filename": part["name"]} if part.get("name") else shown


def _said(
    message: Message, waiting: Mapping[str, Ask], version: Version
) -> Iterable[dict[str, Any]]:
    yield {"type": "step-start"}
    if message.thought:
        yield {"type": "reasoning", "text": message.thought, "state": "done"}
    if message.text:
        yield {"type": "text", "text": message.text, "state": "done"}
    for call in message.calls:
        ask = waiting.get(call.id)
        yield _tool(call, ask, version)
        if ask is not None:
            yield {"type": "data-pending", "id": ask.id, "data": asked(ask)}


def _tool(call: ToolCall, ask: Ask | None, version: Version) -> dict[str, Any]:
    part = {"type": f"tool-{call.name}", "toolCallId": call.id, "input": call.arguments}
    outcome = call.outcome
    if outcome is None:
        if ask is not None and ask.what == "approval" and version != "v5":
            return {**part, "state": "approval-requested", "approval": {"id": ask.id}}
        return {**part, "state": "input-available"}
    if outcome.outcome == "ok":
        output = outcome.content if outcome.result is None else outcome.result
        return {**part, "state": "output-available", "output": output}
    text = outcome.error or outcome.content or outcome.code or f"the call is {outcome.outcome}"
    return {**part, "state": "output-error", "errorText": text}
