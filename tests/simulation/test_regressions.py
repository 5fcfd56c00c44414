"""Scenarios that once failed, shrunk, as data. Each file is named after its defect."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast.testing.simulation import Scenario, simulate, story

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.json"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_that_once_failed_passes(path: Path) -> None:
    outcome = simulate(msgspec.json.decode(path.read_bytes(), type=Scenario))
    assert outcome.problems == [], story(outcome)
