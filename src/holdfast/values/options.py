"""The options of a message: what it contains, how it is sent, and what its run may use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

from msgspec import UNSET, Struct, UnsetType

from ..errors import InvalidValue
from .media import Media

STEPS = 50  # that a run may take unless something else is said


class RunLimits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one run may use. None is no limit; `seconds` count while it is driven, not while
    it waits for a person; `cost` is in dollars. Where `steps` are not given they are 50. With a
    message, what is not given, or None, is left to the mode and the harness."""

    steps: int | UnsetType | None = UNSET
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None


How: TypeAlias = Literal["queue", "steer", "interrupt", "reject"]
Content: TypeAlias = str | Media | Sequence[str | Media]


class SendOptions(TypedDict, total=False):
    """What may be said with a message: what it does to a run that is going, its idempotency
    key, who sends it, and what its run is to use."""

    busy: How
    key: str | None
    actor: str | None
    metadata: Mapping[str, Any] | None
    model: str | None
    limits: RunLimits | Mapping[str, float] | None


OPTIONS = (*SendOptions.__annotations__,)


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse an option that there is not."""
    for name in options:
        if name not in OPTIONS:
            remedy = f"use one of output_type, {', '.join(OPTIONS)}"
            raise InvalidValue(field=name, problem="is no option of a message", remedy=remedy)
