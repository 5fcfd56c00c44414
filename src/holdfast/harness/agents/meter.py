"""Budgets in one process: usage that is read from usage logs and remembered, charges that are
written in batches off the path of a turn, and the check before each model call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Literal, NamedTuple

from ...cancellation import cancellable, ended
from ...environment import wall_clock
from ...errors import HoldfastError, StoreUnavailable
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
TRIES = 6  # attempts to find charges that were lost, each after twice the time of the one before
LAST = 60_000  # ms before the last run of another process from which its usage is counted again
LOST = 600  # seconds before the newest usage from which a start looks for charges that were lost
DAY = 86_400_000  # ms; every period begins with a day
KEPT = 10_000  # counters that are kept in memory


class Counter:
    """One usage log as this process knows it: the counters when it was last read, with the charges
    of this process that the log did not have then."""

    def __init__(self) -> None:
        self.total: Mapping[str, int] = {}
        self.read: float | None = None  # the loop's time

    def add(self, usage: Mapping[str, int]) -> None:
        self.total = {**self.total, **_sum(self.total, usage)}


class Written(NamedTuple):
    """A charge with the key of its log, and what the counter in memory includes of it."""

    key: Key
    charge: Charge
    usage: dict[str, int]


class Meter:
    """The budgets of one harness, and the usage of its tenant."""

    def __init__(self, budgets: Iterable[Budget], store: Store, tenant: str, log: BoundLog) -> None:
        self.budgets, self.tenant = tuple(budgets), tenant
        self._store, self._log = store, log
        self.version = 0  # rises when a counter changes
        self._counters: dict[Key, Counter] = {}
        self._checks: dict[tuple[str, str | None], BudgetCheck | None] = {}
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
        place = (session, user)
        if place not in self._checks:
            if len(self._checks) > KEPT:
                self._checks.clear()
            whose = {"session": session, "user": user, "tenant": self.tenant}
            found = effective(self.budgets, whose)
            self._checks[place] = BudgetCheck(self, found, whose) if found else None
        return self._checks[place]

    def counter(self, key: Key) -> Counter:
        return self._counters.setdefault(key, Counter())

    def add(self, key: Key, charge: Charge, usage: dict[str, int]) -> None:
        """Count a charge at once, and write it soon. With empty `usage`, it is only written,
        because the log may have it already."""
        if usage:
            self.counter(key).add(usage)
            self.version += 1
        self._waiting.append(Written(key, charge, usage))
        self._schedule(FLUSH)

    def fresh(self, keys: Iterable[Key], since: float) -> bool:
        """Return whether these counters were read after `since`."""
        known = (self._counters.get(key) for key in keys)
        return all(one is not None and one.read is not None and one.read >= since for one in known)

    async def sync(self, keys: Iterable[Key] = ()) -> None:
        """Write the charges that wait, and read the counters of these logs and of those that were
        written."""
        async with self._lock:
            self._unread += self._waiting
            batch, self._waiting = self._waiting, []
            try:
                await write(self._store, self.tenant, (one.charge for one in batch))
            except BaseException:
                del self._unread[len(self._unread) - len(batch) :]
                self._waiting = [*batch, *self._waiting]
                raise
            wanted = dict.fromkeys([*keys, *(one.key for one in self._unread if one.usage)])
            if wanted:
                begun = asyncio.get_running_loop().time()
                rows = await self._store.rows([*wanted])
                self._read(dict(zip(wanted, rows, strict=True)), begun)
                self._forget(wanted)
            self._unread.clear()

    def _read(self, rows: Mapping[Key, Row | None], begun: float) -> None:
        """Take over counters that were read, and add the charges that still wait."""
        for key, row in rows.items():
            counter = self.counter(key)
            counter.total, counter.read = {} if row is None else row.usage, begun
        for one in self._waiting:
            if one.key in rows:
                self.counter(one.key).add(one.usage)
        self.version += 1

    def _forget(self, wanted: Collection[Key]) -> None:
        if len(self._counters) > KEPT:
            kept = {one.key for one in self._waiting} | {*wanted}
            self._counters = {k: one for k, one in self._counters.items() if k in kept}

    # In the background

    def start(self) -> None:
        """Write the charges that a crashed process may have lost."""
        self._recovering = self._begin(self._recover)

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
            self._begin(lambda: self._again(check, row, run.at - LAST))

    async def _again(self, check: BudgetCheck, row: Row, since: int) -> None:
        async with aclosing(charges_in(self._store, row, since=since)) as found:
            async for event, usage in found:
                check.charge(source_of(event), event.at, usage, again=True)

    def _begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._patiently(work), name="charges")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _patiently(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do `work`, again while the store is unavailable. What is still missing, a rebuild
        adds."""
        for n in range(TRIES):
            try:
                with cancellable():
                    await work()
                return
            except HoldfastError as error:
                self._log.warning("charges_not_recovered", category="storage", error=error)
                if self._closed or not isinstance(error, StoreUnavailable):
                    return
            await asyncio.sleep(RETRY * 2**n)

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
        _, late = await asyncio.wait(self._tasks, timeout=RETRY) if self._tasks else ((), ())
        await ended(*late)
        await self._flush()


