"""Simulate an agent of your own: your tools and your model on a cluster that fails."""

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
    `model` makes the model of each process. Your tools record what they do outside with
    `record_effect`; `check` yields what is wrong with an outcome, in addition to the judges.

    Raises `AssertionError` with the story of the smallest failing scenario. Returns the outcomes.
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
    """The faults of a seed, and these messages instead of its users."""
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
