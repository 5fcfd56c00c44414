"""The limits of a run that `decide` uses in addition to the state."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ...values.options import RunLimits


class RunBounds(Struct, frozen=True, kw_only=True):
    """Limits that `decide` uses in addition to the state: the limits of the run, how much of the
    conversation a model reads before older turns are compacted (`tokens` and `turns`), the number
    of driver crashes after which a run fails, and whether runs are resumed at all."""

    limits: RunLimits = RunLimits()
    tokens: int = 100_000
    turns: int = 200
    crashes: int = 3
    recovery: Literal["resume", "close"] = "resume"
