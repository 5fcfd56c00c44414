"""Several processes use one store at once, as they would on a busy machine, only shorter."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..crash.places import KINDS, SHARED
from . import checks

# What is new on each round costs more on a server.
OPENS = {"postgres": 3, "mongodb": 3}

pytestmark = pytest.mark.parametrize("kind", [*KINDS, *SHARED])


@pytest.mark.parity("user-demand", 37)
def test_processes_that_open_a_fresh_store_at_once_all_succeed(kind: str, tmp_path: Path) -> None:
    assert checks.opens(kind, tmp_path, rounds=OPENS.get(kind, 5)).problems == []


@pytest.mark.parity("user-demand", 37)
@pytest.mark.parity("harness-kernel", 109)
def test_a_crowd_that_appends_loses_and_doubles_nothing(kind: str, tmp_path: Path) -> None:
    assert checks.crowd(kind, tmp_path, appends=15).problems == []


@pytest.mark.parity("user-demand", 6)
@pytest.mark.parity("harness-kernel", 109)
def test_of_two_processes_that_expect_one_head_one_wins(kind: str, tmp_path: Path) -> None:
    assert checks.race(kind, tmp_path, rounds=50).problems == []


@pytest.mark.parity("harness-kernel", 109)
def test_a_frozen_holder_writes_nothing_after_a_takeover(kind: str, tmp_path: Path) -> None:
    assert checks.frozen(kind, tmp_path, rounds=2).problems == []


@pytest.mark.parity("user-demand", 9)
def test_a_message_at_the_moment_of_release_is_driven(kind: str, tmp_path: Path) -> None:
    assert checks.handover(kind, tmp_path, rounds=50).problems == []


@pytest.mark.parity("user-demand", 37)
def test_ids_that_overlap_are_stored_once(kind: str, tmp_path: Path) -> None:
    assert checks.overlap(kind, tmp_path, appends=15).problems == []


def test_followers_see_every_event_of_all_processes_once(kind: str, tmp_path: Path) -> None:
    assert checks.follow(kind, tmp_path, appends=15).problems == []
