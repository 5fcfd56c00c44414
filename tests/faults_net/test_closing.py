"""A close ends, whatever becomes of the connection on which the store listens."""

from __future__ import annotations

from pathlib import Path

from .closing import WAYS, killed_listeners


def test_a_close_ends_while_the_listening_connection_dies(tmp_path: Path) -> None:
    outcome = killed_listeners("postgres", tmp_path, rounds=len(WAYS))
    assert outcome.problems == []
    assert outcome.counts["closes"] == len(WAYS)
