"""The limits that `decide` checks before each step of a run."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ...values.options import RunLimits


class RunBounds(Struct, frozen=True, kw_only=True):
    """Limits that `decide` checks: the limits of the run, the size of a conversation above which
    older turns are compacted (`tokens` and `turns`), the number of driver crashes after which a run
    fails, and whether interrupted runs are resumed or closed (`recovery`). `budget` says what must
    not start because a budget is used up: a model call, or only a new run."""

    limits: RunLimits = RunLimits()
    tokens: int = 100_000
    turns: int = 200
    crashes: int = 3
    recovery: Literal["resume", "close"] = "resume"
    budget: Literal["run", "call"] | None = None
