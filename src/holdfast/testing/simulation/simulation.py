"""One simulation: runs a scenario on a cluster and collects the outcome."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from ...errors import HoldfastError
from ...harness import Agent, Harness, LogConfig
from ...redact import Redactor
from ...values.budgets import Budget
from .cluster import Cluster, SimulatedProcess
from .faults import InjectedFault, Strike
from .judges import judge
from .loop import Runaway, coroutine_name
from .outcome import SimulationOutcome
from .scenario import Scenario
from .users import Users
from .workload import OTHER_MODEL, SUMMARISERS, ProgramModel, make_agent, price

QUIET = LogConfig(level="silent", propagate=False, redact=Redactor())
SETTLING = 300.0  # seconds in which all work must finish after the last fault
LOOK = 0.5  # seconds between two rounds of the operator

AGENTS = [make_agent(1), make_agent(2)]  # before and after an upgrade


class Simulation:
    """Runs a scenario on a cluster, and collects the outcome."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        agents: list[Agent] | None = None,
        model: Callable[[], Any] = ProgramModel,
    ) -> None:
        self.scenario = scenario
        self.agents, self._model = agents or AGENTS, model
        self.cluster = Cluster(scenario.seed)
        self.cluster.crashed = self._crashed
        self.cluster.server.lease_with_append = scenario.lease_with_append
        self.users = Users(self.cluster, self.fault, self.deleted)
        self.problems: list[str] = []
        self.gone: dict[str, None] = {}  # sessions that users deleted
        self.versions: dict[str, str] = {}  # of the agents, by process
        self._versions = [*scenario.versions, *[0] * scenario.processes][: scenario.processes]

    def fault(self, error: BaseException) -> None:
        """Record an exception that should not have occurred."""
        self.problems.append(f"unexpected {type(error).__name__}: {error}")

    def deleted(self, session: str) -> None:
        self.gone[session] = None

    # Processes

    def _start(self, place: int) -> None:
        rates = self.scenario.rates
        process = self.cluster.start(place, rate=rates[place] if place < len(rates) else 1.0)
        process.spawn(self._serve(process), name="serve")

    async def _serve(self, process: SimulatedProcess) -> None:
        scenario = self.scenario
        agent = self.agents[self._versions[process.place] % len(self.agents)]
        self.versions[process.name] = agent.version
        while True:
            harness = Harness(
                agent,
                default_model=self._model(),
                providers=[ProgramModel(OTHER_MODEL)],
                window_turns=self.scenario.turns,
                summarise=SUMMARISERS.get(scenario.summarise or "", scenario.summarise),
                fallback_models=[OTHER_MODEL] if scenario.fallback else [],
                parallel_recovery=scenario.slots,
                store=process.store,
                ttl=self.scenario.ttl,
                recovery=self.scenario.recovery,
                logging=QUIET,
                price=price,
                budgets=_budgets(scenario),
                trace=False,
                versions="pin" if scenario.pin else "float",
            )
            try:
                await harness.start()
            except HoldfastError:
                await asyncio.sleep(0.2)
            else:
                process.server = harness
                return

    def _crashed(self, process: SimulatedProcess, why: str = "tool_crash") -> None:
        """Handle a process that a tool crashed, or that crashed right after a write. It is
        restarted half a second later."""
        self.cluster.faults.struck(why, 1.0, process.place)
        self.cluster.end(process)
        self.cluster.scheduler.after(0.5, lambda: self._restarted(process))

    def _restarted(self, process: SimulatedProcess) -> None:
        if self.cluster.places[process.place] is process:
            self._start(process.place)

    # Faults

    def _strike(self, fault: InjectedFault) -> None:
        cluster = self.cluster
        process = cluster.places[fault.place % len(cluster.places)]
        if fault.kind == "server_clock":
            cluster.faults.struck("server_clock", -fault.value + self.scenario.ttl)
            # From now on, times in the log differ from the times of the simulation.
            cluster.faults.strikes.append(
                Strike(cluster.scheduler.now + 2 * fault.value, math.inf, "server_clock")
            )
            cluster.server.set_back(fault.value)
        elif fault.kind not in ("crash", "pause", "restart", "clock"):
            cluster.faults.begin(fault)
        elif process.dead:
            return
        elif fault.kind == "crash":
            cluster.faults.struck("crash", fault.value + self.scenario.ttl, process.place)
            cluster.end(process)
            cluster.scheduler.after(fault.value, lambda: self._restarted(process))
        elif fault.kind == "pause":
            cluster.faults.struck("pause", fault.value, process.place)
            process.loop.pause()
            cluster.scheduler.after(fault.value, process.loop.resume)
        elif fault.kind == "clock":
            cluster.faults.struck("clock", self.scenario.ttl, process.place)
            process.skew += fault.value
        else:
            cluster.faults.struck("restart", 10.0, process.place)
            process.spawn(self._shut_down(process, fault.value))

    async def _shut_down(self, process: SimulatedProcess, wait: float) -> None:
        harness, process.server = process.server, None
        if harness is None:
            return
        self._versions[process.place] += 1
        with contextlib.suppress(HoldfastError):
            await harness.aclose(grace=1.0)
        self.cluster.scheduler.after(0.0, lambda: self.cluster.end(process))
        self.cluster.scheduler.after(wait, lambda: self._restarted(process))

    # Playing

    def play(self) -> SimulationOutcome:
        """Run the scenario to its end, and return the outcome."""
        collecting = gc.isenabled()
        gc.disable()  # the times of collections would depend on the version of Python
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            self._play()
            return self.outcome()
        finally:
            self.users.loop.bury()
            self.cluster.bury()
            sys.unraisablehook = hook
            if collecting:
                gc.enable()

    def _play(self) -> None:
        try:
            self._play_all()
        except Runaway as error:
            self.problems.append(f"endless: {error}")

    def _play_all(self) -> None:
        scenario, scheduler = self.scenario, self.cluster.scheduler
        for place in range(scenario.processes):
            self._start(place)
        for step in scenario.steps:
            scheduler.at(step.at, lambda step=step: self.users.perform(step))  # type: ignore[misc]
        for fault in scenario.faults:
            scheduler.at(fault.at, lambda fault=fault: self._strike(fault))  # type: ignore[misc]
        scheduler.run(lambda: False, scenario.ends)
        self.cluster.faults.clear()
        self._correct_clocks()
        kinds = {version % 2 for version in self._versions}
        if kinds == {1} or (kinds == {0} and scenario.pin):
            # Restart one process with the other version: open calls may need its own tool, and
            # pinned runs need all versions.
            process = self.cluster.places[0]
            if process.dead or process.server is None:
                self._versions[0] += 1  # it is about to start again
            else:
                now = scheduler.now
                strike = Strike(now, now + 2.0, "restart", process.place)
                self.cluster.faults.strikes.append(strike)
                process.spawn(self._shut_down(process, 0.1))
        scheduler.run(lambda: False, self.cluster.faults.last)
        limit = scheduler.now + SETTLING
        self._look()
        if not scheduler.run(self.settled, limit):
            self.problems.append(
                f"not settled {SETTLING:.0f} s after the last fault: {self.open()}"
            )

    def _correct_clocks(self) -> None:
        for process in self.cluster.places:
            if process.skew:
                process.skew = 0.0
                now = self.cluster.scheduler.now
                strike = Strike(now, now + self.scenario.ttl, "clock", process.place)
                self.cluster.faults.strikes.append(strike)

    def _look(self) -> None:
        """Let the operator decide the pending items now, and again every `LOOK` seconds."""
        if not self.users.busy or len(self.users.busy) < 50:
            self.users.settle_all()
        self.cluster.scheduler.after(LOOK, self._look)

    def settled(self) -> bool:
        """Return whether all work is done and all users have received their replies."""
        waiting = [t for t in self.users.busy if t.get_coro().__name__ != "_settle_all"]  # type: ignore[union-attr]
        return not waiting and not self.open()

    def open(self) -> list[str]:
        """Return the logs that have unfinished work."""
        found = []
        for key, log in self.cluster.server._logs.items():
            row = log.row
            if row.run in ("running", "waiting") or row.due is not None or row.pending:
                found.append(f"{key.session}/{key.thread} {row.run} due={row.due}")
        return found

    def outcome(self) -> SimulationOutcome:
        server = self.cluster.server
        logs = {key: [*log.events] for key, log in server._logs.items()}
        for process in (*self.cluster.gone, *self.cluster.places):
            for context in process.loop.errors:
                task = context.get("task") or context.get("future")
                where = f" ({coroutine_name(task)})" if isinstance(task, asyncio.Task) else ""
                said = f"{context.get('message')}{where}: {context.get('exception')!r}"
                self.problems.append(f"{process.name}: {said}")
        return SimulationOutcome(
            scenario=self.scenario,
            logs=logs,
            rows={key: log.row for key, log in server._logs.items()},
            effects=self.cluster.effects.all,
            told=self.users.told,
            readings=self.users.readings,
            faults=self.cluster.faults.counts,
            checks=Counter(self.cluster.server.watch.checks),
            problems=[*self.problems, *self.cluster.server.watch.problems],
            deleted=[*self.gone],
            strikes=self.cluster.faults.strikes,
            texts=self.cluster.server.watch.texts,
            drafts={key: [*log.drafts] for key, log in server._logs.items() if log.drafts},
            tools=[each for agent in self.agents for each in agent.tools],
            seconds=self.cluster.scheduler.now,
            calls=self.cluster.network.calls,
            versions=self.versions,
        )


def _budgets(scenario: Scenario) -> list[Budget]:
    return [] if scenario.budget is None else [Budget(scope="tenant", tokens=scenario.budget)]


def simulate(scenario: Scenario) -> SimulationOutcome:
    """Run a scenario, and return its outcome with the problems that the checks found."""
    outcome = Simulation(scenario).play()
    outcome.problems.extend(judge(outcome))
    return outcome
