"""The transcript: a range of events converted to the messages that a user or a model reads. Pure.

Each tool call has its outcome attached; a call without an outcome in the range is open. Ranges
consist of whole turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from . import events as ev
from .codec import check_count, typed
from .conversation import conversation
from .events import Event, Payload, ids
from .state import State, fold

ROLES: dict[str, Literal["user", "assistant"]] = {
    "message.received": "user",
    "message.completed": "assistant",
    "message.interrupted": "assistant",
}

# Kinds that change the queue of messages, or take messages from it.
QUEUEING = ("queue.changed", "run.started", "model.called")


class Outcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a call ended. `unknown` means that the call may or may not have had an effect; `result`
    is then the raw data if this version cannot read the outcome. `erased` means that the outcome
    was erased. If the result was too large, `content` is a preview, and `stored` refers to the blob
    with the full text.

    See [state and transcript](../the-log.md#state-and-transcript).
    """

    outcome: Literal["ok", "failed", "denied", "cancelled", "unknown", "erased"]
    seq: int
    at: int
    result: Any = None
    error: str | None = None
    content: str | None = None
    code: str | None = None
    refs: list[Any] = []
    stored: list[Any] = []


class ToolCall(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call of a message. A call without an outcome is open, whether or not it was
    started. `probed` is the last answer of the tool's probe, if it was asked.

    See [state and transcript](../the-log.md#state-and-transcript).
    """

    id: str
    name: str
    arguments: Any = None
    provider_id: str | None = None
    started: bool = False
    outcome: Outcome | None = None
    probed: Literal["happened", "not_happened", "unknown"] | None = None


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message. `erased` is the reason why its content was erased; `raw` is the data of a
    message that this version cannot read. `retracted` means that an interrupted answer was begun
    again, so that a later message replaces it.

    See [state and transcript](../the-log.md#state-and-transcript).
    """

    role: Literal["user", "assistant"]
    id: str
    seq: int
    at: int
    text: str = ""
    parts: list[Any] = []
    calls: list[ToolCall] = []
    model: str | None = None
    thought: str = ""
    metadata: dict[str, Any] = {}
    actor: str | None = None
    run: str | None = None
    interrupted: bool = False
    retracted: bool = False
    erased: str | None = None
    raw: Any = None


def transcript(events: Iterable[Event]) -> list[Message]:
    """Return the messages of a range of events, in order. Events of other kinds, known or not, add
    no messages.

    Rewound events are omitted if the range includes the rewind. A message that was edited in the
    queue has its final text, and a message that was removed from the queue is omitted. If a call
    has several outcomes, the first one counts. An outcome whose call is not in the range is
    omitted; this does not happen in a range of whole turns. Never raises for the content of an
    event.

    See [state and transcript](../the-log.md#state-and-transcript).
    """
    messages: list[Message] = []
    open: dict[str, tuple[list[ToolCall], int]] = {}  # the message and the position of each call
    queueing: list[Event] = []
    changed = False
    for event in conversation(events):
        if event.kind in QUEUEING:
            queueing.append(event)
            changed = changed or event.kind == "queue.changed"
        elif event.kind in ROLES:
            payload = typed(event)
            messages.append(message := _message(event, payload))
            for call in _calls(payload):
                # An id that is already open is the same call, recorded twice.
                if call.id not in open:
                    open[call.id] = message.calls, len(message.calls)
                    message.calls.append(call)
        elif event.kind == "tool.started":
            start = typed(event)
            # If the start was erased, it may belong to any open call.
            for id in [start.call] if isinstance(start, ev.ToolStarted) else open:
                if id in open:
                    _change(*open[id], started=True)
        elif event.kind == "tool.probed":
            answer = typed(event)
            if isinstance(answer, ev.ToolProbed) and answer.call in open:
                _change(*open[answer.call], probed=answer.outcome)
        elif event.kind == "tool.finished":
            id, outcome = _outcome(event)
            if id in open:
                _change(*open.pop(id), outcome=outcome)
        elif event.kind == "thread.forked":
            open.clear()  # nothing that was open in the parent continues here
    return _requeued(messages, queueing) if changed else messages


def _requeued(messages: list[Message], queueing: list[Event]) -> list[Message]:
    """Return the messages after all changes of the queue (edits and removals). Messages that a run
    has already handled do not change."""
    read, gone, texts = set[int](), set[int](), dict[int, str]()
    for event in queueing:
        payload = typed(event)
        if not isinstance(payload, ev.QueueChanged):
            read.update(getattr(payload, "inputs", ()))
            continue
        gone.update(seq for seq in payload.remove if seq not in read)
        texts.update({seq: text for seq, text in reworded(payload).items() if seq not in read})
    return [
        _with_words(message, texts.get(message.seq)) if message.role == "user" else message
        for message in messages
        if message.seq not in gone or message.role != "user"
    ]


def reworded(change: ev.QueueChanged) -> dict[int, str]:
    """Return the messages whose text a change of the queue replaces, and the new text of each.

    See [state and transcript](../the-log.md#state-and-transcript).
    """
    return {int(seq): text for seq, text in change.texts.items() if seq.isdecimal()}


def _with_words(message: Message, text: str | None) -> Message:
    if text is None or message.erased is not None or message.raw is not None:
        return message
    return msgspec.structs.replace(message, text=text)


def _message(event: Event, payload: Payload | None) -> Message:
    content: dict[str, Any] = {"interrupted": event.kind == "message.interrupted"}
    if (reason := _erased(event)) is not None:
        content["erased"] = reason
    elif payload is None:
        content["raw"] = _raw(event)
    else:
        for name in ("text", "parts", "model", "thought", "metadata"):
            if value := getattr(payload, name, None):
                content[name] = value
        if isinstance(payload, ev.MessageInterrupted):
            content["retracted"] = not payload.shown
        if event.kind == "message.received":
            content.pop("model", None)  # an option, not the author
    envelope: dict[str, Any] = {"id": event.id, "seq": event.seq, "at": event.at}
    envelope |= {"actor": event.actor, "run": event.run}
    return Message(role=ROLES[event.kind], **envelope, **content)


def _calls(payload: Payload | None) -> list[ToolCall]:
    if not isinstance(payload, ev.MessageCompleted):
        return []
    return [
        ToolCall(id=c.id, name=c.name, arguments=c.arguments, provider_id=c.provider_id)
        for c in payload.calls
    ]


def _outcome(event: Event) -> tuple[str, Outcome]:
    payload = typed(event)
    how: dict[str, Any]
    if isinstance(payload, ev.ToolFinished):
        names = ("outcome", "result", "error", "content", "code", "refs", "stored")
        how = {name: getattr(payload, name) for name in names}
        return payload.call, Outcome(seq=event.seq, at=event.at, **how)
    # The event's id still names the call, so that it stays closed.
    how = {"outcome": "unknown", "result": _raw(event)}
    if _erased(event) is not None:
        how = {"outcome": "erased"}
    return ids.done_call(event.id), Outcome(seq=event.seq, at=event.at, **how)


def _change(calls: list[ToolCall], place: int, **changes: Any) -> None:
    calls[place] = msgspec.structs.replace(calls[place], **changes)


class _Erased(Struct, forbid_unknown_fields=True):
    erased: str


def _erased(event: Event) -> str | None:
    try:
        return msgspec.json.decode(event.data, type=_Erased).erased
    except ValueError:
        return None


def _raw(event: Event) -> Any:
    try:
        return event.json()
    except ValueError:
        return bytes(event.data).decode(errors="replace")


# Windows


def turns(events: Iterable[Event]) -> list[list[Event]]:
    """Return the events of the conversation, split into turns. Events before the first turn belong
    to the first turn. Rewound events are omitted.

    A turn begins with a user's message that arrives when nothing is open (run, call or pending
    item) and every earlier message is answered. A message that arrives earlier belongs to the
    current turn. Calls and messages whose outcome or answer was rewound are ignored. So a split
    between turns never separates a call from its outcome, provided that the events begin at the
    start of the log or of an earlier turn.

    See [state and transcript](../the-log.md#state-and-transcript).
    """
    listed = conversation(events)
    closed = _closed(listed)
    found: list[list[Event]] = [[]]
    state, unfolded = State(), list[Event]()
    begun, waiting = False, set[int]()  # waiting: the numbers of messages without an answer
    for event in listed:
        if event.kind == "thread.rewound":
            calls = fold(unfolded, state).calls.items()
            kept = {id: call for id, call in calls if closed.get(id, 0) > event.seq}
            state, unfolded = State(calls=kept), []
            waiting = {seq for seq in waiting if closed.get(seq, 0) > event.seq}
        elif event.kind == "message.received":
            state, unfolded = fold(unfolded, state), []
            if begun and state.safe and not waiting:
                found.append([])
            begun = True
            waiting.add(event.seq)
        elif event.kind in ("run.started", "run.finished", *ROLES):
            waiting = _still_waiting(event, waiting)
        unfolded.append(event)
        found[-1].append(event)
    return found if found[0] else []


def _closed(events: list[Event]) -> dict[str | int, int]:
    """Return, for each call and message, the number of the last event that closes or handles it.
    Empty if the events contain no rewind."""
    closed: dict[str | int, int] = {}
    if any(event.kind == "thread.rewound" for event in events):
        for event in events:
            payload = typed(event)
            if isinstance(payload, ev.ToolFinished):
                closed[payload.call] = event.seq
            for seq in getattr(payload, "inputs", ()):
                closed[seq] = event.seq
    return closed


def _still_waiting(event: Event, waiting: set[int]) -> set[int]:
    payload = typed(event)
    if event.kind == "run.started":
        return waiting - set(getattr(payload, "inputs", None) or waiting)
    if event.kind == "run.finished":
        # If another run follows, it handles the messages that arrived during this run.
        return waiting if getattr(payload, "due", None) is not None else set()
    # A run handles its messages when it ends. In a log without runs, an answer without calls
    # handles all earlier messages.
    seen = payload is not None and _erased(event) is None
    return set() if event.run is None and seen and not _calls(payload) else waiting


def last_turns(events: Iterable[Event], number: int) -> list[Event]:
    """Return the events of the last `number` turns, or of all if there are fewer.

    See [state and transcript](../the-log.md#state-and-transcript).
    """
    check_count("number", number, least=1)
    return [event for turn in turns(events)[-number:] for event in turn]


def last_tokens(
    events: Iterable[Event], tokens: int, count: Callable[[Event], int] | None = None
) -> list[Event]:
    """Return the events of as many of the last turns as fit into `tokens`, and always of the last
    turn. `count` returns the tokens of an event; by default, four bytes of data are one token.

    See [state and transcript](../the-log.md#state-and-transcript).
    """
    check_count("tokens", tokens, least=0)
    kept: list[list[Event]] = []
    for turn in reversed(turns(events)):
        tokens -= sum(len(e.data) // 4 if count is None else count(e) for e in turn)
        if kept and tokens < 0:
            break
        kept.append(turn)
    return [event for turn in reversed(kept) for event in turn]
