"""Several processes go on while connections are cut and the server dies, only shorter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import servers

from . import checks


@pytest.mark.parity("user-demand", 38)
@pytest.mark.parametrize("kind", servers.KINDS)
def test_nothing_acknowledged_is_lost_or_doubled(kind: str, tmp_path: Path) -> None:
    outcome = checks.storm(kind, tmp_path, processes=2, sessions=4, seconds=2.0, restarts=1)
    assert outcome.problems == []
    assert outcome.counts["connections cut"] > 0
