"""The judge of budgets: what runs used is counted once, and no model call starts long after a
budget was used up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...log import events as ev
from ...log.codec import is_erased
from ...log.events import USAGE_TENANT, Event, Key, ids
from ...values.budgets import EXTRA, counted, source_of
from .loop import EPOCH
from .outcome import SimulationOutcome

WRITTEN = 3.0  # seconds after which usage is counted at the latest, if no fault is active
LAG = 2.0  # seconds after which all processes know that a budget is used up, without any fault


def budget(outcome: SimulationOutcome) -> Iterator[str]:
    """Check that each message and run is counted once, as it is in the logs, and that model calls
    end soon after the budget was used up."""
    limit = outcome.scenario.budget
    if limit is None:
        return
    used, known = dict(_used(outcome.whole)), dict(_used(outcome.payloads))
    charges: dict[str, dict[str, int]] = {}
    for key, log in outcome.payloads.items():
        if key.tenant.startswith(USAGE_TENANT):
            for event, payload in log:
                if isinstance(payload, ev.RunCharged):
                    charges[event.id] = payload.usage
    sources = {ids.charge_id(source): (at, usage) for source, (at, usage) in used.items()}
    found = {ids.charge_id(source): usage for source, (_, usage) in known.items()}
    logs = outcome.payloads.values()  # of an erased message, only the charge says what it used
    erased = {ids.charge_id(e.id) for log in logs for e, _ in log if is_erased(e)}
    for id, usage in charges.items():
        if any(name.startswith(EXTRA) for name in usage) or (outcome.deleted and id not in found):
            continue
        if found.get(id) != usage and id not in erased:
            yield f"{id} counts {usage}, the logs say {found.get(id)}"
    calm = max((strike.end for strike in outcome.strikes if strike.end < 1e9), default=0.0)
    for id, (at, _) in sources.items():
        if id not in charges and max(at, calm) < outcome.seconds - WRITTEN:
            yield f"{id} is not counted"
    yield from _late(outcome, limit)


def _used(
    logs: Mapping[Key, list[tuple[Event, Any]]],
) -> Iterator[tuple[str, tuple[float, dict[str, int]]]]:
    """Yield when and what the events of sessions count, by source."""
    for key, log in logs.items():
        if not key.tenant.startswith("~"):
            for event, _ in log:
                if (usage := counted(event)) is not None:
                    yield source_of(event), (event.at / 1000 - EPOCH, usage)


def _late(outcome: SimulationOutcome, limit: int) -> Iterator[str]:
    """Check that no call starts later than `LAG` after the budget was used up."""
    if outcome.strikes or outcome.deleted:
        return  # a fault may delay what processes know of each other, without any limit
    changes: list[tuple[float, int]] = []
    calls: list[float] = []
    for key, log in outcome.payloads.items():
        for event, payload in log:
            at = event.at / 1000 - EPOCH
            if isinstance(payload, ev.ModelCalled):
                calls.append(at)
            elif isinstance(payload, ev.RunCharged):
                changes.append((at, -payload.usage.get("extra_tokens", 0)))
            elif isinstance(payload, ev.MessageCompleted) and not key.tenant.startswith("~"):
                changes.append((at, (counted(event) or {}).get("tokens", 0)))
    left, since = limit, 0.0
    for at, count in [*sorted(changes), (outcome.seconds, 0)]:
        late = [call for call in calls if left <= 0 and since + LAG < call < at]
        if late:
            yield f"a model was called {late[0] - since:.1f} s after the budget was used up"
            return
        before, left = left, left - count
        since = at if before > 0 >= left else since
