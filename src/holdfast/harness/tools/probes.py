"""The answers of a probe: a function of a tool that says, after a crash, whether a call whose
outcome was lost took effect."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct


class Happened(Struct, frozen=True):
    """The call took effect. `result` is what the tool would have returned: the call then ends with
    it, as if nothing had been lost.

    See [probes](../tools.md#probes).
    """

    result: Any = None


class NotHappened(Struct, frozen=True):
    """The call did not take effect, and no request of it is still under way: it is made again, with
    the same key.

    See [probes](../tools.md#probes).
    """


class DontKnow(Struct, frozen=True):
    """It cannot be said whether the call took effect. What follows is what the tool declares for an
    unknown outcome. `reason` is shown to the person who is asked.

    See [probes](../tools.md#probes).
    """

    reason: str | None = None


ProbeAnswer: TypeAlias = Happened | NotHappened | DontKnow
