"""The steps of a run: what `decide` says, and `perform` does. Plain values."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct


class Idle(Struct, frozen=True):
    """There is nothing to do until something comes."""


class SetDue(Struct, frozen=True):
    """Write down when to look again."""

    due: int | None


class Fire(Struct, frozen=True):
    """These timers are due: receive their messages."""

    timers: tuple[str, ...]


class Warn(Struct, frozen=True):
    """Say that these items are about to expire."""

    items: tuple[str, ...]


class Expire(Struct, frozen=True):
    """These items were not answered in time."""

    items: tuple[str, ...]


class Supersede(Struct, frozen=True):
    """A message came instead of an answer to these items."""

    items: tuple[str, ...]


class Start(Struct, frozen=True):
    """Begin a run with this input, and call the model: not yet if the window is `full`."""

    input: int
    full: bool = False


class CallModel(Struct, frozen=True):
    """Call the model again; these inputs join the run now."""

    step: int
    inputs: tuple[int, ...] = ()


class Compact(Struct, frozen=True):
    """Put older turns away, so that what a model reads stays small enough."""


class Refuse(Struct, frozen=True):
    """Message `seq` holds more calls than may be made: refuse some of the last `left`."""

    seq: int
    left: int


class RunTools(Struct, frozen=True):
    """Carry these calls out."""

    calls: tuple[str, ...]


class Conclude(Struct, frozen=True):
    """Write the outcome of calls that will not be carried out, or not again."""

    calls: tuple[str, ...]


class AskOutcome(Struct, frozen=True):
    """Nobody knows whether these calls acted: ask a person."""

    calls: tuple[str, ...]


class Wait(Struct, frozen=True):
    """Let go until a person answers."""

    due: int | None


class Report(Struct, frozen=True):
    """The run of a sub-agent is over: tell its parent what came of it."""


class Finish(Struct, frozen=True):
    """End the run; what is open in it is settled first. `code` says why, if not done."""

    status: Literal["done", "failed", "aborted", "interrupted"]
    code: str | None = None


Step: TypeAlias = (
    Idle
    | SetDue
    | Fire
    | Warn
    | Expire
    | Supersede
    | Start
    | CallModel
    | Compact
    | Refuse
    | RunTools
    | Conclude
    | AskOutcome
    | Wait
    | Report
    | Finish
)

# These need no run, or leave the one that waits as it is.
BESIDE = (Idle, SetDue, Fire, Warn, Expire, Start, Report)
