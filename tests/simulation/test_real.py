"""The judges over real processes; `scripts/soak` has them over real servers too, and for longer."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.testing.simulation import draw, simulate
from holdfast.testing.simulation.outcome import Told

from .real import real, tally


@pytest.mark.slow
def test_workers_that_are_killed_on_a_disk_that_fills_pass_every_judge(tmp_path: Path) -> None:
    outcome = real("sqlite", tmp_path, seconds=0.0, processes=2, lanes=2)
    assert outcome.problems == []
    assert outcome.counts["acknowledged operations"] > 0
    assert outcome.counts["events appended again"] > 0


def test_operations_that_are_lost_or_doubled_are_counted() -> None:
    played = simulate(draw("7"))
    found = tally(played)
    assert found.acknowledged > 0
    assert (found.lost, found.doubled) == ([], [])
    effects = [effect for effect in played.effects if not effect.repeatable]
    assert effects
    told = Told("send", "s0", "never sent", 0.0, "done", run="r1")
    found = tally(replace(played, effects=[*effects, *effects], told=[told]))
    assert found.lost == [str(told)]
    assert found.doubled == [f"call {effect.call}" for effect in effects]
