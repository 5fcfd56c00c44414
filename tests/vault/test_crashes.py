"""Processes that race, freeze and die on encrypted stores, as on the others, only shorter."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..crash.checks.kills import kills
from ..harness.crash import faults as harness_faults
from ..harness.crash import kills as harness_kills
from ..processes import checks

SQLITE, FILE, POSTGRES, MONGODB = (
    f"{kind}+vault" for kind in ("sqlite", "file", "postgres", "mongodb")
)
ALL = (SQLITE, FILE, POSTGRES, MONGODB)

pytestmark = pytest.mark.parity("user-demand", 64)


@pytest.mark.parametrize("kind", [SQLITE, FILE])
def test_what_was_acknowledged_survives_kills_at_random_moments(kind: str, tmp_path: Path) -> None:
    assert kills(kind, tmp_path, count=4).problems == []


@pytest.mark.parametrize("kind", ALL)
def test_processes_that_open_a_fresh_store_at_once_all_succeed(kind: str, tmp_path: Path) -> None:
    assert checks.opens(kind, tmp_path, rounds=2).problems == []


@pytest.mark.parametrize("kind", [SQLITE, POSTGRES])
def test_a_crowd_that_appends_loses_and_doubles_nothing(kind: str, tmp_path: Path) -> None:
    assert checks.crowd(kind, tmp_path, appends=6).problems == []


@pytest.mark.parametrize("kind", [SQLITE, POSTGRES])
def test_of_two_processes_that_expect_one_head_one_wins(kind: str, tmp_path: Path) -> None:
    assert checks.race(kind, tmp_path, rounds=30).problems == []


@pytest.mark.parametrize("kind", [SQLITE, POSTGRES])
def test_a_message_at_the_moment_of_release_is_driven(kind: str, tmp_path: Path) -> None:
    assert checks.handover(kind, tmp_path, rounds=30).problems == []


@pytest.mark.parametrize("kind", [SQLITE, POSTGRES])
def test_ids_that_overlap_are_stored_once(kind: str, tmp_path: Path) -> None:
    assert checks.overlap(kind, tmp_path, appends=10).problems == []


def test_followers_see_every_event_of_all_processes_once(tmp_path: Path) -> None:
    assert checks.follow(POSTGRES, tmp_path, appends=10).problems == []


@pytest.mark.parametrize("kind", [SQLITE, POSTGRES])
def test_a_run_survives_a_kill_at_its_appends(kind: str, tmp_path: Path) -> None:
    found = harness_kills.kills(kind, tmp_path, count=10)
    assert found.problems == []
    assert found.counts["kills"] >= 5


def test_a_run_survives_a_kill_at_its_other_writes(tmp_path: Path) -> None:
    methods = ("acquire", "release", "put_draft")
    found = harness_kills.kills(SQLITE, tmp_path, methods=methods, count=5, delay=0.1)
    assert found.problems == []
    assert found.counts["kills"] >= 3


def test_a_store_that_fails_costs_nothing(tmp_path: Path) -> None:
    found = harness_faults.store_errors(SQLITE, tmp_path, every=6)
    assert found.problems == []
    assert found.counts["failures"] >= 4
