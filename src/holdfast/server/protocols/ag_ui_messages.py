"""Messages of AG-UI: what a client sent becomes content and decisions, and the transcript becomes
messages. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

from ...errors import InvalidValue
from ...log.transcript import Message
from ...values.pending import Ask
from ...wire import MediaPart
from ...wire.ag_ui import ResumeEntry, RunMessage
from .ag_ui_stream import result_of, text_of
from .conversation import MESSAGE, Wish

MEDIA = ("image", "audio", "video", "document", "binary")


def content(message: RunMessage) -> list[str | MediaPart]:
    """Return the texts and attachments of a user's message."""
    given = message.content
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list):
        raise _wrong("content", "is neither a string nor a list", "send a string or a list")
    return [_part(part, number) for number, part in enumerate(given)]


def _part(part: Any, number: int) -> str | MediaPart:
    part = part if isinstance(part, dict) else {}
    where = f"content[{number}]"
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    if part.get("type") not in MEDIA:
        raise _wrong(where, "is not a text or an attachment", "send parts of the protocol")
    source = part["source"] if isinstance(part.get("source"), dict) else part
    data, kind = source.get("value", source.get("data")), source.get("mimeType")
    inline = part.get("type") == "binary" or source.get("type") == "data"
    if not (inline and isinstance(data, str) and isinstance(kind, str) and kind):
        raise _wrong(where, "has no data", "send attachments as base64 with their mimeType")
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise _wrong(where, "is not base64", "encode the data as base64") from None
    name = part.get("filename")
    named = name[:400] if isinstance(name, str) and name else None
    return MediaPart(data=decoded, media_type=kind[:400], name=named)


def _wrong(where: str, problem: str, remedy: str) -> InvalidValue:
    return InvalidValue(field=f"messages[-1].{where}", problem=problem, remedy=remedy)


def resumed(entries: Iterable[ResumeEntry], asks: Iterable[Ask]) -> list[Wish]:
    """Return the decisions in the answers to interrupts."""
    known = {ask.id: ask for ask in asks}
    return [_wish(entry, known.get(entry.interrupt_id), n) for n, entry in enumerate(entries)]


def _wish(entry: ResumeEntry, ask: Ask | None, number: int) -> Wish:
    item, payload = entry.interrupt_id, entry.payload
    given = payload if isinstance(payload, dict) else {"approved": payload}
    reason = given.get("reason")
    reason = reason[:400] if isinstance(reason, str) and reason else None
    if entry.status == "cancelled":
        return Wish(item, "denied", reason)
    if ask is not None and ask.what not in ("approval", "access"):
        return Wish(item, "answered", answer=payload)
    approved = given.get("approved")
    if approved is None and "approved" in given:
        approved = True  # resolved without a payload
    if not isinstance(approved, bool):
        raise InvalidValue(
            field=f"resume[{number}].payload",
            problem="does not say whether the call is approved",
            remedy='send {"approved": true} or {"approved": false}, with a reason if you like',
        )
    return Wish(item, "approved" if approved else "denied", reason)


def answered(messages: Iterable[RunMessage], asks: Iterable[Ask]) -> list[Wish]:
    """Return the decisions in results of tools: answers to calls that wait for one."""
    waiting = {ask.call: ask for ask in asks if ask.call is not None}
    found = []
    for message in messages:
        ask = waiting.get(message.tool_call_id or "")
        if ask is not None and ask.what not in ("approval", "access"):
            if message.error is not None:
                found.append(Wish(ask.id, "denied", message.error[:400] or None))
            else:
                found.append(Wish(ask.id, "answered", answer=message.content))
    return found


def results(messages: list[RunMessage]) -> list[RunMessage]:
    """Return the results of tools at the end of the messages."""
    found: list[RunMessage] = []
    for message in reversed(messages):
        if message.role != "tool":
            break
        found.append(message)
    return found[::-1]


def snapshot(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return a transcript as messages of the protocol, without answers that were begun again."""
    found: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "user":
            id = message.metadata.get(MESSAGE)
            name = id if isinstance(id, str) else message.id
            found.append({"id": name, "role": "user", "content": message.text})
            continue
        if message.retracted:
            continue
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": text_of(call.arguments)},
            }
            for call in message.calls
        ]
        shown: dict[str, Any] = {"id": message.id, "role": "assistant", "content": message.text}
        found.append({**shown, "toolCalls": calls} if calls else shown)
        for call in message.calls:
            if call.outcome is not None:
                result = result_of(call.id, call.outcome)
                found.append({"id": result.pop("messageId"), **result})
    return found
