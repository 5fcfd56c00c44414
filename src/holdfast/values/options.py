"""The options of a message: its content, how it is sent, and what its run may use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

from msgspec import UNSET, Struct, UnsetType

from ..errors import InvalidValue
from .media import Media

STEPS = 50  # default limit of the steps of a run


class RunLimits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limits of one run; None means no limit. `seconds` counts only while the run is driven,
    not while it waits for user input; `cost` is in dollars; `steps` is 50 by default. In the
    options of a message, None means the limit of the mode or the harness.

    ```python
    await session.send("Plan the week.", limits=RunLimits(steps=20, cost=0.50))
    ```
    """

    steps: int | UnsetType | None = UNSET
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None


How: TypeAlias = Literal["queue", "steer", "interrupt", "reject"]
Content: TypeAlias = str | Media | Sequence[str | Media]


class SendOptions(TypedDict, total=False):
    """Options of a message. `busy` says what happens if a run is active, `key` is the idempotency
    key, and `actor` is the sender (for a client, always the owner of its key). `model` and `limits`
    apply to the message's run."""

    busy: How
    key: str | None
    actor: str | None
    metadata: Mapping[str, Any] | None
    model: str | None
    limits: RunLimits | Mapping[str, float] | None


OPTIONS = (*SendOptions.__annotations__,)


def check_options(options: Mapping[str, Any]) -> None:
    """Reject unknown options of a message."""
    for name in options:
        if name not in OPTIONS:
            remedy = f"use one of output_type, {', '.join(OPTIONS)}"
            raise InvalidValue(field=name, problem="is not an option of a message", remedy=remedy)
