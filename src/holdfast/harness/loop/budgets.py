"""What a driver does about budgets: it reads the usage before it decides, warns in the log when a
budget is nearly used up, and asks an operator to extend one that is used up."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import asdict, replace

from ...errors import StoreUnavailable
from ...log import events as ev
from ...log.events import NewEvent, ids
from ...values.budgets import Budget, ReachedBudget, amounts, period_end
from ..agents.config import Config
from ..agents.limits import RunBounds
from ..agents.meter import BudgetCheck
from ..live.log import Live
from ..telemetry.logs import BoundLog
from .driver import Driving
from .lease import while_unavailable

WHOSE = {"session": "of this session", "user": "of this user", "tenant": "of this tenant"}
EACH = {"day": " per day", "month": " per month", "total": ""}


async def read_usage(check: BudgetCheck | None, config: Config, live: Live, log: BoundLog) -> None:
    """Ensure that the usage is fresh on which the next decision is based."""
    if check is not None:
        now = config.clock(live.key)
        await while_unavailable(config, live, log, lambda: check.ready(now))


async def read_again(driving: Driving) -> None:
    """Read the usage after a tool has run, if the store is available; else keep what is known."""
    if driving.check is not None:
        try:
            await driving.check.ready(driving.now())
        except StoreUnavailable as error:
            driving.log.warning("usage_not_read", category="storage", error=error)


def bounds_with(check: BudgetCheck | None, config: Config, now: int) -> RunBounds:
    """Return the limits for the next decision about a log that nobody drives yet."""
    stop = None if check is None else check.stop(now)
    return config.bounds if stop is None else replace(config.bounds, budget=stop)


def charge_start(driving: Driving) -> None:
    """Count a run whose start was logged before this driver began to watch the log."""
    if driving.check is not None and driving.run.id is not None:
        driving.check.charge(driving.run.id, driving.run.at, {"runs": 1})


def charge_again(check: BudgetCheck | None, config: Config, live: Live) -> None:
    """Count what the last run has used, if another process drove it: that process may have crashed
    before it did so."""
    run = live.state.run
    if check is None or run is None or live.row is None:
        return
    if run.driver not in (None, config.owner):
        check.meter.again(check, live.row, run)


def warnings(driving: Driving, usage: Mapping[str, int], cost: float | None) -> list[NewEvent]:
    """Create the events that warn of budgets which are nearly used up after this message, one per
    limit and run."""
    check, found = driving.check, list[NewEvent]()
    if check is None:
        return found
    for budget, measure, share in check.warnings(driving.now(), amounts(usage, cost)):
        if (budget, measure) in driving.warned:
            continue
        driving.warned.add((budget, measure))
        payload = ev.RunWarned(budget=budget, measure=measure, share=share)
        id = ids.warned_id(driving.run.id, budget, measure)
        found.append(driving.event("run.warned", payload, id=id))
        said = f"{share:.0%} of the {measure} of budget {budget} are used"
        driving.log.warning("budget_warning", category="run", message=said)
    return found


def questions(driving: Driving) -> list[NewEvent]:
    """Create the events that ask an operator to extend the budgets because of which a run ends. A
    sub-agent does not ask: the run that waits for it ends for the same reason."""
    now = driving.now()
    if driving.check is None or driving.state.sub is not None:
        return []
    user = None if driving.shared.row is None else driving.shared.row.user
    return [_question(budget, found, user, now) for budget, found in driving.check.reached(now)]


def _question(budget: Budget, reached: ReachedBudget, user: str | None, now: int) -> NewEvent:
    measures = [*budget.limits]
    amount = {"type": "number"}
    extend = {"type": "object", "properties": dict.fromkeys(measures, amount)}
    what = " and ".join(reached.measures)
    title = f"The budget {WHOSE[budget.scope]} for {what}{EACH[budget.per]} is used up"
    payload = ev.PendingOpened(
        id=reached.item,
        what="access",
        title=title,
        expires=period_end(budget.per, now),
        detail={
            "budget": asdict(reached.log),
            "user": user,
            "measures": measures,
            "reached": [*reached.measures],
            "schema": {
                "type": "object",
                "properties": {"extend": extend},
                "required": ["extend"],
            },
        },
    )
    # Once: after an operator has refused, the same question is not asked again.
    return NewEvent.of("pending.opened", payload, id=ids.asked_id(reached.item))
