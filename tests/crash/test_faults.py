"""Full disks, damaged records, clocks that are wrong, and corners of a delete."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import HeadMoved, NewEvent, connect, key
from tests import forks

from .checks.clocks import skewed_races
from .checks.damage import corruptions, erasing_beside, headers
from .checks.full import full_disks
from .checks.indexes import index_removed
from .checks.removal import long_threads, receipts
from .places import KINDS

# A process that dies when its event is in the file of its log, and in no index yet.
DIES = """
import asyncio, os, sys
from holdfast import NewEvent, connect, key

async def main():
    store = await connect(sys.argv[1])
    written = store._payloads.committing
    store._payloads.committing = lambda conn: (written(conn), os._exit(0))
    await store.append(key("s"), [NewEvent.of("note.made", id="left")])

asyncio.run(main())
"""
BOTH = pytest.mark.parametrize("kind", KINDS)


@BOTH
def test_a_full_disk_refuses_and_nothing_is_half_written(kind: str, tmp_path: Path) -> None:
    assert full_disks(kind, tmp_path, disks=2, operations=40).problems == []


@pytest.mark.parity("user-demand", 40)
def test_a_damaged_record_costs_itself_alone(tmp_path: Path) -> None:
    assert corruptions(tmp_path, count=60).problems == []


@pytest.mark.parity("user-demand", 40)
def test_a_damaged_first_line_makes_no_session_that_never_was(tmp_path: Path) -> None:
    assert headers(tmp_path, every=7).problems == []


def test_a_damaged_event_keeps_no_other_from_being_erased(tmp_path: Path) -> None:
    assert erasing_beside(tmp_path).problems == []


def test_no_acknowledged_event_is_lost_when_the_index_is_removed(tmp_path: Path) -> None:
    outcome = index_removed(tmp_path, rounds=8, processes=2)
    assert outcome.problems == []
    assert outcome.counts["events acknowledged"]


@pytest.mark.parity("user-demand", 6)
@BOTH
def test_of_two_processes_with_wrong_clocks_one_wins(kind: str, tmp_path: Path) -> None:
    assert skewed_races(kind, tmp_path, rounds=50).problems == []


@BOTH
def test_a_deleted_thread_of_exactly_one_step_leaves_nothing(kind: str, tmp_path: Path) -> None:
    assert long_threads(kind, tmp_path).problems == []


@BOTH
def test_a_receipt_tells_nothing_of_another_tenant(kind: str, tmp_path: Path) -> None:
    assert receipts(kind, tmp_path).problems == []


async def test_a_refused_append_remembers_what_it_found_in_the_file(tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'f'}"
    async with connect(url) as store:
        await store.append(key("s"), [NewEvent.of("note.made", id="one")], create=True)
        await asyncio.to_thread(forks.run, "-c", DIES, url, check=True)
        await store.acquire(key("s"), "me")
        with pytest.raises(HeadMoved):
            await store.append(key("s"), [NewEvent.of("note.made")], expected=1)
        done = await store.append(key("s"), [NewEvent.of("note.made", id="two")])
        assert done.seqs == (3,)
        assert [event.id async for event in store.read(key("s"))] == ["one", "left", "two"]
