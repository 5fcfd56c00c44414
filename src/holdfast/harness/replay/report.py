"""The result of a replay, and the notes from which the result is built. Pure."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from ...log.events import Event
from ...models.port import ModelCall
from .track import Track

Stopped: TypeAlias = Literal["end", "diverged", "prompt", "no_answer", "waiting", "erased"]

RedactionMode: TypeAlias = Literal["local", "sanitized", "replay_only"]

SHOWN = 2_000  # characters of a text in a report
MISSING = "(nothing)"
MOST = 100  # divergences in a report


class Divergence(Struct, frozen=True, kw_only=True):
    """A difference between the replay and the recording. `recorded` and `came` are the recorded and
    the replayed value, and `path` is their location in the event. `seq` is the number of the
    recorded event. `step` is the number of model calls of the thread so far.

    See [replay](../replay.md).
    """

    thread: str
    step: int
    seq: int | None
    kind: str
    path: str
    recorded: Any
    came: Any
    why: str = ""


class Replayed(Struct, frozen=True, kw_only=True):
    """The result of a replay.

    `same` means that the replay produced everything that was recorded. `first` is the first
    divergence, `others` are the later divergences if the replay continued. `steps` counts model
    calls, `compared` the events that were compared, `given` the recorded inputs that were supplied.
    `stopped` says why the replay ended; `asked` is the model call at that point. `events` maps each
    thread to the new events that replace the recorded events. `mode` is the redaction mode of the
    bundle.

    See [replay](../replay.md).
    """

    same: bool
    first: Divergence | None = None
    others: list[Divergence] = []
    steps: int = 0
    compared: int = 0
    given: int = 0
    threads: int = 0
    stopped: Stopped = "end"
    asked: ModelCall | None = None
    events: dict[str, list[Event]] = {}
    mode: RedactionMode = "local"


class ReplayNotes:
    """Collects the divergences of a replay, why the replay stopped, and the model call at that
    point."""

    def __init__(self) -> None:
        self.divergences: list[Divergence] = []
        self.stopped: Stopped = "end"
        self.asked: ModelCall | None = None

    def add(
        self,
        track: Track,
        event: Event | None,
        path: str,
        recorded: Any,
        came: Any,
        why: str = "",
    ) -> None:
        """Record a divergence."""
        if len(self.divergences) < MOST:
            self.divergences.append(
                Divergence(
                    thread=track.key.thread,
                    step=track.steps,
                    seq=event.seq if event is not None else None,
                    kind=event.kind if event is not None else MISSING,
                    path=path,
                    recorded=shown(recorded),
                    came=shown(came),
                    why=why,
                )
            )


def shown(value: Any) -> Any:
    """Return a value for a report; a long string is truncated."""
    if isinstance(value, str) and len(value) > SHOWN:
        return f"{value[:SHOWN]}… ({len(value)} characters)"
    return value
