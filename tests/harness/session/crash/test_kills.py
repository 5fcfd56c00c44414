"""A session of many parts is killed at its writes: the next process shows what the last one showed,
and what is answered there brings it to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from .kills import kills


@pytest.mark.parametrize(("kind", "count"), [("sqlite", 14), ("postgres", 4)])
@pytest.mark.parity("mastra-session", 94, 182, 183)
def test_the_next_process_shows_the_same_and_finishes(
    kind: str, count: int, tmp_path: Path
) -> None:
    found = kills(kind, tmp_path, count=count, sides=(True,))
    assert found.problems == []
    assert found.counts["kills"] >= count - 1
    assert found.counts["views"] >= count - 2  # before the session is open there is none
