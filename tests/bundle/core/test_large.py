"""Large bundles take little memory; the same check runs with 200 MB and 2 GB in `tests.soak`."""

from __future__ import annotations

from pathlib import Path

from .checks import large


def test_memory_does_not_grow_with_the_bundle(tmp_path: Path) -> None:
    outcome = large(tmp_path, megabytes=8, limit=64)
    assert outcome.problems == []
    assert outcome.counts["MB of archive"] >= 5
