"""Judges notice a broken product: a sample of the mutations. `python -m tests.simulation.mutations`
tries all of them."""

from __future__ import annotations

import json

import pytest

from . import mutations

SAMPLE = (  # each is found within a few schedules
    *("no_dedup", "take_live_lease", "skip_probes", "forget_intent", "call_twice", "no_fence"),
    *("never_release", "lose_wakeups", "acknowledge_early"),
    *("forget_charges", "charge_twice", "ignore_budgets"),
)
SCHEDULES = 15
FIRST = {"skip_probes": 35}  # the first schedule that is tried, if the first ones do not find it


@pytest.mark.parametrize("name", SAMPLE)
def test_mutation_is_found(name: str) -> None:
    found = mutations.find(name, SCHEDULES, first=FIRST.get(name, 0))
    assert found.schedule is not None
    assert found.judge != "errors", found.problem


def test_unchanged_product_passes() -> None:
    found = mutations.find("none", 4)
    assert found.problem == ""


def test_there_are_enough_mutations() -> None:
    assert len({*mutations.MUTATIONS} - {*mutations.EQUIVALENT}) >= 30
    assert {*mutations.EQUIVALENT} <= {*mutations.MUTATIONS}


def test_command_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert mutations.main(["--most", "2", "call_twice"]) == 0
    assert "call_twice" in capsys.readouterr().out
    assert mutations.main(["--most", "2", "--json", "call_twice"]) == 0
    assert json.loads(capsys.readouterr().out)["judge"] == "effects"
    assert mutations.main(["--most", "2", "--markdown", "call_twice"]) == 0
    assert "| `call_twice` | every tool is called twice | 1 | plain | effects |" in (
        capsys.readouterr().out
    )
