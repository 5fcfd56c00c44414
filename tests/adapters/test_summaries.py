"""What listings show: the SDK's fold over the log, and times that rise with every write."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from claude_agent_sdk import fold_session_summary, list_sessions_from_store
from hypothesis import given
from hypothesis import strategies as st

from holdfast import NewEvent, Query, Store, StoreUnavailable
from holdfast.adapters.claude import ClaudeSessionStore, summaries
from holdfast.adapters.claude.summaries import fold
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import Fail, FaultyStore, Stall

from .words import entry, key, mtime, summary, title

parity = pytest.mark.parity


async def folded(sessions: ClaudeSessionStore) -> Any:
    """The SDK's fold over the whole transcript, as the log has it."""
    entries: Any = await sessions.load(key())
    return fold_session_summary(None, key(), entries)["data"]


async def head(store: Store) -> int:
    return (await store.find(Query())).items[0].head


@parity("computeragent", 20)
async def test_a_summary_follows_the_main_transcript_alone(sessions: ClaudeSessionStore) -> None:
    await sessions.append(key(), [title("first", "a"), entry("b", cwd="/x", gitBranch="main")])
    await sessions.append(key(), [title("second", "c")])
    assert (await summary(sessions))["custom_title"] == "second"
    assert await summary(sessions) == await folded(sessions)
    before = await sessions.list_session_summaries("p")
    await sessions.append(key(sub="subagents/agent-1"), [title("sub-agent")])
    assert await sessions.list_session_summaries("p") == before
    await sessions.delete(key())
    assert await sessions.list_session_summaries("p") == []


@parity("computeragent", 20)
async def test_a_listing_reads_rows_alone(store: Store) -> None:
    watched = FaultyStore(store)
    sessions = ClaudeSessionStore(watched)
    for name in ("a", "b", "c"):
        await sessions.append(key(name), [title(name)])
    watched.calls.clear()
    assert len(await sessions.list_session_summaries("p")) == 3
    assert len(await sessions.list_sessions("p")) == 3
    assert dict(watched.calls) == {"find": 2}


async def test_both_lists_tell_the_same_times(sessions: ClaudeSessionStore) -> None:
    for name in ("a", "b", "a"):
        await sessions.append(key(name), [title(name)])
    plain = await sessions.list_sessions("p")
    whole = await sessions.list_session_summaries("p")
    assert [(s["session_id"], s["mtime"]) for s in whole] == [
        (s["session_id"], s["mtime"]) for s in plain
    ]


async def test_the_sdk_lists_sessions_without_loading_any(
    store: Store, tmp_path_factory: pytest.TempPathFactory
) -> None:
    watched = FaultyStore(store)
    sessions = ClaudeSessionStore(watched, aliases=lambda project: "p")
    for name in ("a", "b"):
        await sessions.append(key(name), [entry(message={"content": f"hello {name}"})])
    watched.calls.clear()
    listed = await list_sessions_from_store(sessions, str(tmp_path_factory.mktemp("cwd")))
    assert {item.summary for item in listed} == {"hello a", "hello b"}
    assert "read" not in watched.calls


@pytest.mark.parametrize("room", [False, True])
async def test_a_summary_that_has_no_room_in_a_row_is_kept_all_the_same(
    store: Store, room: bool
) -> None:
    watched = FaultyStore(store)
    sessions = ClaudeSessionStore(watched)
    if room:  # but others have taken it
        await sessions.append(key(), [entry("a")])
        row = (await store.find(Query())).items[0]
        fill = NewEvent.of("metadata.changed", {"set": {"filled": "x" * 14_000}})
        await store.append(row.key, [fill])
    long = "long " * (400 if room else 10_000)
    await sessions.append(key(), [title(long)])
    assert (await summary(sessions))["custom_title"] == long
    await sessions.append(key(), [entry("b", gitBranch="main")])
    assert await summary(sessions) == await folded(sessions)
    watched.calls.clear()
    before = await mtime(sessions)
    assert dict(watched.calls) == {"find": 1}
    await sessions.append(key(), [title("short")])
    assert (await summary(sessions))["custom_title"] == "short"
    assert await mtime(sessions) > before


