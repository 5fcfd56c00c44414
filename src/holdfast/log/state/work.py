"""The mutable state during a fold, and its helpers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from ..events import Event
from .values import CallStatus, Grants, State


class StateDraft:
    """A mutable state: one copy per fold instead of one per event."""

    def __init__(self, start: State) -> None:
        self.head, self.too_new, self.expired = start.head, start.too_new, start.expired
        self.run, self.abort, self.due = start.run, start.abort, start.due
        self.driven = start.driven
        self.mode, self.model, self.context = start.mode, start.model, start.context
        self.queue, self.window, self.tasks = start.queue, start.window, start.tasks
        self.rules, self.grants, self.sub = start.rules, start.grants, start.sub
        self.calls, self.pending = dict(start.calls), dict(start.pending)
        self.excess = start.excess
        self.usage, self.data = dict(start.usage), dict(start.data)
        self.models, self.settings = start.models, start.settings
        self.contexts, self.timers = dict(start.contexts), dict(start.timers)
        self.checkpoints = dict(start.checkpoints)
        self.total, self.cost, self.files = start.total, start.cost, start.files
        self.tasks_before = start.tasks_before

    def state(self) -> State:
        return State(**vars(self))

    def mark(self, call: str | None, event: Event, status: CallStatus, **more: Any) -> None:
        if call is not None and call in self.calls:
            changes = {"status": status, "since": event.seq, **more}
            self.calls[call] = replace(self.calls[call], **changes)

    def amend(self, **changes: Any) -> None:
        """Change the active run."""
        if self.run is not None and self.run.open:
            self.run = replace(self.run, **changes)

    def driven_by(self, driver: str | None) -> None:
        """Grants are valid for the driver that they were given to."""
        if driver != self.grants.driver:
            self.grants = Grants()

    def take(self, inputs: Sequence[int]) -> None:
        self.queue = tuple(q for q in self.queue if q.seq not in inputs)

    def read(self, event: Event, turns: int = 0) -> None:
        """Count what a model will read."""
        window, tokens = self.window, len(event.data) // 4
        self.window = replace(window, tokens=window.tokens + tokens, turns=window.turns + turns)

    def drop_contexts(self, *scopes: str) -> None:
        self.contexts = {id: c for id, c in self.contexts.items() if c.scope not in scopes}


Step: TypeAlias = Callable[[StateDraft, Event, Any], None]  # what one kind of event changes
