"""An abort, and a failing store, at the appends of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from .faults import aborts, store_errors

EVERY = {"sqlite": 1, "postgres": 5}


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parity("user-demand", 2, 5)
def test_an_abort_at_any_append_leaves_a_whole_conversation(kind: str, tmp_path: Path) -> None:
    found = aborts(kind, tmp_path, every=EVERY[kind])
    assert found.problems == []
    assert found.counts["aborts"] >= 4


@pytest.mark.parity("user-demand", 24)
@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parity("harness-kernel", 113, 114)
def test_a_store_that_fails_at_any_append_costs_nothing(kind: str, tmp_path: Path) -> None:
    found = store_errors(kind, tmp_path, every=3 * EVERY[kind])
    assert found.problems == []
    assert found.counts["failures"] >= 4


def test_a_store_that_fails_at_its_other_writes_costs_nothing(tmp_path: Path) -> None:
    found = store_errors(
        "sqlite", tmp_path, methods=("acquire", "release", "put_draft"), every=5, delay=0.1
    )
    assert found.problems == []
