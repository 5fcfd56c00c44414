"""The payloads of events about budgets: counted usage, and warnings."""

from __future__ import annotations

from .session_payloads import Payload


class RunCharged(Payload, frozen=True, kw_only=True):
    """A model call or the start of a run was counted, or an operator extended a budget. The event
    is in a log that counts the usage of a session, a user or a tenant; `usage` is added to its
    counters.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    usage: dict[str, int] = {}


class RunWarned(Payload, frozen=True, kw_only=True):
    """A budget is nearly used up. `budget` is its scope and period, such as `user/day`, `measure`
    says what it limits, and `share` is the used fraction.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    budget: str
    measure: str
    share: float = 0.0
