"""Simulated clusters: fixed and fresh seeds pass every judge, and a failure is reported well."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import pytest

from holdfast.harness.agents.config import Config
from holdfast.stores import rules
from holdfast.testing.simulation import draw, run, simulate, smallest, story
from holdfast.testing.simulation.loop import Runaway, Scheduler, new_loop
from holdfast.testing.simulation.scenario import Level, Scenario

from .directed import DIRECTED, detached, pinned
from .mutations import MUTATIONS

FIXED, FRESH = 40, 15  # schedules of each level; `scripts/soak` and `scripts/simulate` play more


@pytest.mark.parametrize("level", ["plain", "full"])
@pytest.mark.parametrize("part", range(4))
def test_fixed_seeds_pass_every_judge(level: Level, part: int) -> None:
    seeds = range(part * FIXED // 4, (part + 1) * FIXED // 4)
    report = run(map(str, seeds), level)
    assert report.failures == []
    assert report.schedules == len(seeds)
    assert sum(report.events) > 10 * len(seeds)
    assert sum(report.struck) > len(seeds)


@pytest.mark.parametrize("level", ["plain", "full"])
def test_fresh_seeds_pass_every_judge(level: Level) -> None:
    first = time.time_ns() // 1_000_000 % 1_000_000_000
    report = run(map(str, range(first, first + FRESH)), level)
    assert report.failures == [], f"play one with: scripts/simulate --level {level} --seed SEED"


@pytest.mark.parametrize("name", [None, "report_never"])
def test_each_detached_sub_agent_reports_once(name: str | None) -> None:
    """A few schedules; a judge finds it if none reports."""
    problems: list[str] = []
    reports = 0
    for seed in range(6):
        with MUTATIONS[name].apply() if name else nullcontext():
            outcome = simulate(detached(draw(str(seed))))
        problems += outcome.problems
        for log in outcome.payloads.values():
            reports += sum(getattr(payload, "thread", None) is not None for _, payload in log)
    if name is None:
        assert problems == []
        assert reports > 5
    else:
        assert any(problem.startswith("detached: ") for problem in problems)


@pytest.mark.parametrize("change", DIRECTED, ids=lambda change: change.__name__)
def test_directed_schedule_passes_every_judge(change: Callable[[Scenario], Scenario]) -> None:
    outcome = simulate(change(draw("1", "full")))
    assert outcome.problems == [], story(outcome)
    assert outcome.calls > 10


def test_a_pinned_run_that_another_version_continues_is_reported() -> None:
    with patch.object(Config, "pinned", lambda *_: False):
        outcome = simulate(pinned(draw("1", "full")))
    assert any(problem.startswith("pinned: ") for problem in outcome.problems)


def test_the_same_seed_gives_the_same_outcome() -> None:
    first, second = (simulate(draw("7", "full")) for _ in range(2))
    assert first.logs == second.logs
    assert first.effects == second.effects
    assert first.told == second.told


def test_a_failure_is_shrunk_and_told_as_a_story() -> None:
    take = rules.take_lease

    def greedy(row: Any, state: rules.LeaseState, owner: str, **options: Any) -> Any:
        return take(row, rules.LeaseState(state.token), owner, **options)

    with patch.object(rules, "take_lease", greedy):  # takes leases that are still held
        seeds = (str(n) for n in range(200))
        report = run(seeds, stop=lambda report: bool(report.failures))
        failure = report.failures[0]
        outcome = smallest(failure.seed)
    first = draw(failure.seed)
    assert outcome.problems
    assert len(outcome.scenario.faults) + len(outcome.scenario.steps) < len(first.faults) + len(
        first.steps
    )
    told = story(outcome)
    assert f"seed {failure.seed}" in told
    assert f"PROBLEM {outcome.problems[0]}" in told
    assert "message.received" in told


# Virtual time


def test_time_passes_only_in_the_simulation() -> None:
    scheduler = Scheduler()
    loop = new_loop(scheduler, "p")
    order: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        order.append((name, loop.time()))

    begun = time.monotonic()
    tasks = [loop.create_task(sleeper("b", 7200.0)), loop.create_task(sleeper("a", 3600.0))]
    assert scheduler.run(lambda: all(task.done() for task in tasks), limit=10_000.0)
    assert order == [("a", 3600.0), ("b", 7200.0)]
    assert time.monotonic() - begun < 3600


def test_a_killed_process_runs_nothing_any_more() -> None:
    scheduler = Scheduler()
    loop = new_loop(scheduler, "p")
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1.0)
            seen.append("went on")
        finally:
            seen.append("cleaned up")

    task = loop.create_task(work())
    scheduler.after(0.5, loop.kill)
    assert not scheduler.run(task.done, limit=10.0)
    assert seen == []
    loop.bury()


def test_a_paused_process_continues_where_it_was() -> None:
    scheduler = Scheduler()
    loop = new_loop(scheduler, "p")

    async def work() -> float:
        await asyncio.sleep(1.0)
        return loop.time()

    task = loop.create_task(work())
    scheduler.after(0.5, loop.pause)
    scheduler.after(5.0, loop.resume)
    assert scheduler.run(task.done, limit=10.0)
    assert task.result() == 5.0


def test_an_endless_loop_is_noticed() -> None:
    scheduler = Scheduler()
    loop = new_loop(scheduler, "p")

    async def spin() -> None:
        while True:  # noqa: ASYNC110 - it never ends, on purpose
            await asyncio.sleep(0)

    loop.create_task(spin())
    with pytest.raises(Runaway):
        scheduler.run(lambda: False, limit=1.0)
    loop.bury()
