"""Reads native events that other programs wrote, such as the harness or the adapter of another SDK.
Pure.

An adapter converts the messages and tool outcomes in `ForeignEvents` to items of its SDK.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..log import events as ev
from ..log.codec import typed
from ..log.events import Event
from ..log.transcript import ROLES, Message, Outcome, ToolCall, transcript

ANSWERED = "tool.finished"
KINDS = (*ROLES, ANSWERED)


class ForeignEvents:
    """The messages and tool outcomes in successive events, by event number. Messages that were
    removed from the queue, outcomes of nested calls, and events that were erased or cannot be read
    are omitted."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.messages: dict[int, Message] = {}
        self.outcomes: dict[int, tuple[ToolCall, Outcome]] = {}
        for message in transcript(events):
            if message.erased is None and message.raw is None:
                self.messages[message.seq] = message
            for call in message.calls:
                if call.outcome is not None and call.outcome.outcome != "erased":
                    self.outcomes[call.outcome.seq] = call, call.outcome


class OpenOutcomes:
    """The tool outcomes of other writers whose calls have not been read yet, while a log is read
    newest first. If it is empty, the events read so far contain the call of every outcome."""

    def __init__(self) -> None:
        self._open: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._open)

    def take(self, event: Event) -> None:
        payload = (
            typed(event) if event.kind in (ANSWERED, "message.completed", "tool.nested") else 0
        )
        if isinstance(payload, ev.ToolFinished):
            self._open.add(payload.call)
        elif isinstance(payload, ev.MessageCompleted):
            self._open.difference_update(call.id for call in payload.calls)
        elif isinstance(payload, ev.ToolNested):
            self._open.discard(payload.call.id)


def outcome_text(outcome: Outcome | ev.ToolFinished) -> str:
    """Return a tool outcome as text for a model."""
    if outcome.content is not None:
        return outcome.content
    if outcome.outcome == "ok" or outcome.result is not None:
        result = outcome.result
        return result if isinstance(result, str) else msgspec.json.encode(result).decode()
    return outcome.error or f"The call was not completed: {outcome.outcome}."
