"""Stores that earlier versions wrote still open, say what they said, and go on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Key, LeaseHeld, LeaseLost, NewEvent, SessionMoved, Store
from holdfast.events import KINDS
from holdfast.store import Lease, wall_clock

from .write import FACTS, MOVED, STORES, copy, describe, open_store, write

HERE = Path(__file__).parent
CORPORA = sorted(path.parent for path in HERE.glob("*/expected.json"))
CASES = [(corpus, case) for corpus in CORPORA for case in (*STORES, "file, index rebuilt")]


class Kept:
    """One store of a corpus, opened at the time at which it was written."""

    def __init__(self, store: Store, expected: Any, *, whole: bool) -> None:
        self.store = store
        self.names = expected["names"]
        self.says = expected["says"]
        self.whole = whole
        self.now: int = self.names["now"]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0].name} {case[1]}")
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Kept, None]:
    corpus, case = request.param
    kind, _, rebuilt = case.partition(", ")
    expected = msgspec.json.decode((corpus / "expected.json").read_bytes())[kind]
    copy(corpus / STORES[kind], tmp_path / STORES[kind])
    if rebuilt:
        (tmp_path / "store" / "index.db").unlink()
    kept: Kept
    store = await open_store(kind, tmp_path, lambda: kept.now)
    kept = Kept(store, expected, whole=not rebuilt)
    yield kept
    await store.aclose()


def test_there_is_a_corpus() -> None:
    assert CORPORA


async def verified(store: Store) -> list[Any]:
    return [damage async for damage in store.verify()]


@pytest.mark.parity("user-demand", 49)
@pytest.mark.parity("harness-kernel", 111)
async def test_it_says_what_it_said(kept: Kept) -> None:
    assert await verified(kept.store) == []
    found = await describe(kept.store, kept.names, whole=kept.whole)
    if kept.whole:
        assert found == kept.says
    else:
        for log in kept.says["logs"]:
            del log["drafts"], log["snapshots"]
        assert _uncounted(found) == _uncounted(kept.says)
    assert await verified(kept.store) == []


def _uncounted(said: Any) -> Any:
    """What a store says, without `erased` of rows: a row that was written before there was this
    field has it only when it was rebuilt."""
    if isinstance(said, list):
        return [_uncounted(one) for one in said]
    if not isinstance(said, dict):
        return said
    kept = {name: _uncounted(value) for name, value in said.items()}
    if "head" in kept:
        kept.pop("erased", None)
    return kept


@pytest.mark.parity("user-demand", 49)
@pytest.mark.parity("harness-kernel", 111)
async def test_its_logs_go_on(kept: Kept) -> None:
    for log in kept.says["logs"]:
        name = msgspec.convert(log["key"], Key)
        head, sealed = log["row"]["head"], log["row"].get("sealed")
        known = NewEvent.of("note.made", id=log["events"][-1]["id"])
        assert (await kept.store.append(name, [known])).seqs == (head,)
        new = NewEvent.of("note.made", {"n": 1}, id="new")
        if sealed is not None:
            with pytest.raises(SessionMoved):
                await kept.store.append(name, [new])
        else:
            assert (await kept.store.append(name, [new])).seqs == (head + 1,)
            await kept.store.fork(name, f"of-{name.thread}", at=head, first=new)
    assert await verified(kept.store) == []


async def test_its_lease_is_known(kept: Kept) -> None:
    if not kept.whole:
        return  # leases are in the index alone: it is gone only when nobody has the folder open
    lease = msgspec.convert(kept.names["lease"], Lease)
    with pytest.raises(LeaseHeld):
        await kept.store.acquire(lease.key, "another")
    if "mark" in kept.names:  # otherwise written before there were marks
        again = await kept.store.acquire(lease.key, lease.owner, mark=kept.names["mark"])
        assert again.token == lease.token
    await kept.store.append(lease.key, [NewEvent.of("note.made", id="held")], fence=lease)
    kept.now = wall_clock()
    newer = await kept.store.acquire(lease.key, "another")
    assert newer.token > lease.token
    with pytest.raises(LeaseLost):
        await kept.store.append(lease.key, [NewEvent.of("note.made", id="lost")], fence=lease)


async def test_what_is_written_today_has_every_kind(tmp_path: Path) -> None:
    await write(tmp_path / "corpus")
    expected = msgspec.json.decode((tmp_path / "corpus" / "expected.json").read_bytes())
    for kind in STORES:
        logs = expected[kind]["says"]["logs"]
        kinds = {event["kind"] for log in logs for event in log["events"]}
        assert kinds >= set(KINDS)
        events = logs[0]["events"]
        assert [event["kind"] for event in events] == [kind for kind, _ in FACTS]
        assert [event["data"] for event in events[:22]] == [data for _, data in FACTS[:22]]
        assert events[22]["data"]["size"] > 64 << 10
        assert events[-1]["data"] == {"erased": "asked to"}
        (moved,) = [log for log in logs if msgspec.convert(log["key"], Key) == MOVED]
        assert moved["row"]["sealed"] == "https://example.org"
