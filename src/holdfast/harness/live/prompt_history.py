"""The conversation as the model reads it: converts events to prompt messages. Pure.

A message appears where a run took it from the queue, not where it arrived. Each call is followed by
exactly one result. Content that only another model can read is omitted. Finished turns are rendered
once. The same events always yield the same messages, byte for byte.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ...log import events as ev
from ...log.codec import typed
from ...log.conversation import rewound_to
from ...log.events import Event, ids
from ...log.state import State
from ...log.transcript import Message, Outcome, ToolCall, reworded, transcript
from ...models.port import Answered, Asked, FromModel, FromTools, FromUser, PromptMessage, Text
from ...values.media import Media
from ..tools.values import UNKNOWN

EARLIER = "[Earlier messages were left out.]"
SUMMARY = "[Summary of the conversation so far]\n"
NOTES = {
    "open": "There is no result yet.",
    "denied": "This call was denied.",
    "cancelled": "This call was cancelled.",
    "unknown": UNKNOWN,
    "erased": "The result of this call was erased.",
    "failed": "The tool failed.",
}
_TAKING = ("run.started", "model.called")
_OPENING = ("message.completed", "tool.nested")
_KEPT = {
    *("message.received", "message.completed", "message.interrupted", "queue.changed"),
    *("run.started", "run.finished", "model.called", "thread.forked"),
    *("tool.nested", "tool.started", "tool.finished", "tool.probed"),
}


class HistoryTurn(Struct, frozen=True):
    """A finished turn of the conversation: the number of its last event, its approximate size in
    tokens, and its messages. `edits` are the events that changed these messages while they were
    queued."""

    end: int
    tokens: int
    messages: tuple[Message, ...]
    edits: tuple[int, ...] = ()


class History:
    """The conversation since the last compaction, as prompt messages. Call `add` with each event,
    in order."""

    def __init__(
        self, upto: int = 0, summary: str | None = None, carried: Iterable[Event] = ()
    ) -> None:
        self.upto = upto
        self.summary = summary
        self.turns: list[HistoryTurn] = []
        self._open = list(carried)
        self._calls: set[str] = set()
        self._taken: set[int] = set()
        self._read: set[int] = set()  # messages whose run was rewound away
        self._lost: set[str] = set()  # calls whose outcome was rewound away
        self._rendered: tuple[str, int, list[PromptMessage]] = ("", 0, [])

    def add(self, event: Event) -> None:
        """Add the next event. `compaction.made` removes the earlier turns."""
        looked = (*_TAKING, "compaction.made", "queue.changed")
        payload = typed(event) if event.kind in looked else None
        if isinstance(payload, ev.CompactionMade):
            self._cut(payload)
            return
        if event.kind == "session.adopted" and self._open:
            self._rewind((), ())  # no run will answer the open messages
            self._close(event)
        if event.kind not in _KEPT:
            return
        self._open.append(event)
        if isinstance(payload, (ev.RunStarted, ev.ModelCalled)):
            self._taken.update(payload.inputs)
        elif isinstance(payload, ev.QueueChanged):
            gone = set(payload.remove) - self._taken - self._read
            self._open = [e for e in self._open if e.seq not in gone]
        elif event.kind in _OPENING:
            self._calls.update(_calls(event))
        elif event.kind == "tool.finished":
            self._calls.discard(_ended(event))
        if _ends_turn(event) and not self._calls:
            self._close(event)

    def extend(self, events: Sequence[Event], state: State) -> None:
        """Add the events of a rewound conversation in order, up to the head of `state`. The events
        include the rewinds themselves."""
        queued = {item.seq for item in state.queue}
        open = {*state.calls}
        for event in events:
            queued.update(getattr(typed(event), "inputs", ()) if event.kind in _TAKING else ())
            open.update([_ended(event)] if event.kind == "tool.finished" else ())
        for event in events:
            if rewound_to(event) is None:
                self.add(event)
            else:
                self._rewind(queued, open)

    def _rewind(self, queued: Collection[int], open: Collection[str]) -> None:
        """Apply a rewind to the events added so far. Queued messages that are not in `queued` count
        as read, and the outcome of open calls that are not in `open` counts as unknown."""
        waiting = [e.seq for e in self._open if e.kind == "message.received"]
        self._read.update(seq for seq in waiting if seq not in queued)
        self._lost.update(self._calls.difference(open))
        self._calls.intersection_update(open)

    def messages(
        self, model: str, blobs: Mapping[str, bytes], notes: Iterable[str] = ()
    ) -> tuple[PromptMessage, ...]:
        """Return the messages that `model` reads now. `notes` are inserted right before the newest
        input; `blobs` are the bytes of attachments by hash."""
        before = self._earlier(model, blobs)
        now = _rendered(self._in_order(self._open), model, blobs)
        place = max((n for n, m in enumerate(now) if isinstance(m, FromUser)), default=len(now))
        told = [FromUser((Text(note),)) for note in notes]
        last = before[-1:] or self._start(now)
        return (*before[:-1], *_joined([*last, *now[:place], *told, *now[place:]]))

    def cut(self, tokens: int, turns: int) -> ev.CompactionMade | None:
        """Return a compaction after which at most this many tokens and turns remain, or None if
        that is not possible."""
        left_tokens = sum(turn.tokens for turn in self.turns)
        left_turns = len(self.turns)
        for turn in self.turns:
            left_tokens, left_turns = left_tokens - turn.tokens, left_turns - 1
            if left_tokens <= tokens and left_turns <= turns:
                return ev.CompactionMade(
                    upto=turn.end,
                    carry=self.carried(turn.end),
                    # At most the target, or the open turn would trigger compaction again and again.
                    tokens=min(left_tokens + _tokens(self._open), tokens),
                    turns=left_turns + 1,
                )
        return None

    def carried(self, upto: int) -> list[int]:
        """Return the events up to `upto` that are still needed after a compaction: messages that
        the model reads later, and the edits of these messages."""
        kept = [turn for turn in self.turns if turn.end > upto]
        later = [seq for turn in kept for seq in (*(m.seq for m in turn.messages), *turn.edits)]
        later += [e.seq for e in self._open if e.kind in ("message.received", "queue.changed")]
        return [seq for seq in later if seq <= upto]

    def until(self, seq: int, model: str, blobs: Mapping[str, bytes]) -> tuple[PromptMessage, ...]:
        """Return the messages of the turns up to event `seq`, to be summarised."""
        told = [m for turn in self.turns if turn.end <= seq for m in turn.messages]
        now = _rendered(told, model, blobs)
        return tuple(_joined([*self._start(now), *now]))

    def blobs(self, model: str) -> set[str]:
        """Return the hashes of the attachments whose bytes `messages` needs. Attachments in turns
        that were already rendered for `model` are not included."""
        new = [m for turn in self.turns[self._known(model) :] for m in turn.messages]
        parts = [part for message in new if message.role == "user" for part in message.parts]
        for event in self._open:
            if event.kind == "message.received" and not self._waits(event):
                received = typed(event)
                parts += received.parts if isinstance(received, ev.MessageReceived) else []
        return {
            part["sha256"]
            for part in parts
            if isinstance(part, dict) and part.get("type") == "blob"
        }

    def stored(self) -> dict[str, list[Any]]:
        """Return the references to stored results in the conversation, by call."""
        messages = [message for turn in self.turns for message in turn.messages]
        if any(e.kind == "tool.finished" and b'"stored"' in bytes(e.data) for e in self._open):
            messages += self._in_order(self._open)
        calls = [call for message in messages for call in message.calls]
        return {c.id: c.outcome.stored for c in calls if c.outcome and c.outcome.stored}

    def _known(self, model: str) -> int:
        """Return how many turns are already rendered for this model."""
        return self._rendered[1] if self._rendered[0] == model else 0

    def _earlier(self, model: str, blobs: Mapping[str, bytes]) -> list[PromptMessage]:
        """Return the messages of the finished turns. The next message may be merged into the last
        message."""
        known = self._known(model)
        rendered = self._rendered[2] if known else []
        for turn in self.turns[known:]:
            more = _rendered(turn.messages, model, blobs)
            start = [] if rendered else self._start(more)
            rendered[-1:] = _joined([*rendered[-1:], *start, *more])
        self._rendered = model, len(self.turns), rendered
        return rendered

    def _start(self, messages: list[PromptMessage]) -> list[PromptMessage]:
        """Return the introduction to put before `messages`, if one is needed: the summary, or a
        note that earlier messages are missing."""
        if self.summary:
            return [FromUser((Text(SUMMARY + self.summary),))]
        begins = messages and isinstance(messages[0], FromModel)
        return [FromUser((Text(EARLIER),))] if begins else []

    def _close(self, event: Event) -> None:
        waiting = [e for e in self._open if self._waits(e)]
        mine = [e for e in self._open if not self._waits(e)]
        messages = tuple(self._in_order(mine))
        read, left = {m.seq for m in messages}, {e.seq for e in waiting}
        edits = [e for e in mine if e.kind == "queue.changed"]
        used = tuple(e.seq for e in edits if _edited(e) & read)
        self.turns.append(HistoryTurn(event.seq, _tokens(mine), messages, used))
        self._open = [*waiting, *(e for e in edits if _edited(e) & left)]
        self._taken.clear()
        self._read.clear()
        self._lost.clear()

    def _waits(self, event: Event) -> bool:
        """Return whether a message is still queued. In a log without runs, messages are never
        queued."""
        if event.kind != "message.received" or not self._taken:
            return False
        return event.seq not in self._taken and event.seq not in self._read

    def _in_order(self, events: list[Event]) -> list[Message]:
        """Return the messages in the order in which the model read them."""
        place: dict[int, int] = {}
        for event in events:
            payload = typed(event) if event.kind in _TAKING else None
            if isinstance(payload, (ev.RunStarted, ev.ModelCalled)):
                place.update(dict.fromkeys(payload.inputs, event.seq))
        shown = [e for e in events if not self._waits(e) and not _hidden(e)]
        messages = transcript(shown)
        if self._lost:
            messages = [_without_outcomes(message, self._lost) for message in messages]
        return sorted(messages, key=lambda m: place.get(m.seq, m.seq))

    def _cut(self, made: ev.CompactionMade) -> None:
        self.upto, self.summary = made.upto, made.summary
        self.turns = [turn for turn in self.turns if turn.end > made.upto]
        self._rendered = ("", 0, [])


def _tokens(events: Iterable[Event]) -> int:
    read = ("message.received", "message.completed", "message.interrupted", "tool.finished")
    return sum(len(e.data) // 4 for e in events if e.kind in read and not _hidden(e))


def _calls(event: Event) -> set[str]:
    payload = typed(event)
    if isinstance(payload, ev.ToolNested):
        return {payload.call.id}
    return {call.id for call in getattr(payload, "calls", ())}


def _ended(event: Event) -> str:
    payload = typed(event)
    return payload.call if isinstance(payload, ev.ToolFinished) else ids.done_call(event.id)


def _ends_turn(event: Event) -> bool:
    # In a log without runs, an answer itself ends the turn.
    return event.kind == "run.finished" or (
        event.kind in ("message.completed", "message.interrupted") and event.run is None
    )


def _edited(event: Event) -> set[int]:
    """Return the numbers of the messages that an event edited."""
    payload = typed(event)
    return set(reworded(payload)) if isinstance(payload, ev.QueueChanged) else set()


def _without_outcomes(message: Message, lost: Collection[str]) -> Message:
    """Return the message, with an unknown outcome for those of its open calls that are in
    `lost`."""
    calls = [
        msgspec.structs.replace(call, outcome=Outcome(outcome="unknown", seq=0, at=0))
        if call.outcome is None and call.id in lost
        else call
        for call in message.calls
    ]
    return msgspec.structs.replace(message, calls=calls) if calls else message


def _hidden(event: Event) -> bool:
    if event.kind != "message.interrupted":
        return False
    payload = typed(event)
    return isinstance(payload, ev.MessageInterrupted) and not payload.shown


def _rendered(
    messages: Iterable[Message], model: str, blobs: Mapping[str, bytes]
) -> list[PromptMessage]:
    found: list[PromptMessage] = []
    for message in map(_legible, messages):
        if message.role == "user":
            found.append(FromUser(_content(message, blobs)))
            continue
        asked = tuple(Asked(c.provider_id or c.id, c.name, c.arguments) for c in message.calls)
        bound = tuple(message.parts) if message.model == model else ()
        if message.text or asked:
            found.append(FromModel(message.text, asked, bound))
        if asked:
            found.append(FromTools(tuple(_answered(call) for call in message.calls)))
    return found


def _legible(message: Message) -> Message:
    if message.erased is None and message.raw is None:
        return message
    text = "[This message cannot be read.]" if message.erased is None else "[Erased.]"
    return msgspec.structs.replace(message, text=text, parts=[])


def _content(message: Message, blobs: Mapping[str, bytes]) -> tuple[Text | Media, ...]:
    content: list[Text | Media] = [Text(message.text)] if message.text else []
    for part in message.parts:
        if not isinstance(part, dict):
            content.append(Text(str(part)))
        elif part.get("type") == "blob":
            data = blobs.get(part["sha256"])
            kind, name = part.get("media_type", "application/octet-stream"), part.get("name")
            gone = Text(f"[An attachment is missing: {name or kind}]")
            content.append(gone if data is None else Media(data, kind, name))
        else:
            content.append(Text(part.get("text") or msgspec.json.encode(part).decode()))
    return tuple(content) or (Text("[empty message]"),)


def _answered(call: ToolCall) -> Answered:
    id, outcome = call.provider_id or call.id, call.outcome
    if outcome is None:
        return Answered(id, call.name, NOTES["open"], failed=True)
    return Answered(id, call.name, outcome_text(outcome), failed=outcome.outcome != "ok")


def outcome_text(outcome: Outcome) -> str:
    """Return an outcome as text for the model."""
    if outcome.content is not None:
        return outcome.content
    if outcome.result is not None:
        return _text(outcome.result)
    if outcome.outcome == "ok":
        return ""
    note = NOTES[outcome.outcome]
    return f"{note} {outcome.error}" if outcome.error else note


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _joined(messages: Iterable[PromptMessage]) -> list[PromptMessage]:
    """Merge consecutive messages of one role, because some models reject them."""
    found: list[PromptMessage] = []
    for message in messages:
        last = found[-1] if found else None
        if isinstance(message, FromUser) and isinstance(last, FromUser):
            found[-1] = FromUser((*last.content, *message.content))
        elif isinstance(message, FromModel) and isinstance(last, FromModel):
            text = "\n\n".join(filter(None, (last.text, message.text)))
            found[-1] = FromModel(text, message.calls, (*last.bound, *message.bound))
        else:
            found.append(message)
    return found
