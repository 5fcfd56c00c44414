"""Budgets in one process: usage that is read from usage logs and remembered, charges that are
written in batches off the path of a turn, and the check before each model call."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Literal, NamedTuple

from ...cancellation import cancellable, ended, outcomes
from ...environment import wall_clock
from ...errors import HoldfastError
from ...log.catalog import Query, Row
from ...log.events import USAGE_TENANT, Key
from ...log.state import Run
from ...sessions.budgets import Charge, charges_in, write
from ...stores.pages import every_row
from ...stores.port import Store
from ...values.budgets import (
    WARNING,
    Budget,
    ReachedBudget,
    UsageLog,
    allowed,
    charge_of,
    effective,
    period_end,
    period_of,
    shares,
    source_of,
)
from ..telemetry.logs import BoundLog

FLUSH = 0.25  # seconds after which charges are written
FRESH = 1.0  # seconds for which usage that was read is used for checks
RETRY = 1.0  # seconds between two attempts to write charges
LAST = 60_000  # ms before the last run of another process from which its usage is counted again
LOST = 600  # seconds before the newest usage from which a start looks for charges that were lost
KEPT = 10_000  # counters that are kept in memory


class Counter:
    """One usage log as this process knows it: the counters when it was last read, and the charges
    of this process that they do not include yet."""

    def __init__(self) -> None:
        self.used: Mapping[str, int] = {}
        self.own: dict[str, int] = {}
        self.read: float | None = None  # the loop's time

    def total(self, more: Mapping[str, int] | None = None) -> dict[str, int]:
        found = dict(self.used)
        for part in (self.own, more or {}):
            for name, count in part.items():
                found[name] = found.get(name, 0) + count
        return found


class Written(NamedTuple):
    """A charge, and whether the counter in memory includes it until it is read again."""

    charge: Charge
    usage: dict[str, int]


class Meter:
    """The budgets of one harness, and the usage of its tenant."""

    def __init__(self, budgets: Iterable[Budget], store: Store, tenant: str, log: BoundLog) -> None:
        self.budgets, self.tenant = tuple(budgets), tenant
        self._store, self._log = store, log
        self._counters: dict[Key, Counter] = {}
        self._waiting: list[Written] = []
        self._unread: list[Written] = []  # written, but the counters were not read since
        self._lock = asyncio.Lock()
        self._recovering: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._known: dict[str, None] = {}  # what was counted again
        self._closed = False

    def check_for(self, session: str, user: str | None) -> BudgetCheck | None:
        """Return the check for a session of this user; None if no budget applies to it."""
        whose = {"session": session, "user": user, "tenant": self.tenant}
        found = effective(self.budgets, whose)
        return BudgetCheck(self, found, whose) if found else None

    def counter(self, key: Key) -> Counter:
        return self._counters.setdefault(key, Counter())

    def add(self, charges: Iterable[tuple[Key, Charge]], usage: dict[str, int]) -> None:
        """Count charges at once, and write them soon. With empty `usage`, they are only written,
        because the log may have them already."""
        for key, charge in charges:
            if usage:
                own = self.counter(key).own
                for name, count in usage.items():
                    own[name] = own.get(name, 0) + count
            self._waiting.append(Written(charge, usage))
        self._schedule(FLUSH)

    def fresh(self, keys: Collection[Key], since: float | None = None) -> bool:
        """Return whether these counters were read recently, or after `since`."""
        least = asyncio.get_running_loop().time() - FRESH if since is None else since
        known = (self._counters.get(key) for key in keys)
        return all(one is not None and one.read is not None and one.read >= least for one in known)

    async def sync(self, keys: Iterable[Key] = ()) -> None:
        """Write the charges that wait, and read the counters of these logs again."""
        async with self._lock:
            batch, self._waiting = self._waiting, []
            wanted = dict.fromkeys(keys)
            try:
                await write(self._store, self.tenant, (one.charge for one in batch))
            except BaseException:
                self._waiting = [*batch, *self._waiting]
                raise
            self._unread += batch
            for one in self._unread:
                if one.usage:
                    wanted[one.charge.log.key(self.tenant)] = None
            if not wanted:
                return
            now = asyncio.get_running_loop().time()
            rows = await self._store.rows([*wanted])
            for key, row in zip(wanted, rows, strict=True):
                counter = self.counter(key)
                counter.used, counter.read = {} if row is None else row.usage, now
            self._settle()
            self._forget(wanted)

    def _settle(self) -> None:
        """Take charges out of the counters that were read since they were written."""
        unread, self._unread = self._unread, []
        for one in unread:
            own = self.counter(one.charge.log.key(self.tenant)).own
            for name, count in one.usage.items():
                own[name] -= count

    def _forget(self, wanted: Collection[Key]) -> None:
        if len(self._counters) > KEPT:
            kept = {one.charge.log.key(self.tenant) for one in self._waiting} | {*wanted}
            self._counters = {k: one for k, one in self._counters.items() if k in kept}

    # In the background

    def start(self) -> None:
        """Write the charges that a crashed process may have lost."""
        self._recovering = self._begin(self._recover())

    async def _recover(self) -> None:
        usage = Query(tenant=USAGE_TENANT + self.tenant)
        newest = (await self._store.find(usage, limit=1)).items
        since = (newest[0].active if newest else wall_clock() // 1000) - LOST
        recent = Query(tenant=self.tenant, active_from=max(0, since))
        async with aclosing(every_row(self._store, recent)) as sessions:
            async for session in sessions:
                check = self.check_for(session.session, session.user)
                if check is not None:
                    threads = Query(tenant=self.tenant, session=session.session)
                    async for row in every_row(self._store, threads):
                        await self._again(check, row, since * 1000)

    def again(self, check: BudgetCheck, row: Row, run: Run) -> None:
        """Count what the drivers of another process have used in a log, in its last run and shortly
        before. It may have been counted already."""
        mark = f"{run.id} {run.driver} {run.since}"
        if mark not in self._known:
            self._known[mark] = None
            while len(self._known) > KEPT:
                del self._known[next(iter(self._known))]
            self._begin(self._again(check, row, run.at - LAST))

    async def _again(self, check: BudgetCheck, row: Row, since: int) -> None:
        async with aclosing(charges_in(self._store, row, since=since)) as found:
            async for event, usage in found:
                check.charge(source_of(event), event.at, usage, again=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._quietly(work), name="charges")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _quietly(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            with cancellable():
                await work
        except HoldfastError as error:  # a rebuild adds what is missing
            self._log.warning("charges_not_recovered", category="storage", error=error)

    def _schedule(self, seconds: float) -> None:
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._due)

    def _due(self) -> None:
        self._timer = None
        task = asyncio.create_task(self._flush(), name="write charges")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _flush(self) -> None:
        try:
            with cancellable():
                await self.sync()
        except Exception as error:  # the charges wait for the next attempt
            self._log.warning("charges_not_written", category="storage", error=error)
            self._schedule(RETRY)

    async def aclose(self) -> None:
        """Write the charges that wait. Call it after the last run has stopped."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._recovering is not None:
            await ended(self._recovering)
        await outcomes(*self._tasks)
        await self._flush()


