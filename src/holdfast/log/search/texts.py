"""The searched texts of each kind of event. Pure.

Programs declare the texts of their own event kinds with `declare_text`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from ...errors import InvalidValue
from .. import events as ev
from ..catalog.encrypted_preview import BOXED
from ..codec import is_erased, typed
from ..events import ADAPTER_NAMESPACES, RESERVED_NAMESPACES, Call, Event

logger = logging.getLogger("holdfast.search")

MOST = 32_768  # characters of one event that are searched

# The searched fields by kind: texts of users, models and tools, titles and errors. Other kinds
# contain names, settings and bookkeeping, or text that another event contains too.
SEARCHED = {
    "session.created": ("title",),
    "thread.created": ("title",),
    "thread.forked": ("title",),
    "thread.renamed": ("title",),
    "message.received": ("text",),
    "message.completed": ("text", "calls"),
    "message.interrupted": ("text",),
    "tool.finished": ("result", "content", "error"),
    "pending.opened": ("title",),
    "context.added": ("content",),
    "compaction.made": ("summary",),
    "run.finished": ("error",),
}
ROLES = {
    "message.received": "user",
    "message.completed": "assistant",
    "message.interrupted": "assistant",
    "tool.finished": "tool",
}
# The fields with text in events of adapters; the others are ids, types and settings.
_ADAPTER_FIELDS = frozenset(
    {"text", "content", "arguments", "input", "output", "result", "summary", "title", "message"}
)
# Events of adapters whose text other events also hold, and fields for which that is true: what a
# graph was called with becomes messages.
_REPEATING = frozenset({"langgraph.writes", "openai.run_state"})
_REPEATING_FIELDS = frozenset({"__start__"})

TextFunction: TypeAlias = Callable[[Any], "str | Iterable[str] | None"]
_declared: dict[str, TextFunction] = {}
_failing: set[str] = set()  # kinds whose function failed, which is reported once


class EventText(Struct, frozen=True):
    """The searched text of one event: its passages, its role, and the tools that it calls. For a
    tool result, `call` is the id of the call."""

    passages: list[str]
    role: str | None = None
    tools: tuple[str, ...] = ()
    call: str | None = None


def declare_text(kind: str, text: TextFunction) -> None:
    """Declare the searched text of a program's own event kind. `text` is a function that takes the
    data of an event and returns its text or texts. Call this in every process that opens the store,
    before the first search; after a change, run `holdfast reindex`. Events for which it raises an
    error are not searched, and the first such error is logged.

    See [search](../search.md).
    """
    if kind.partition(".")[0] in RESERVED_NAMESPACES:
        raise InvalidValue(
            field="kind",
            problem=f"{kind!r} is in a reserved namespace",
            remedy="declare the text of kinds of your own",
        )
    _declared[kind] = text
    _failing.discard(kind)


def event_text(event: Event) -> EventText | None:
    """Return the searched text of an event, or None if the event has no text."""
    if is_erased(event) or event.v >= BOXED:
        return None
    fields = SEARCHED.get(event.kind)
    if fields is None:
        passages = _limited(_declared_text(event))
        return EventText(passages) if passages else None
    payload = typed(event)
    if payload is None:
        return None
    calls = getattr(payload, "calls", ())
    found = _limited(
        text
        for name in fields
        for text in (_calls(calls) if name == "calls" else plain(getattr(payload, name)))
    )
    tools = tuple(dict.fromkeys(call.name for call in calls))
    call = payload.call if isinstance(payload, ev.ToolFinished) else None
    role = ROLES.get(event.kind)
    return EventText(found, role, tools, call) if found or tools or call else None


def named_calls(event: Event) -> Iterator[tuple[str, str]]:
    """Yield the tool calls in an event, as (id of the call, name of the tool)."""
    payload = typed(event) if event.kind in _NAMING else None
    if isinstance(payload, ev.MessageCompleted):
        yield from ((call.id, call.name) for call in payload.calls)
    elif isinstance(payload, ev.ToolStarted):
        yield payload.call, payload.name
    elif isinstance(payload, ev.ToolNested):
        yield payload.call.id, payload.call.name


_NAMING = frozenset({"message.completed", "tool.started", "tool.nested"})


def plain(value: Any) -> Iterator[str]:
    """Yield the text of a JSON value: its strings, numbers and field names."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            if isinstance(item, (dict, list)):
                yield str(name)
                yield from plain(item)
            else:
                yield f"{name}: {' '.join(plain(item))}"
    elif isinstance(value, list):
        for item in value:
            yield from plain(item)
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif value is not None:
        yield str(value)


def _calls(calls: Iterable[Call]) -> Iterator[str]:
    for call in calls:
        yield call.name
        yield from plain(call.arguments)


def _declared_text(event: Event) -> Iterator[str]:
    declared = _declared.get(event.kind)
    adapter = event.kind.partition(".")[0] in ADAPTER_NAMESPACES and event.kind not in _REPEATING
    if declared is None and not adapter:
        return
    if declared is None:
        try:
            yield from _fields(event.json())
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return
    else:
        yield from _called(declared, event)


def _called(declared: TextFunction, event: Event) -> list[str]:
    """Return the texts that a program's function returns for an event. A function that fails must
    not end the search of all other events."""
    try:
        found = declared(event.json())
        texts = [found] if isinstance(found, str) else list(found or ())
        if all(isinstance(text, str) for text in texts):
            return texts
        problem = "returned something other than text"
    except Exception as error:
        problem = f"raised {type(error).__name__}: {error}"
    if event.kind not in _failing:
        _failing.add(event.kind)
        logger.warning("the text of %s is not searched: its function %s", event.kind, problem)
    return []


def _fields(value: Any, *, inside: bool = False) -> list[str]:
    """Return the strings in the text fields of a JSON value. A string that contains a JSON object
    is parsed."""
    if isinstance(value, str):
        if value.startswith("{"):
            try:
                return _fields(msgspec.json.decode(value))
            except (msgspec.MsgspecError, RecursionError):
                pass
        return [value] if inside else []
    if isinstance(value, list):
        return [text for item in value for text in _fields(item, inside=inside)]
    if isinstance(value, dict):
        return [
            text
            for name, item in value.items()
            if name not in _REPEATING_FIELDS
            for text in _fields(item, inside=name in _ADAPTER_FIELDS)
        ]
    return []


def _limited(texts: Iterable[str]) -> list[str]:
    """Return the texts without empty ones, truncated to `MOST` characters in total."""
    found: list[str] = []
    left = MOST
    for text in texts:
        if left <= 0:
            break
        if text and not text.isspace():
            found.append(text[:left])
            left -= len(text)
    return found
