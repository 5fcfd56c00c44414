"""Entries as they come from elsewhere: late, in any order, more than once. Nothing is lost, nothing
is there twice, and no session is made of nothing."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from claude_agent_sdk import SessionKey, SessionStoreEntry

from holdfast import Store
from holdfast.adapters import retries
from holdfast.adapters.claude import ClaudeSessionStore
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import Fail, FaultyStore

from .words import entry, key

MAIN, SUB = key(), key(sub="subagents/agent-1")


def said(uuid: str, parent: str | None, type: str = "assistant") -> SessionStoreEntry:
    return entry(uuid, type=type, parentUuid=parent, message={"content": uuid})


START = [said("start", None, "system"), said("one", "start", "user")]
MIDDLE = [said("two", "one"), said("three", "two", "user")]
END = [said("four", "three")]
AGENT = [said("sub-1", None, "user"), said("sub-2", "sub-1")]
BATCHES: list[tuple[SessionKey, list[SessionStoreEntry]]] = [
    *((MAIN, batch) for batch in (START, MIDDLE, END)),
    (SUB, AGENT),
]


async def whole(sessions: ClaudeSessionStore) -> None:
    """All that was sent is there, once, and in one session."""
    main, sub = await sessions.load(MAIN), await sessions.load(SUB)
    assert main is not None
    assert sorted(str(entry) for entry in main) == sorted(map(str, [*START, *MIDDLE, *END]))
    assert sub == AGENT
    assert await sessions.sessions() == [("p", "s")]
    assert [row["session_id"] for row in await sessions.list_sessions("p")] == ["s"]


@pytest.mark.parity("computeragent", "S29", "S30")
async def test_in_whatever_order_they_come_nothing_is_lost() -> None:
    for order in itertools.permutations(BATCHES):
        sessions = ClaudeSessionStore(MemoryStore())
        for at, batch in order:
            await sessions.append(at, [])
            await sessions.append(at, batch)
        for at, batch in order:
            await sessions.append(at, batch)
        await whole(sessions)


@pytest.mark.parity("computeragent", "S29")
async def test_what_comes_before_the_beginning_stands_where_it_came(
    sessions: ClaudeSessionStore,
) -> None:
    await sessions.append(MAIN, END)
    assert await sessions.load(MAIN) == END
    await sessions.append(MAIN, START)
    assert await sessions.load(MAIN) == [*END, *START]
    assert await sessions.sessions() == [("p", "s")]


@pytest.mark.parity("computeragent", "S29")
async def test_nothing_that_came_makes_no_session(sessions: ClaudeSessionStore) -> None:
    for at in (MAIN, SUB):
        await sessions.append(at, [])
        assert await sessions.load(at) is None
    assert await sessions.sessions() == []
    assert await sessions.list_sessions("p") == []


@pytest.mark.parity("computeragent", "S30")
async def test_batches_that_come_at_once_and_twice_are_stored_once(store: Store) -> None:
    senders = [ClaudeSessionStore(store) for _ in range(3)]
    overlapping = [(MAIN, [*START, *MIDDLE]), (MAIN, [*MIDDLE, *END])]
    sent = [*BATCHES, *overlapping] * 2
    await asyncio.gather(
        *(senders[n % len(senders)].append(at, batch) for n, (at, batch) in enumerate(sent))
    )
    await whole(senders[0])


@pytest.mark.parity("computeragent", "S30")
@pytest.mark.parametrize("after", [True, False], ids=["reply lost", "request lost"])
async def test_a_batch_that_failed_and_is_sent_by_another_is_stored_once(
    store: Store, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "PAUSE", 0.001)
    faults = [Fail(method="append", call=call, after=after) for call in (1, 2, 3)]
    first = ClaudeSessionStore(FaultyStore(store, faults))
    for at, batch in reversed(BATCHES):
        try:
            await first.append(at, batch)
        except Exception:
            await ClaudeSessionStore(store).append(at, batch)
    await whole(first)
