"""A reply that is lost, a request that never arrives: what is sent again is stored once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Appended, HoldfastError, Store, StoreUnavailable
from holdfast.adapters import retries
from holdfast.adapters.claude import ClaudeSessionStore
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faults import Fail, Fault, FaultyStore, Stall

from .words import entry, key, summary, title

KEYS = pytest.mark.parametrize("at", [key(), key(sub="subagents/agent-1")], ids=["main", "sub"])
BATCH = [title("x", "a"), entry(n=1), entry(n=1), entry("b")]


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "PAUSE", 0.001)


def failing(calls: range, method: str = "append", *, after: bool) -> list[Fault]:
    return [Fail(method=method, call=call, after=after) for call in calls]


@KEYS
@pytest.mark.parametrize("call", [1, 2, 3])
async def test_a_batch_whose_reply_was_lost_is_stored_once(
    store: Store, at: Any, call: int
) -> None:
    sessions = ClaudeSessionStore(FaultyStore(store, failing(range(call, call + 1), after=True)))
    await sessions.append(at, BATCH)
    await sessions.append(at, [entry("c"), entry()])
    assert await sessions.load(at) == [*BATCH, entry("c"), entry()]


@KEYS
@pytest.mark.parametrize("after", [True, False])
async def test_a_batch_that_the_caller_sends_again_is_stored_once(
    store: Store, at: Any, after: bool
) -> None:
    faulty = FaultyStore(store, failing(range(1, 4), after=after))
    sessions = ClaudeSessionStore(faulty)
    with pytest.raises(StoreUnavailable):
        await sessions.append(at, BATCH)
    assert faulty.calls["append"] == 3
    await sessions.append(at, list(BATCH))
    assert await sessions.load(at) == BATCH
    # The same again after a success is another batch.
    await sessions.append(at, BATCH)
    assert await sessions.size(at) == len(BATCH) + 2


class Riding(MemoryStore):
    """A store that sends each append again by itself, as after a reply that was lost."""

    async def append(self, *args: Any, **kwargs: Any) -> Appended:
        await super().append(*args, **kwargs)
        return await super().append(*args, **kwargs)


async def test_a_session_of_a_sub_agent_alone_is_found_after_a_lost_reply() -> None:
    sessions = ClaudeSessionStore(Riding())
    await sessions.append(key(sub="subagents/agent-1"), [entry("a")])
    assert await sessions.sessions() == [("p", "s")]


@KEYS
async def test_another_batch_after_a_failure_is_another_batch(store: Store, at: Any) -> None:
    sessions = ClaudeSessionStore(FaultyStore(store, failing(range(1, 4), after=False)))
    with pytest.raises(StoreUnavailable):
        await sessions.append(at, [entry(n=1)])
    await sessions.append(at, [entry(n=2)])
    await sessions.append(at, [entry(n=1)])
    await sessions.append(at, [entry(n=1)])
    assert await sessions.load(at) == [entry(n=2), entry(n=1), entry(n=1)]


@pytest.mark.parity("user-demand", 35)
@KEYS
async def test_the_entries_with_a_uuid_are_stored_once_whoever_sends_them_again(
    store: Store, at: Any
) -> None:
    dying = ClaudeSessionStore(FaultyStore(store, failing(range(1, 99), after=True)))
    with pytest.raises(StoreUnavailable):
        await dying.append(at, BATCH)
    await ClaudeSessionStore(store).append(at, BATCH)
    loaded: Any = await ClaudeSessionStore(store).load(at)
    assert [e["uuid"] for e in loaded if "uuid" in e] == ["a", "b"]


@KEYS
async def test_a_batch_whose_caller_gave_up_can_be_sent_again(store: Store, at: Any) -> None:
    stall = Stall(method="append", after=True)
    sessions = ClaudeSessionStore(FaultyStore(store, [stall]))
    task = asyncio.create_task(sessions.append(at, BATCH))
    async with asyncio.timeout(30):
        await stall.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await sessions.append(at, BATCH)
    assert await sessions.load(at) == BATCH


async def test_a_batch_in_pieces_goes_on_where_it_failed(store: Store) -> None:
    batch = [entry(n=n) for n in range(2_500)]
    faulty = FaultyStore(store, failing(range(2, 5), after=False))
    sessions = ClaudeSessionStore(faulty)
    with pytest.raises(StoreUnavailable):
        await sessions.append(key(), batch)
    await sessions.append(key(), batch)
    assert await sessions.load(key()) == batch


@pytest.mark.parametrize(
    ("method", "ask"),
    [
        ("read", lambda s: s.load(key())),
        ("read", lambda s: s.size(key())),
        ("find", lambda s: s.list_sessions("p")),
        ("find", lambda s: s.list_session_summaries("p")),
        ("find", lambda s: s.list_subkeys(key())),
        ("delete", lambda s: s.delete(key())),
        ("row", lambda s: s.append(key(), [entry("b")])),
    ],
)
async def test_a_question_is_asked_again_and_then_answered(
    store: Store, method: str, ask: Any
) -> None:
    faulty = FaultyStore(store)
    sessions = ClaudeSessionStore(faulty)
    await sessions.append(key(), [entry("a")])
    before = faulty.calls[method]
    faulty.plan = failing(range(before + 1, before + 3), method, after=False)
    await ask(sessions)
    assert faulty.calls[method] >= before + 3
    faulty.plan = failing(range(0, 999), method, after=False)
    with pytest.raises(HoldfastError):
        await ask(sessions)


async def test_a_session_that_is_deleted_under_an_append_begins_anew(store: Store) -> None:
    stall = Stall(method="append", call=2)
    faulty = FaultyStore(store, [stall])
    sessions = ClaudeSessionStore(faulty)
    await sessions.append(key(), [title("old", "a")])
    task = asyncio.create_task(sessions.append(key(), [entry("b", gitBranch="x")]))
    async with asyncio.timeout(30):
        await stall.reached.wait()
    await ClaudeSessionStore(store).delete(key())
    stall.go.set()
    await task
    assert await sessions.load(key()) == [entry("b", gitBranch="x")]
    assert "custom_title" not in await summary(sessions)
