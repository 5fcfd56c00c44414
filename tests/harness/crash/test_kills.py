"""Kill the driver before and after its appends: the next process goes on, and nothing is lost,
doubled or repeated unasked."""

from __future__ import annotations

from pathlib import Path

import pytest

from .kills import kills

# Every append of the run, before and after it; on a server some of them, and all in the soak.
PLACES = {"sqlite": None, "postgres": 10}


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parity("harness-kernel", 95, 96)
@pytest.mark.parity("user-demand", 1, 2, 4, 5, 12, 13, 20, 31, 32, 70)
def test_a_run_survives_a_kill_at_any_append(kind: str, tmp_path: Path) -> None:
    found = kills(kind, tmp_path, count=PLACES[kind])
    print(found)
    assert found.problems == []
    assert found.counts["kills"] >= 10
    assert found.counts["unknown"] < found.counts["kills"] / 4


def test_a_run_survives_a_kill_at_its_other_writes(tmp_path: Path) -> None:
    methods = ("acquire", "release", "put_draft")
    found = kills("sqlite", tmp_path, methods=methods, count=7, twice=3, delay=0.1)
    assert found.problems == []
    assert found.counts["unknown"] <= found.counts["second kills"] * 2
