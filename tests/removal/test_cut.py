"""A removal, a restore or a fork that is cut at any step was carried out or was not, and the
next one finishes it: a worker kills itself before a change of a file or a commit, here before four
of them, in `scripts/soak` before each."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import StoreUnavailable
from holdfast.stores.file.recovery import Recovery
from tests.crash.checks.cuts import cuts
from tests.crash.places import KINDS, PLACES, open_at

MEMORY = Path("/dev/shm")  # a killed process leaves what it wrote there as on a disk, sooner


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK):
        with tempfile.TemporaryDirectory(dir=MEMORY) as name:
            yield Path(name)
    else:
        yield tmp_path


@pytest.mark.parity("user-demand", 52)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("do", ["delete", "delete_main", "erase", "restore", "fork", "purge"])
def test_what_is_cut_is_finished_by_the_next(kind: str, do: str, folder: Path) -> None:
    outcome = cuts(kind, folder, do, count=4)
    # A run may have fewer steps than the one before, by a folder that is there already; then it
    # comes to its end and is judged like the others.
    assert [each for each in outcome.problems if "was not cut" not in each] == []
    assert outcome.counts["cuts"] >= 1


async def test_a_recovery_that_is_cut_is_done_by_the_next_who_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await open_at("file", tmp_path)).aclose()
    (tmp_path / PLACES["file"] / "open" / "left by the dead").touch()
    recoveries = []

    def recover(self: Recovery, conn: object) -> None:
        recoveries.append(self)
        if len(recoveries) == 1:
            raise OSError("the power went")

    monkeypatch.setattr(Recovery, "recover", recover)
    with pytest.raises(StoreUnavailable):
        await open_at("file", tmp_path)
    await (await open_at("file", tmp_path)).aclose()
    assert len(recoveries) == 2
    await (await open_at("file", tmp_path)).aclose()
    assert len(recoveries) == 2, "once is enough"