class Current(NamedTuple):
    """The usage log of a budget in the current period, and the time (ms) until which it applies."""

    log: UsageLog
    key: Key
    since: int
    until: float


class BudgetCheck:
    """The budgets that apply to one session, for the driver of one of its threads."""

    def __init__(
        self, meter: Meter, budgets: list[Budget], whose: Mapping[str, str | None]
    ) -> None:
        self.meter, self._budgets, self._whose = meter, budgets, whose
        self._current: dict[tuple[str, str], Current] = {}

    def _log(self, budget: Budget, at: int) -> Current:
        place = (budget.scope, budget.per)
        known = self._current.get(place)
        if known is not None and known.since <= at < known.until:
            return known
        found = self._of(budget, at)
        self._current[place] = found
        return found

    def _of(self, budget: Budget, at: int) -> Current:
        who, end = self._whose[budget.scope], period_end(budget.per, at)
        assert who is not None, "a budget without a name does not apply"
        period = period_of(budget.per, at)
        log = UsageLog(scope=budget.scope, who=who, per=budget.per, period=period)
        until = float("inf") if end is None else end
        # At an earlier time the period may be another one: the clock may be set back.
        return Current(log, log.key(self.meter.tenant), at if end is not None else 0, until)

    def _logs(self, at: int) -> dict[Key, UsageLog]:
        return {now.key: now.log for now in (self._log(budget, at) for budget in self._budgets)}

    async def ready(self, at: int) -> None:
        """Read the usage again if it is not fresh, or if a budget seems to be used up, which an
        operator may have extended."""
        begun = asyncio.get_running_loop().time()
        keys = [*self._logs(at)]
        if not self.meter.fresh(keys):
            await self.meter.sync(keys)
        if self.stop(at) and not self.meter.fresh(keys, begun):
            await self.meter.sync(keys)

    def stop(self, at: int) -> Literal["run", "call"] | None:
        """Return what must not start because of a budget: a model call, or only a new run."""
        found: Literal["run", "call"] | None = None
        for budget in self._budgets:
            used = self.meter.counter(self._log(budget, at).key).total()
            for measure, share in shares(budget.limits, used):
                if share >= 1 and measure != "runs":
                    return "call"
                found = "run" if share >= 1 else found
        return found

    def reached(self, at: int) -> list[tuple[Budget, ReachedBudget]]:
        """Return the budgets that are used up, and how much they allow."""
        found: list[tuple[Budget, ReachedBudget]] = []
        for budget in self._budgets:
            now = self._log(budget, at)
            used = self.meter.counter(now.key).total()
            over = tuple(name for name, share in shares(budget.limits, used) if share >= 1)
            if over:
                limits = allowed(budget.limits, used)
                found.append((budget, ReachedBudget(log=now.log, measures=over, allowed=limits)))
        return found

    def warnings(self, at: int, more: Mapping[str, int]) -> list[tuple[str, str, float]]:
        """Return the limits that are nearly used up after `more`: budget, measure and share."""
        found: list[tuple[str, str, float]] = []
        for budget in self._budgets:
            used = self.meter.counter(self._log(budget, at).key).total(more)
            name = f"{budget.scope}/{budget.per}"
            found += (
                (name, measure, round(share, 4))
                for measure, share in shares(budget.limits, used)
                if share >= WARNING
            )
        return found

    def charge(self, source: str, at: int, usage: dict[str, int], *, again: bool = False) -> None:
        """Count the message or run `source`, which was logged at a time (ms). With `again`, it may
        have been counted before."""
        made, user = charge_of(source, usage), self._whose["user"]
        charges = ((key, Charge(log, user, made)) for key, log in self._logs(at).items())
        self.meter.add(charges, {} if again else usage)
