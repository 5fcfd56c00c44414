"""At `durability=machine` an fsync stands between each write and its acknowledgement, and what
was acknowledged survives a power cut.

With strace this is seen in the system calls themselves. Without it only `audited` runs, which
sees what the file store calls from Python and how SQLite's writer is set.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .checks.traces import audited, fsyncs, power_cuts
from .places import KINDS
from .trace import STRACE


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_acknowledged_before_it_is_synced_as_the_worker_sees_it(
    kind: str, tmp_path: Path
) -> None:
    assert audited(kind, tmp_path, operations=40).problems == []


if STRACE is not None:

    @pytest.mark.parametrize("kind", KINDS)
    def test_an_fsync_stands_between_each_write_and_its_acknowledgement(
        kind: str, tmp_path: Path
    ) -> None:
        assert fsyncs(kind, tmp_path, operations=30).problems == []

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parity("user-demand", 23)
    def test_what_was_acknowledged_survives_a_power_cut(kind: str, tmp_path: Path) -> None:
        assert power_cuts(kind, tmp_path, operations=50, count=50).problems == []
