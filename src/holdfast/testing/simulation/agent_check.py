"""Simulates your own agent, with your tools and your model, on a cluster with injected faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from ...harness import Agent
from .judges import judge
from .outcome import SimulationOutcome
from .scenario import Scenario, Step, draw
from .shrink import shrink
from .simulation import Simulation
from .story import story

Check = Callable[[SimulationOutcome], Iterator[str]]


def check_agent(
    agent: Agent,
    model: Callable[[], Any],
    messages: Sequence[str],
    *,
    schedules: int = 100,
    seed: int = 0,
    check: Check | None = None,
) -> list[SimulationOutcome]:
    """Send `messages` to sessions of `agent`, in `schedules` simulations with different faults.
    `model` creates the model of each process. Your tools record their external effects with
    `record_effect`. `check` yields the problems that it finds in an outcome, in addition to the
    problems that the judges find.

    Returns the outcomes. Raises `AssertionError` with the timeline of the smallest failing scenario
    that was found.
    """
    outcomes = []
    for n in range(seed, seed + schedules):
        scenario = _scenario(str(n), messages)
        outcome = _play(scenario, agent, model, check)
        if outcome.problems:
            small = shrink(scenario, lambda s: bool(_play(s, agent, model, check).problems), 100)
            raise AssertionError(story(_play(small, agent, model, check)))
        outcomes.append(outcome)
    return outcomes


def _scenario(seed: str, messages: Sequence[str]) -> Scenario:
    """Return the scenario of a seed, with its user actions replaced by these messages."""
    drawn = draw(seed)
    sessions = max(1, len({step.session for step in drawn.steps}))
    steps = [
        Step(
            at=round(0.1 + n * drawn.ends / (2 * len(messages)), 3),
            action="send",
            session=f"s{n % sessions}",
            tag=f"m{n}",
            text=text,
            place=n % drawn.processes,
        )
        for n, text in enumerate(messages)
    ]
    return replace(drawn, steps=tuple(steps))


def _play(
    scenario: Scenario, agent: Agent, model: Callable[[], Any], check: Check | None
) -> SimulationOutcome:
    outcome = Simulation(scenario, agents=[agent], model=model).play()
    outcome.problems.extend(judge(outcome))
    if check is not None:
        outcome.problems.extend(check(outcome))
    return outcome
