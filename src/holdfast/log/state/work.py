"""A mutable copy of the state, which a fold works on, and its helper methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import asdict, replace

from ..events import Event
from .values import CallStatus, Grants, State, StateFields

CHANGED = ("calls", "pending", "usage", "contexts", "timers", "checkpoints", "schedules")

if TYPE_CHECKING:
    Fields = StateFields
else:
    Fields = object  # plain attributes: a struct takes longer to copy


class StateDraft(Fields):
    """A mutable copy of a state. A fold makes one copy per call instead of one per event."""

    def __init__(self, start: State) -> None:
        fields = vars(self)
        fields.update(asdict(start))
        for name in CHANGED:
            fields[name] = dict(fields[name])

    def state(self) -> State:
        return State(**vars(self))

    def mark(self, call: str | None, event: Event, status: CallStatus, **more: Any) -> None:
        if call is not None and call in self.calls:
            changes = {"status": status, "since": event.seq, **more}
            self.calls[call] = replace(self.calls[call], **changes)

    def amend(self, **changes: Any) -> None:
        """Change fields of the active run."""
        if self.run is not None and self.run.open:
            self.run = replace(self.run, **changes)

    def driven_by(self, driver: str | None) -> None:
        """Drop the grants if another driver takes over, because grants are valid only for the
        driver that received them."""
        if driver != self.grants.driver:
            self.grants = Grants()

    def take(self, inputs: Sequence[int]) -> None:
        self.queue = tuple(q for q in self.queue if q.seq not in inputs)

    def read(self, event: Event, turns: int = 0) -> None:
        """Add an event that a model reads to the size of the window."""
        window, tokens = self.window, len(event.data) // 4
        self.window = replace(window, tokens=window.tokens + tokens, turns=window.turns + turns)

    def drop_contexts(self, *scopes: str) -> None:
        self.contexts = {id: c for id, c in self.contexts.items() if c.scope not in scopes}


Step: TypeAlias = Callable[[StateDraft, Event, Any], None]  # applies one kind of event
