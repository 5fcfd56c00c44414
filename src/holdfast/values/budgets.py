"""Budgets: how many tokens, dollars and runs a session, a user or a tenant may use per day, per
month or in total. Pure: periods, charges of events, and what is used up.

Usage is counted in logs of a reserved tenant, one per scope, name and period. An event
`run.charged` of such a log counts one model call, or the start of one run.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from ..errors import InvalidValue
from ..log import events as ev
from ..log.codec import check_choice, check_name, typed
from ..log.events import USAGE_TENANT, Event, Key, NewEvent, ids

BudgetScope: TypeAlias = Literal["session", "user", "tenant"]
Period: TypeAlias = Literal["day", "month", "total"]
Measure: TypeAlias = Literal["tokens", "cost", "runs"]
SCOPES: tuple[BudgetScope, ...] = get_args(BudgetScope)
PERIODS: tuple[Period, ...] = get_args(Period)
MEASURES: tuple[Measure, ...] = get_args(Measure)
NANO = 1_000_000_000  # costs are counted in billionths of a dollar, because counters are integers
LARGEST = 10**15  # of a limit, and of what one event can count
WARNING = 0.8  # fraction of a limit from which a run warns
EXTRA = "extra_"  # prefix of the counters that extensions add to


class Budget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much each session, user or tenant may use per day, per month or in total. `cost` is in
    dollars; days and months are those of UTC. `who` names one session, user or tenant: for it,
    this budget replaces the budget of the same scope and period without a name.

    ```python
    Harness(agent, budgets=[Budget(scope="user", tokens=200_000, per="day")])
    ```

    See [budgets](../budgets.md).
    """

    scope: BudgetScope
    tokens: int | None = None
    cost: float | None = None
    runs: int | None = None
    per: Period = "total"
    who: str | None = None

    def __post_init__(self) -> None:
        check_choice("scope", self.scope, SCOPES)
        check_choice("per", self.per, PERIODS)
        if self.who is not None:
            check_name("who", self.who)
        if not self.limits:
            problem, remedy = "has no limit", "pass tokens=, cost= or runs="
            raise InvalidValue(field="budget", problem=problem, remedy=remedy)
        _check_amounts(self.limits)

    @property
    def limits(self) -> dict[str, int | float]:
        """The limits that are set, by name."""
        given = ((name, getattr(self, name)) for name in MEASURES)
        return {name: value for name, value in given if value is not None}


class BudgetUsage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one session, user or tenant has used in one period. `period` is a day such as
    `2026-11-19`, a month such as `2026-11`, or `total`. `extended` is what operators added to the
    limits, `limits` are the limits that apply, with these extensions, as far as they are known."""

    scope: BudgetScope
    who: str
    per: Period
    period: str
    tokens: int = 0
    cost: float = 0.0
    runs: int = 0
    extended: dict[str, int | float] = {}
    limits: dict[str, int | float] = {}


class UsageLog(Struct, frozen=True, kw_only=True):
    """The identity of a log that counts usage."""

    scope: BudgetScope
    who: str
    per: Period
    period: str

    def key(self, tenant: str) -> Key:
        """Return the key of the log; its name is a hash, because a name of a user may be long."""
        about = msgspec.json.encode((self.scope, self.who))
        digest = hashlib.sha256(about).hexdigest()[:32]
        return Key(USAGE_TENANT + tenant, f"{self.scope}-{self.period}-{digest}", "main")


class ReachedBudget(Struct, frozen=True, kw_only=True):
    """A budget of which some limits are used up; `measures` names them. `allowed` are all its
    limits, with extensions."""

    log: UsageLog
    measures: tuple[str, ...]
    allowed: dict[str, int | float]

    @property
    def item(self) -> str:
        """The id of the pending item that asks an operator to extend the budget. It is another one
        after each extension."""
        log = self.log
        about = (log.scope, log.who, log.period, sorted(self.allowed.items()))
        digest = hashlib.sha256(msgspec.json.encode(about)).hexdigest()[:32]
        return f"{ids.BUDGET}{digest}"


def period_of(per: Period, at: int) -> str:
    """Return the name of the period at a time (ms)."""
    if per == "total":
        return "total"
    return f"{datetime.fromtimestamp(at / 1000, UTC):{'%Y-%m-%d' if per == 'day' else '%Y-%m'}}"


def period_end(per: Period, at: int) -> int | None:
    """Return the time (ms) at which the period at a time (ms) ends; None if it never ends."""
    if per == "total":
        return None
    first = datetime.fromtimestamp(at / 1000, UTC).replace(
        hour=0, minute=0, second=0, microsecond=0
    )
    if per == "day":
        following = first + timedelta(days=1)
    else:
        following = (first.replace(day=1) + timedelta(days=32)).replace(day=1)
    return int(following.timestamp() * 1000)


def effective(budgets: Iterable[Budget], whose: Mapping[str, str | None]) -> list[Budget]:
    """Return the budgets that apply. `whose` names the session, the user and the tenant; a session
    without a user has no user budgets."""
    budgets = [*budgets]
    named = {(b.scope, b.per) for b in budgets if b.who is not None and b.who == whose[b.scope]}
    found: list[Budget] = []
    for budget in budgets:
        name = whose[budget.scope]
        if name is None or budget.who not in (None, name):
            continue
        if budget.who is None and (budget.scope, budget.per) in named:
            continue
        found.append(budget)
    return found


# What events count


def counted(event: Event) -> dict[str, int] | None:
    """Return what an event of a session adds to the usage counters, or None if it counts nothing:
    each message of a run counts tokens and cost, the first model call of a run counts the run."""
    if event.run is None:
        return None
    payload = typed(event) if event.kind in ("message.completed", "model.called") else None
    if isinstance(payload, ev.ModelCalled):
        return {"runs": 1} if payload.step == 1 else None
    return (
        amounts(payload.usage, payload.cost) if isinstance(payload, ev.MessageCompleted) else None
    )


def amounts(usage: Mapping[str, int], cost: float | None) -> dict[str, int]:
    """Return what a model call adds to the counters. A call without cost data counts tokens only,
    and no vendor's number makes usage smaller."""
    tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
    found = {"calls": 1, "tokens": _bounded(tokens)}
    if cost is not None and math.isfinite(cost):
        found["cost"] = _bounded(round(min(cost, LARGEST / NANO) * NANO))
    return found


