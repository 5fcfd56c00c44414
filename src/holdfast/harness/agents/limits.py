"""The bounds of a run, which `decide` uses in addition to the state."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ...values.options import RunLimits


class RunBounds(Struct, frozen=True, kw_only=True):
    """Bounds that `decide` uses in addition to the state: the limits of the run, how much of the
    conversation a model reads before older turns are compacted (`tokens` and `turns`), how many
    crashes of its driver a run survives, and whether it is resumed at all."""

    limits: RunLimits = RunLimits()
    tokens: int = 100_000
    turns: int = 200
    crashes: int = 3
    recovery: Literal["resume", "close"] = "resume"
