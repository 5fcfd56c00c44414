"""Trio callers, on their own and under anyio."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio
from claude_agent_sdk._internal.transcript_mirror_batcher import TranscriptMirrorBatcher

from holdfast import (
    CaughtUp,
    Event,
    HeadMoved,
    NewEvent,
    WrongLoop,
    connect,
    environment,
    key,
    shared_store,
    sync,
)
from holdfast.adapters.claude import ClaudeSessionStore
from holdfast.portal import LoopThread
from holdfast.stores.memory import MemoryStore
from holdfast.stores.portal import PortalStore

from .elsewhere import until
from .test_stores import Slow

KEY = key("s")
Work = Callable[[], Coroutine[Any, Any, None]]
RUNS: dict[str, Callable[[Work], Any]] = {
    "trio": trio.run,
    "anyio": lambda work: anyio.run(work, backend="trio"),
}


def note(n: int) -> NewEvent:
    return NewEvent.of("note.made", {"n": n}, id=f"note-{n}")


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest) -> Callable[[Work], Any]:
    return RUNS[request.param]


def test_trio_uses_a_shared_store(run: Callable[[Work], Any], tmp_path: Path) -> None:
    async def work() -> None:
        async with shared_store(f"sqlite:{tmp_path}/x.db") as store:
            await store.append(KEY, [note(n) for n in range(1_000)], create=True)
            assert [event.seq async for event in store.read(KEY)] == [*range(1, 1_001)]
            with pytest.raises(HeadMoved):
                await store.append(KEY, [note(1_000)], expected=7)

    run(work)


def test_trio_opens_a_store_with_a_portal_and_copies_within_it(run: Callable[[Work], Any]) -> None:
    async def work() -> None:
        async with connect("memory:", portal=True) as store:
            await store.append(KEY, [note(n) for n in range(900)], create=True)
            await store.restore(key("copy"), store.read(KEY))
            row = await store.row(key("copy"))
            assert row is not None
            assert row.head == 900

    run(work)


def test_trio_follows_while_a_thread_appends(run: Callable[[Work], Any]) -> None:
    async def work() -> None:
        async with shared_store("memory:") as store:
            await store.append(KEY, [note(0)], create=True)
            plain = sync.Store(store)
            async with aclosing(store.follow(KEY)) as items:
                assert isinstance(await anext(items), Event)
                assert isinstance(await anext(items), CaughtUp)
                for n in range(1, 4):
                    await trio.to_thread.run_sync(plain.append, KEY, [note(n)])
                    found = await anext(items)
                    assert isinstance(found, Event)
                    assert found.seq == n + 1

    run(work)


def test_a_cancelled_scope_leaves_an_append_whole_and_closes_a_follower() -> None:
    inner = Slow()
    portal = LoopThread("owner")
    store = PortalStore(inner, portal)

    async def work() -> None:
        with trio.move_on_after(0.05) as scope:
            await store.append(KEY, [note(0)], create=True)
        assert scope.cancelled_caught
        assert inner.reached.is_set()
        inner.go.set()
        await until(lambda: KEY in inner._logs, trio.sleep)
        with trio.move_on_after(0.05):
            async with aclosing(store.follow(KEY)) as items:
                async for _ in items:
                    pass
        await until(lambda: not inner._wakes, trio.sleep)

    trio.run(work)
    portal.stop()
    assert inner.cancelled == 0


def test_context_variables_travel_from_trio() -> None:
    class Late(environment.Environment):
        def time_ns(self) -> int:
            return 2_000_000_000_000_000_000

    async def work() -> None:
        async with shared_store("memory:") as store:
            with environment.use(Late()):
                await store.append(KEY, [note(0)], create=True)
            assert [event.at async for event in store.read(KEY)] == [2_000_000_000_000]

    trio.run(work)


def test_trio_without_a_portal_is_told_of_it() -> None:
    async def work() -> None:
        with pytest.raises(WrongLoop, match="shared_store"):
            await MemoryStore().row(KEY)

    trio.run(work)


def test_the_flush_of_the_claude_sdk_works_under_trio(tmp_path: Path) -> None:
    errors: list[Any] = []

    async def failed(*told: Any) -> None:
        errors.append(told)

    async def work() -> None:
        sessions = ClaudeSessionStore(f"sqlite:{tmp_path}/x.db")
        batcher = TranscriptMirrorBatcher(
            store=sessions, projects_dir=str(tmp_path), on_error=failed, max_pending_entries=5
        )
        entries: list[Any] = [{"type": "user", "uuid": f"u{n}"} for n in range(20)]
        for entry in entries:  # flushes in the background, too
            batcher.enqueue(str(tmp_path / "p" / "s.jsonl"), [entry])
        await batcher.flush()
        await batcher.close()
        assert await sessions.load({"project_key": "p", "session_id": "s"}) == entries
        listed = await sessions.list_sessions("p")
        assert [session["session_id"] for session in listed] == ["s"]
        await sessions.close()

    anyio.run(work, backend="trio")
    assert errors == []


def test_asyncio_and_trio_share_a_store_at_once() -> None:
    heads: list[int] = []

    async def work(first: int) -> None:
        async with shared_store("memory:") as store:
            for n in range(first, first + 50):
                done = await store.append(KEY, [note(n)], create=True)
                heads.append(done.head)

    with sync.Store("memory:") as held:
        backends = ["trio", "asyncio", "trio", "asyncio"]
        threads = [
            threading.Thread(target=anyio.run, args=(work, 100 * n), kwargs={"backend": backend})
            for n, backend in enumerate(backends)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert held.row(KEY).head == 200
    assert sorted(heads) == [*range(1, 201)]
