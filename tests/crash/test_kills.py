"""Kill a writer at random moments; nothing acknowledged is lost, nothing is half there."""

from __future__ import annotations

from pathlib import Path

import pytest

from .checks.kills import kills
from .checks.survivors import survivors
from .places import KINDS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parity("user-demand", 23)
@pytest.mark.parity("harness-kernel", 108)
def test_what_was_acknowledged_survives_kills_at_random_moments(kind: str, tmp_path: Path) -> None:
    assert kills(kind, tmp_path, count=6).problems == []


@pytest.mark.parametrize("kind", KINDS)
def test_who_had_the_store_open_goes_on_rightly(kind: str, tmp_path: Path) -> None:
    assert survivors(kind, tmp_path, count=10).problems == []