@pytest.mark.parametrize("text", ["mine", "mine " * 10_000], ids=["short", "long"])
async def test_events_of_others_do_not_disturb_a_summary(
    sessions: ClaudeSessionStore, store: Store, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sessions.append(key(), [entry(n=n) for n in range(50)])
    await sessions.append(key(), [title(text, "a")])
    before = await sessions.list_session_summaries("p")
    row = (await store.find(Query())).items[0]
    await store.append(row.key, [NewEvent.of("label.added", {"label": "vip"})])
    with monkeypatch.context() as patch:
        patch.setattr(summaries, "fold", None)  # nothing of the log is folded again
        assert await sessions.list_session_summaries("p") == before
    await sessions.append(key(), [entry("b", gitBranch="main")])
    assert await summary(sessions) == await folded(sessions)
    assert await mtime(sessions) > before[0]["mtime"]


# A batch of which some entries are known


async def test_known_entries_of_a_batch_are_not_folded_again(
    sessions: ClaudeSessionStore, store: Store
) -> None:
    await sessions.append(key(), [title("old", "a"), title("new", "b")])
    await sessions.append(key(), [title("old", "a"), entry("c")])
    assert await summary(sessions) == await folded(sessions)
    assert (await summary(sessions))["custom_title"] == "new"
    row = (await store.find(Query())).items[0]
    assert row.metadata["claude"]["at"] == row.head


@pytest.mark.parametrize("error", [StoreUnavailable(problem="x"), KeyboardInterrupt()])
async def test_a_note_that_took_known_entries_for_new_is_not_believed(
    store: Store, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty = FaultyStore(store)
    sessions = ClaudeSessionStore(faulty)
    await sessions.append(key(), [entry(n=n) for n in range(50)])
    await sessions.append(key(), [title("old", "a"), title("new", "b")])
    # It dies when the entries are stored, before the note is put right.
    faulty.plan = [Fail(method="append", call=faulty.calls["append"] + 3, error=error)]
    with suppress(KeyboardInterrupt):
        await sessions.append(key(), [title("old", "a"), entry("c")])
    row = (await store.find(Query())).items[0]
    assert row.metadata["claude"]["at"] != row.head
    fresh = ClaudeSessionStore(store)
    folds: list[Any] = []

    def counted(*arguments: Any) -> Any:
        folds.append(arguments)
        return fold(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(summaries, "fold", counted)
        assert await summary(fresh) == await folded(fresh)
    assert len(folds) == 1  # of the one entry that was new
    before = await mtime(fresh)
    await fresh.append(key(), [entry("d")])
    assert await summary(fresh) == await folded(fresh)
    assert await mtime(fresh) > before


LOGS = st.lists(
    st.lists(
        st.tuples(st.sampled_from([None, "a", "b", "c", "d", "e"]), st.integers(0, 9)),
        min_size=1,
        max_size=5,
    ),
    max_size=8,
)


@given(LOGS, st.lists(st.integers(-5, 5), min_size=8, max_size=8))
async def test_however_entries_come_the_summary_is_the_fold_and_times_rise(
    batches: list[list[tuple[str | None, int]]], ticks: list[int]
) -> None:
    now = 1_800_000_000_000
    sessions = ClaudeSessionStore(MemoryStore(clock=lambda: now))
    last = size = 0
    for batch, tick in zip(batches, ticks, strict=False):
        now += tick
        await sessions.append(key(), [title(str(text), uuid) for uuid, text in batch])
        after, time = await sessions.size(key()), await mtime(sessions)
        assert (time > last) if after > size else (time == last)
        last, size = time, after
        assert await summary(sessions) == await folded(sessions)


# Times


async def test_times_rise_though_the_clock_stands_still_or_goes_back() -> None:
    now = 1_800_000_000_000
    store = MemoryStore(clock=lambda: now)
    times = []
    for step in (0, 0, 0, -5_000, 0, 1, 10_000, 0):
        now += step
        sessions = ClaudeSessionStore(store)  # another process, as it were
        await sessions.append(key(), [entry()])
        times.append(await mtime(sessions))
    assert times == sorted(set(times))
    assert times[:3] == [1_800_000_000_000, 1_800_000_000_001, 1_800_000_000_002]
    assert times[6] == 1_800_000_005_001


@parity("computeragent", 32)
async def test_a_batch_of_known_entries_changes_nothing(
    sessions: ClaudeSessionStore, store: Store
) -> None:
    await sessions.append(key(), [title("one", "a"), entry("b")])
    await sessions.append(key(), [title("two", "c")])
    before = await sessions.list_session_summaries("p"), await head(store)
    for batch in (["a"], ["b", "a"], ["a", "b", "c"], ["c", "c"]):
        await sessions.append(key(), [title("again", uuid) for uuid in batch])
        assert (await sessions.list_session_summaries("p"), await head(store)) == before


async def test_a_sub_agent_does_not_touch_the_time(sessions: ClaudeSessionStore) -> None:
    await sessions.append(key(), [entry("a")])
    before = await mtime(sessions)
    await sessions.append(key(sub="x"), [entry("a")])
    await sessions.delete(key(sub="x"))
    assert await mtime(sessions) == before


async def test_appends_at_once_keep_their_order_and_all_count(sessions: ClaudeSessionStore) -> None:
    appends = (sessions.append(key(), [title(str(n), f"u{n}"), entry(n=n)]) for n in range(20))
    await asyncio.gather(*appends)
    loaded: Any = await sessions.load(key())
    assert [e["n"] for e in loaded if "n" in e] == list(range(20))
    assert await summary(sessions) == await folded(sessions)


async def test_an_append_waits_for_the_one_before(store: Store) -> None:
    stall = Stall(method="append")
    sessions = ClaudeSessionStore(FaultyStore(store, [stall]))
    first = asyncio.create_task(sessions.append(key(), [entry(n=1)]))
    async with asyncio.timeout(30):
        await stall.reached.wait()
    second = asyncio.create_task(sessions.append(key(), [entry(n=2)]))
    await sessions.append(key("other"), [entry(n=3)])  # which waits for nobody
    stall.go.set()
    await asyncio.gather(first, second)
    assert await sessions.load(key()) == [entry(n=1), entry(n=2)]


@pytest.mark.parametrize("begun", [True, False])
async def test_a_writer_that_comes_second_makes_its_summary_again(
    store: Store, begun: bool
) -> None:
    other = ClaudeSessionStore(store)
    if begun:
        await other.append(key(), [title("one", "a")])
    stall = Stall(method="append")
    sessions = ClaudeSessionStore(FaultyStore(store, [stall]))
    task = asyncio.create_task(sessions.append(key(), [entry(gitBranch="x")]))
    async with asyncio.timeout(30):
        await stall.reached.wait()
    await other.append(key(), [title("two", "b")])
    before = await mtime(other)
    stall.go.set()
    await task
    row = (await store.find(Query())).items[0]
    assert row.metadata["claude"]["at"] == row.head
    assert await summary(sessions) == await folded(sessions)
    assert (await summary(sessions))["custom_title"] == "two"
    assert await mtime(sessions) > before
