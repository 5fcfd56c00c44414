"""Several processes use the same sessions at once; the same checks run longer in `tests.soak`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import shared

from . import checks
from .checks import Stage, run_on, stage
from .places import SHARED
from .places import shared as place_of

parity = pytest.mark.parity
TABLE = "agent-assistant-sessions"


@pytest.fixture(scope="module", params=SHARED)
def crowd(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """Four processes on one store, for all checks of this kind."""
    place = place_of(request.param, tmp_path_factory.mktemp("crowd"))
    shared.used.discard(place)  # it is needed for more than one test
    with stage(request.param, place) as on:
        yield on
    if "://" in place:
        shared.used.add(place)


@parity(TABLE, 31, 36)
def test_a_hundred_changes_of_one_session_are_all_kept(crowd: Stage) -> None:
    assert run_on(crowd, checks.changes, attaches=52, updates=48).problems == []


@parity(TABLE, 68)
@parity("user-demand", 75)
def test_a_new_person_is_one_session(crowd: Stage) -> None:
    assert run_on(crowd, checks.contacts, rounds=1, calls=50).problems == []


@parity(TABLE, 44)
def test_a_touched_session_is_never_suspended_after_it(crowd: Stage) -> None:
    assert run_on(crowd, checks.sweeps, rounds=30).problems == []


def test_four_sweepers_suspend_each_session_once(crowd: Stage) -> None:
    assert run_on(crowd, checks.sweepers, sessions=20).problems == []


def test_a_session_that_ends_under_many_hands_ends_coherently(crowd: Stage) -> None:
    assert run_on(crowd, checks.endings, rounds=15).problems == []
