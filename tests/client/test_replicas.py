"""Two servers in processes of their own, on one PostgreSQL: cut, restarted, killed and switched
while sessions stream. `python -m tests.soak --only "server"` does the same a thousand times."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from .checks import storm


@pytest.mark.parity("user-demand", 25, 29, 30)
@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parity("computeragent", 75, 81)
async def test_readers_miss_nothing_and_nothing_happens_twice(tmp_path: Path) -> None:
    check = partial(storm, sessions=4, cuts=20, restarts=1, kills=1, pause=0.1)
    outcome = await asyncio.to_thread(check, "postgres", tmp_path)
    assert outcome.problems == []
    assert outcome.counts["cuts"] == 20
    assert outcome.counts["messages answered"] >= 4
    assert outcome.counts["messages read as they were said"] >= 4