def _bounded(count: int) -> int:
    return max(0, min(count, LARGEST))


def source_of(event: Event) -> str:
    """Return the id of what an event counts: its message or its run."""
    return event.id if event.kind == "message.completed" else event.run or event.id


def charge_of(source: str, usage: dict[str, int]) -> NewEvent:
    """Return the event that counts a message or a run in a usage log, once, because of its id."""
    return NewEvent.of("run.charged", ev.RunCharged(usage=usage), id=ids.charge_id(source))


# Limits


def allowed(limits: Mapping[str, int | float], used: Mapping[str, int]) -> dict[str, int | float]:
    """Return limits with the extensions that are counted in `used`."""
    return {name: value + _shown(name, used.get(EXTRA + name, 0)) for name, value in limits.items()}


def limits_of(budgets: Iterable[Budget], log: UsageLog) -> dict[str, int | float]:
    """Return the limits, without extensions, that apply to a usage log."""
    same = [one for one in budgets if (one.scope, one.per) == (log.scope, log.per)]
    named = [one for one in same if one.who == log.who]
    found: dict[str, int | float] = {}
    for budget in named or [one for one in same if one.who is None]:
        for name, limit in budget.limits.items():
            found[name] = min(limit, found.get(name, limit))
    return found


def shares(
    limits: Mapping[str, int | float], used: Mapping[str, int]
) -> Iterator[tuple[str, float]]:
    """Yield the used fraction of each limit, with extensions."""
    for name, limit in allowed(limits, used).items():
        yield name, _shown(name, used.get(name, 0)) / limit


def usage_shown(
    log: UsageLog, used: Mapping[str, int], limits: Mapping[str, int | float]
) -> BudgetUsage:
    """Return the counters of a log as they are shown."""
    return BudgetUsage(
        scope=log.scope,
        who=log.who,
        per=log.per,
        period=log.period,
        tokens=used.get("tokens", 0),
        cost=used.get("cost", 0) / NANO,
        runs=used.get("runs", 0),
        extended={
            name: _shown(name, used[EXTRA + name]) for name in MEASURES if used.get(EXTRA + name)
        },
        limits=allowed(limits, used),
    )


def _shown(name: str, count: int) -> int | float:
    return count / NANO if name == "cost" else count


def extension(answer: Any, measures: Iterable[str]) -> dict[str, int]:
    """Return the counters that an operator's answer `{"extend": {"tokens": 1000}}` adds to. Raises
    `InvalidValue` for any other answer."""
    given = answer.get("extend") if isinstance(answer, Mapping) and len(answer) == 1 else None
    known = [*measures]
    if not isinstance(given, Mapping) or not given or not {*given} <= {*known}:
        example = f'{{"extend": {{"{known[0] if known else "tokens"}": 1000}}}}'
        raise InvalidValue(
            field="answer",
            problem="does not extend this budget",
            remedy=f"answer with {example}; its limits are {', '.join(known)}",
        )
    _check_amounts(given)
    return {
        EXTRA + name: round(value * NANO) if name == "cost" else value
        for name, value in given.items()
    }


def _check_amounts(given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        number = whole or (name == "cost" and isinstance(value, float) and math.isfinite(value))
        most = LARGEST // NANO if name == "cost" else LARGEST
        least = 1 / NANO if name == "cost" else 1
        if not number or not least <= value <= most:
            what = "a number of dollars" if name == "cost" else "a whole number"
            raise InvalidValue(
                field=name,
                problem=f"is {value!r}",
                remedy=f"pass {what} above 0, at most {most}",
                limit=most,
            )
