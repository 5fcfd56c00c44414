"""The steps of a run: plain values that `decide` returns and `perform` carries out."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct


class Idle(Struct, frozen=True):
    """Step: do nothing until the next event."""


class SetDue(Struct, frozen=True):
    """Step: record the time at which the log must be checked next, or None."""

    due: int | None


class Fire(Struct, frozen=True):
    """Step: fire these due timers, that is, write their messages to the log."""

    timers: tuple[str, ...]


class Warn(Struct, frozen=True):
    """Step: warn that these pending items are about to expire."""

    items: tuple[str, ...]


class Expire(Struct, frozen=True):
    """Step: expire these pending items, which were not answered in time."""

    items: tuple[str, ...]


class Supersede(Struct, frozen=True):
    """Step: close these pending items, because the user sent a message instead of an answer, or
    because the budget that they are about is no longer used up."""

    items: tuple[str, ...]


class Start(Struct, frozen=True):
    """Step: start a run with the queued message `input`. The model is called in the same step,
    unless `full` is true, which means that the conversation must be compacted first, or that a
    budget is used up."""

    input: int
    full: bool = False


class CallModel(Struct, frozen=True):
    """Step: call the model again. The queued messages `inputs` join the run."""

    step: int
    inputs: tuple[int, ...] = ()


class Compact(Struct, frozen=True):
    """Step: compact older turns, so that the prompt stays within its limits."""


class Refuse(Struct, frozen=True):
    """Step: reject tool calls of message `seq`, which has more calls than the limit allows. The
    last `left` calls of the message have no outcome yet."""

    seq: int
    left: int


class RunTools(Struct, frozen=True):
    """Step: run these tool calls."""

    calls: tuple[str, ...]


class Conclude(Struct, frozen=True):
    """Step: write the outcomes of calls that will not be carried out, or not be repeated."""

    calls: tuple[str, ...]


class AskOutcome(Struct, frozen=True):
    """Step: ask the user whether these calls took effect, because their outcomes are unknown."""

    calls: tuple[str, ...]


class Wait(Struct, frozen=True):
    """Step: record that the run waits for user input or sub-agents, and release the lease of the
    log."""

    due: int | None


class Report(Struct, frozen=True):
    """Step: report the result of a sub-agent's finished run to its parent."""


class Finish(Struct, frozen=True):
    """Step: end the run, and settle its open calls and pending items. `code` is the reason if the
    run did not succeed."""

    status: Literal["done", "failed", "aborted", "interrupted"]
    code: str | None = None


class AskProbe(Struct, frozen=True):
    """Step: ask the probes of these calls whether they took effect, because their outcomes are
    unknown."""

    calls: tuple[str, ...]


class Tick(Struct, frozen=True):
    """Step: write the messages of these due schedules, as their policies say."""

    names: tuple[str, ...]


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
    | AskProbe
    | Tick
)

# Steps that need no run, or do not change a waiting run.
BESIDE = (Idle, SetDue, Fire, Warn, Expire, Start, Report, Tick)
