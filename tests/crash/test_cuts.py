"""An operation that is cut at any of its steps was carried out or was not. Those that remove
something are in `tests/removal`."""

from __future__ import annotations

from pathlib import Path

import pytest

from .checks.cuts import cuts, opening_cuts
from .checks.leases import OPERATIONS, leases
from .places import KINDS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("do", ["append", "create", "put_blob", "claim", "delete_far"])
def test_what_is_cut_was_carried_out_or_was_not(kind: str, do: str, tmp_path: Path) -> None:
    assert cuts(kind, tmp_path, do, count=4).problems == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("do", OPERATIONS)
def test_a_lease_is_cut_together_with_its_append(kind: str, do: str, tmp_path: Path) -> None:
    assert cuts(kind, tmp_path, do, count=None).problems == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_survivor_finds_a_lease_together_with_its_append(kind: str, tmp_path: Path) -> None:
    assert leases(kind, tmp_path).problems == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_whose_making_was_cut_opens(kind: str, tmp_path: Path) -> None:
    assert opening_cuts(kind, tmp_path, count=6).problems == []
