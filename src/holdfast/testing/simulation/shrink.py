"""Shrinks a failing scenario: fewer faults, fewer steps, fewer processes, as long as it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec.structs import replace

from .scenario import Scenario

Fails = Callable[[Scenario], bool]


def shrink(scenario: Scenario, fails: Fails, most: int = 400) -> Scenario:
    """Return the smallest failing scenario found with at most `most` attempts."""
    tries = _Tries(fails, most)
    while True:
        before = scenario
        scenario = tries.fewer(scenario, "faults")
        scenario = tries.fewer(scenario, "steps")
        for processes in range(1, scenario.processes):
            if tries.fail(smaller := replace(scenario, processes=processes)):
                scenario = smaller
                break
        if scenario == before or not tries.left:
            return scenario


class _Tries:
    """Runs candidate scenarios, and counts them up to a maximum number of attempts."""

    def __init__(self, fails: Fails, most: int) -> None:
        self._fails, self.left = fails, most

    def fail(self, scenario: Scenario) -> bool:
        if not self.left:
            return False
        self.left -= 1
        return self._fails(scenario)

    def fewer(self, scenario: Scenario, part: Literal["faults", "steps"]) -> Scenario:
        """Remove groups of faults or steps of decreasing size, as long as the scenario still
        fails."""
        size = len(getattr(scenario, part))
        while size:
            start = 0
            while start < len(items := getattr(scenario, part)):
                smaller = replace(scenario, **{part: items[:start] + items[start + size :]})
                if self.fail(smaller):
                    scenario = smaller
                else:
                    start += size
            size //= 2
        return scenario
