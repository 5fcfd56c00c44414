"""What one run may use, and what a decision depends on beside the state. Plain values."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

STEPS = 50  # that a run may take unless something else is said


class RunLimits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one run may use. None is no limit; `seconds` count while it is driven, not while
    it waits for a person; `cost` is in dollars. Where `steps` are not given they are 50. With a
    message, what is not given, or None, is left to the mode and the harness."""

    steps: int | UnsetType | None = UNSET
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None


class Bounds(Struct, frozen=True, kw_only=True):
    """All that a decision depends on beside the state: the limits of a run, how much of the
    conversation a model reads (`tokens` and `turns`, before older turns are put away), how
    often a lost driver is replaced, and whether at all."""

    limits: RunLimits = RunLimits()
    tokens: int = 100_000
    turns: int = 200
    crashes: int = 3
    recovery: Literal["resume", "close"] = "resume"
