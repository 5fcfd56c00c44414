"""Formats events as text. Events of unknown kinds are shown as JSON. Truncated text is marked.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from ..errors import LogDamaged
from ..log import events as ev
from ..log.codec import typed
from ..log.events import Event
from .output import json_text, plain
from .render import moment, size

CUT = 1_000  # characters of an event that are shown, unless --full is given
CUT_OF_ADAPTER = 200  # the same for an adapter's own events, such as checkpoints
INDENT = " " * 8

STYLES = {"message": "green", "tool": "yellow", "pending": "magenta", "run": "blue"}


def event_text(event: Event, *, full: bool = False) -> Text:
    """Format an event: number, time and kind, then its content."""
    own = event.kind.partition(".")[0] in ev.ADAPTER_NAMESPACES
    content = "\n".join(describe(event))
    lines = cut(content, full, CUT_OF_ADAPTER if own else CUT).split("\n")
    style = STYLES.get(event.kind.partition(".")[0], "cyan")
    text = Text.assemble(
        (f"{event.seq:>6}", "bold"),
        (f"  {moment(event.at)}  ", "dim"),
        (plain(event.kind), style),
    )
    if event.actor is not None:
        text.append(f"  {plain(event.actor)}", style="bold")
    first, *rest = lines
    text.append(f"  {_line(first)}" if first else "")
    for line in rest:
        text.append(f"\n{INDENT}{_line(line)}")
    return text


def damaged_text(error: LogDamaged) -> Text:
    """Format the error of an unreadable event."""
    return Text.assemble((f"{error.seq:>6}", "bold"), ("  unreadable  ", "red"), plain(str(error)))


def _line(text: str) -> str:
    return plain(text.removesuffix("\r").expandtabs(4))


def cut(text: str, full: bool, most: int = CUT) -> str:
    """Return the text, truncated unless `full` is set."""
    if full or len(text) <= most:
        return text
    return f"{text[:most]}… and {len(text) - most:,} more characters (--full shows them)"


PROBED = {
    "happened": "the probe says that it happened",
    "not_happened": "the probe says that it did not happen",
    "unknown": "the probe does not know whether it happened",
}


def describe(event: Event) -> Iterator[str]:
    """Yield the content of an event as text, in one or more pieces, which may contain
    line feeds.
    """
    data = event.json()
    match data:
        case {"erased": str(reason), **rest} if not rest:
            yield f"erased: {reason}"
            return
        case {"apart": {"size": int(count), "sha256": str()}, **rest} if not rest:
            yield f"{size(count)} of data (--full shows it)"
            return
    payload = typed(event)
    yield from _raw(data) if payload is None else _payload(payload, data)


def _raw(data: Any) -> Iterator[str]:
    yield json_text(data) if data != {} else ""


def _payload(payload: ev.Payload, data: Any) -> Iterator[str]:
    match payload:
        case ev.MessageReceived() | ev.MessageInterrupted() | ev.MessageCompleted():
            yield from _message(payload)
        case ev.ToolStarted():
            yield f"{payload.name} (call {payload.call})"
        case ev.ToolFinished():
            said = payload.error if payload.error is not None else json_text(payload.result)
            yield f"{payload.outcome}: {said} (call {payload.call})"
        case ev.ToolProbed():
            why = f" ({payload.reason})" if payload.reason else ""
            yield f"{PROBED[payload.outcome]}{why} (call {payload.call})"
        case ev.PendingOpened():
            yield f"{payload.what} {payload.id} {payload.title or ''}".rstrip()
            if payload.detail is not None:
                yield json_text(payload.detail)
        case ev.PendingVoted():
            yield f"approval of {payload.id} {payload.reason or ''}".rstrip()
        case ev.PendingSettled():
            yield f"{payload.outcome} {payload.id} {payload.reason or ''}".rstrip()
            if payload.answer is not None:
                yield json_text(payload.answer)
        case ev.ThreadRewound():
            yield f"to event {payload.to}"
        case ev.RunFinished():
            yield f"{payload.status} {payload.error or ''}".rstrip()
        case _:
            yield from _raw(data)


def _message(
    payload: ev.MessageReceived | ev.MessageInterrupted | ev.MessageCompleted,
) -> Iterator[str]:
    if isinstance(payload, ev.MessageInterrupted):
        yield f"{payload.text} [interrupted: {payload.reason or 'no reason given'}]"
        return
    if payload.text:
        yield payload.text
    yield from (json_text(part) for part in payload.parts)
    if isinstance(payload, ev.MessageCompleted):
        for call in payload.calls:
            yield f"→ {call.name}({json_text(call.arguments)}) (call {call.id})"