class Current(NamedTuple):
    """The usage logs of a session's budgets in the current periods, one for each scope and period,
    and the times (ms) between which they apply."""

    logs: dict[Key, UsageLog]
    budgets: list[tuple[Budget, UsageLog, Key]]
    since: int
    until: float


class BudgetCheck:
    """The budgets that apply to one session, for the driver of one of its threads."""

    def __init__(
        self, meter: Meter, budgets: list[Budget], whose: Mapping[str, str | None]
    ) -> None:
        self.meter, self._budgets, self._whose = meter, budgets, whose
        self._current = self._at(wall_clock())
        self._stop: tuple[int, Current, Literal["run", "call"] | None] | None = None

    def _now(self, at: int) -> Current:
        if not self._current.since <= at < self._current.until:
            self._current = self._at(at)
        return self._current

    def _at(self, at: int) -> Current:
        found: list[tuple[Budget, UsageLog, Key]] = []
        ends = [period_end(budget.per, at) for budget in self._budgets]
        for budget in self._budgets:
            who = self._whose[budget.scope]
            assert who is not None, "a budget without a name does not apply"
            log = UsageLog(
                scope=budget.scope, who=who, per=budget.per, period=period_of(budget.per, at)
            )
            found.append((budget, log, log.key(self.meter.tenant)))
        until = min((end for end in ends if end is not None), default=float("inf"))
        since = at - at % DAY if until < float("inf") else 0
        return Current({key: log for _, log, key in found}, found, since, until)

    async def ready(self, at: int) -> None:
        """Read the usage again if it is not fresh, or if a budget seems to be used up, which an
        operator may have extended."""
        begun = asyncio.get_running_loop().time()
        keys = self._now(at).logs
        if not self.meter.fresh(keys, begun - FRESH):
            await self.meter.sync(keys)
        if self.stop(at) and not self.meter.fresh(keys, begun):
            await self.meter.sync(keys)

    def stop(self, at: int) -> Literal["run", "call"] | None:
        """Return what must not start because of a budget: a model call, or only a new run."""
        now, known = self._now(at), self._stop
        if known is None or known[0] != self.meter.version or known[1] is not now:
            known = self._stop = (self.meter.version, now, self._found(now))
        return known[2]

    def _found(self, now: Current) -> Literal["run", "call"] | None:
        found: Literal["run", "call"] | None = None
        for budget, _, key in now.budgets:
            for measure, share in shares(budget.limits, self.meter.counter(key).total):
                if share >= 1 and measure != "runs":
                    return "call"
                found = "run" if share >= 1 else found
        return found

    def reached(self, at: int) -> list[tuple[Budget, ReachedBudget]]:
        """Return the budgets that are used up, and how much they allow."""
        found: list[tuple[Budget, ReachedBudget]] = []
        for budget, log, key in self._now(at).budgets:
            used = self.meter.counter(key).total
            over = tuple(name for name, share in shares(budget.limits, used) if share >= 1)
            if over:
                limits = allowed(budget.limits, used)
                found.append((budget, ReachedBudget(log=log, measures=over, allowed=limits)))
        return found

    def warnings(self, at: int, more: Mapping[str, int]) -> list[tuple[str, str, float]]:
        """Return the limits that are nearly used up after `more`: budget, measure and share."""
        found: list[tuple[str, str, float]] = []
        for budget, _, key in self._now(at).budgets:
            used = self.meter.counter(key).total
            for measure, share in shares(budget.limits, {**used, **_sum(used, more)}):
                if share >= WARNING:
                    found.append((f"{budget.scope}/{budget.per}", measure, round(share, 4)))
        return found

    def charge(self, source: str, at: int, usage: dict[str, int], *, again: bool = False) -> None:
        """Count the message or run `source`, which was logged at a time (ms). With `again`, it may
        have been counted before."""
        made, user = charge_of(source, usage), self._whose["user"]
        logs = (self._at(at) if again else self._now(at)).logs
        for key, log in logs.items():
            self.meter.add(key, Charge(log, user, made), {} if again else usage)


def _sum(used: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {name: used.get(name, 0) + count for name, count in more.items()}
