"""Several event loops, threads and processes that use one store at the same time."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    CaughtUp,
    Event,
    HeadMoved,
    InvalidValue,
    NewEvent,
    StoreError,
    StoreUnavailable,
    WrongLoop,
    connect,
    environment,
    key,
    shared_store,
    sync,
)
from holdfast.environment import Environment
from holdfast.portal import Portal, process_portal
from holdfast.stores.memory import MemoryStore
from holdfast.stores.paging import PAGE_EVENTS
from holdfast.stores.portal import BATCH_BYTES, PortalStore
from holdfast.testing.faults import FaultyStore

from .elsewhere import collected, owned_elsewhere, until

KEY = key("s")


def note(n: int, **about: Any) -> NewEvent:
    return NewEvent.of("note.made", {"n": n}, id=f"note-{n}", **about)


async def begin(store: Any, count: int = 1) -> None:
    await store.append(KEY, [note(n) for n in range(count)], create=True)


# Many callers


@pytest.mark.parametrize("url", ["memory:", "sqlite:{place}/x.db"])
async def test_loops_and_threads_append_to_one_log_at_once(url: str, tmp_path: Path) -> None:
    async with connect(url.format(place=tmp_path), portal=True) as store:
        assert isinstance(store, PortalStore)
        plain = sync.Store(store)
        await begin(store)

        async def appends(who: int) -> None:
            for n in range(20):
                await store.append(KEY, [note(100 * who + n)])

        def appends_plainly(who: int) -> None:
            for n in range(20):
                plain.append(KEY, [note(100 * who + n)])

        with ThreadPoolExecutor(8) as threads:
            loop = asyncio.get_running_loop()
            others = [
                loop.run_in_executor(threads, asyncio.run, appends(who)) for who in range(1, 4)
            ]
            others += [loop.run_in_executor(threads, appends_plainly, who) for who in range(4, 7)]
            await asyncio.gather(appends(7), *others)
        events = [event async for event in store.read(KEY)]
        assert [event.seq for event in events] == [*range(1, 142)]
        assert len({event.id for event in events}) == 141


async def test_a_follower_on_another_loop_gets_each_event_promptly() -> None:
    store = PortalStore(MemoryStore())
    await begin(store, count=3)
    got: list[Any] = []
    heard = threading.Event()

    async def followed() -> None:
        async with aclosing(store.follow(KEY)) as items:
            async for item in items:
                got.append(item)
                heard.set()
                if len(got) == 9:
                    return

    following = asyncio.create_task(asyncio.to_thread(asyncio.run, followed()))
    while not any(isinstance(item, CaughtUp) for item in got):
        await asyncio.to_thread(heard.wait, 5)
    for n in range(3, 8):
        before = len(got)
        heard.clear()
        await store.append(KEY, [note(n)])
        assert await asyncio.to_thread(heard.wait, 5)
        assert len(got) == before + 1
    await following
    assert [item.seq for item in got if isinstance(item, Event)] == [*range(1, 9)]


async def test_a_follower_of_a_loop_hears_appends_of_a_thread() -> None:
    async with owned_elsewhere(MemoryStore()) as store:
        await begin(store)
        plain = sync.Store(store)
        async with aclosing(store.follow(KEY, after=1)) as items:
            assert isinstance(await anext(items), CaughtUp)
            await asyncio.to_thread(plain.append, KEY, [note(1)])
            assert (await anext(items)).seq == 2  # type: ignore[union-attr]


async def test_a_call_makes_a_task_only_from_elsewhere() -> None:
    class Watched(MemoryStore):
        async def claims(self, owner: Any) -> list[str]:
            seen.append((asyncio.get_running_loop(), asyncio.current_task()))
            return []

    seen: list[tuple[Any, Any]] = []
    store = PortalStore(Watched())
    await store.claims(KEY.scope)
    await asyncio.to_thread(asyncio.run, store.claims(KEY.scope))
    here = asyncio.get_running_loop(), asyncio.current_task()
    assert seen[0] == here
    assert (seen[1][0], seen[1][1] is here[1]) == (here[0], False)


# What comes back


async def test_errors_come_back_as_they_were_raised() -> None:
    async with owned_elsewhere(MemoryStore()) as store:
        await begin(store)
        with pytest.raises(HeadMoved) as caught:
            await store.append(KEY, [note(1)], expected=7)
        assert (caught.value.expected, caught.value.head) == (7, 1)
        with pytest.raises(InvalidValue):
            store.read(KEY, limit=0)  # when it is called
        with pytest.raises(InvalidValue):
            sync.Store(store).read(KEY, limit=0)


async def test_context_variables_travel_with_the_call() -> None:
    class Late(Environment):
        def time_ns(self) -> int:
            return 2_000_000_000_000_000_000

    async with owned_elsewhere(MemoryStore()) as store:
        with environment.use(Late()):
            await begin(store)
            items = store.read(KEY)
            assert [event.at async for event in items] == [2_000_000_000_000]
            plain = sync.Store(store)
            await asyncio.to_thread(plain.append, KEY, [note(1)])
        await store.append(KEY, [note(2)])
        times = [event.at async for event in store.read(KEY)]
        assert times[1] == 2_000_000_000_000 > times[2]


# Streams


class Streamed(MemoryStore):
    """Counts what is read, and how many readers are open."""

    yielded = 0
    open = 0

    async def counted(self, items: Any) -> Any:
        self.open += 1
        try:
            async with aclosing(items):
                async for item in items:
                    self.yielded += 1
                    yield item
        finally:
            self.open -= 1

    def read(self, *args: Any, **options: Any) -> Any:
        return self.counted(super().read(*args, **options))


async def test_a_reader_that_stops_gets_a_page_at_most_and_closes_the_inner_stream() -> None:
    inner = Streamed()
    async with owned_elsewhere(inner) as store:
        for n in range(4):
            numbers = range(n * 1_000, (n + 1) * 1_000)
            await store.append(KEY, [note(m) for m in numbers], create=True)
        items = store.read(KEY)
        assert inner.yielded == 0
        assert (await anext(items)).seq == 1
        assert inner.yielded == PAGE_EVENTS
        assert inner.open == 1
        await items.aclose()
        assert (inner.open, inner.yielded) == (0, PAGE_EVENTS)
        assert [event.seq async for event in store.read(KEY)] == [*range(1, 4_001)]


async def test_a_batch_has_a_megabyte_of_data_at_most() -> None:
    inner = Streamed()
    async with owned_elsewhere(inner) as store:
        await begin(store)
        large = "x" * (BATCH_BYTES // 4)
        for n in range(1, 12):
            await store.append(KEY, [NewEvent.of("note.made", {"text": large}, id=f"large-{n}")])
        async with aclosing(store.read(KEY)) as items:
            await anext(items)
            assert inner.yielded <= 6


async def test_a_stream_of_a_thread_is_closed_too() -> None:
    inner = Streamed()
    async with owned_elsewhere(inner) as store:
        await begin(store, count=900)
        plain = sync.Store(store)

        def some() -> list[int]:
            items = plain.read(KEY)
            found = [next(items).seq for _ in range(3)]
            items.close()
            return found

        assert await asyncio.to_thread(some) == [1, 2, 3]
        assert inner.open == 0
        assert len(await asyncio.to_thread(lambda: list(plain.read(KEY)))) == 900
        assert await asyncio.to_thread(lambda: list(plain.verify())) == []


async def test_restore_takes_its_events_from_the_loop_and_thread_of_the_caller() -> None:
    async with owned_elsewhere(MemoryStore()) as store:
        for first in range(0, 2_500, 500):
            numbers = range(first, first + 500)
            await store.append(KEY, [note(n) for n in numbers], create=True)
        events = [event async for event in store.read(KEY)]
        where = set()

        async def given() -> Any:
            for event in events:
                where.add(asyncio.get_running_loop())
                yield event

        await store.restore(key("copy"), given())
        assert where == {asyncio.get_running_loop()}
        await asyncio.to_thread(sync.Store(store).restore, key("other"), iter(events))
        for copy in ("copy", "other"):
            assert [event async for event in store.read(key(copy))] == events


async def test_a_restore_whose_events_fail_leaves_nothing() -> None:
    async with owned_elsewhere(MemoryStore()) as store:
        await begin(store, count=1_000)
        events = [event async for event in store.read(KEY)]

        async def given() -> Any:
            for event in events:
                yield event
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await store.restore(key("copy"), given())
        assert await store.row(key("copy")) is None


# Cancellation


class Slow(MemoryStore):
    """Waits in the middle of each append and each lookup of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.go = threading.Event(), threading.Event()
        self.cancelled = 0

    async def pause(self) -> None:
        self.reached.set()
        try:
            await until(self.go.is_set, asyncio.sleep)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def append(self, *args: Any, **options: Any) -> Any:
        await self.pause()
        return await super().append(*args, **options)

    async def rows(self, keys: Any) -> Any:
        await self.pause()
        return await super().rows(keys)


async def test_an_append_that_was_handed_over_completes_when_its_caller_is_cancelled() -> None:
    inner = Slow()
    async with owned_elsewhere(inner) as store:
        appending = asyncio.create_task(begin(store))
        await asyncio.to_thread(inner.reached.wait)
        appending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await appending
        inner.go.set()
        await until(lambda: KEY in inner._logs, asyncio.sleep)
        await begin(store)  # the retry
        row = await store.row(KEY)
        assert (inner.cancelled, row.head if row else 0) == (0, 1)


async def test_a_read_ends_with_its_caller() -> None:
    inner = Slow()
    async with owned_elsewhere(inner) as store:
        asking = asyncio.create_task(store.rows([KEY]))
        await asyncio.to_thread(inner.reached.wait)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await until(lambda: inner.cancelled == 1, asyncio.sleep)


async def test_a_cancelled_follower_is_closed_on_the_loop_of_the_store() -> None:
    inner = MemoryStore()
    async with owned_elsewhere(inner) as store:
        await begin(store)
        following = asyncio.create_task(collected(store.follow(KEY), 9))
        await until(lambda: bool(inner._wakes), asyncio.sleep)
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
        await until(lambda: not inner._wakes, asyncio.sleep)


# The loop of the owner


async def test_two_loops_without_a_portal_get_an_error_that_names_it(tmp_path: Path) -> None:
    async with connect(f"sqlite:{tmp_path}/x.db") as store:
        with pytest.raises(WrongLoop, match=r"shared_store\(url\) or connect\(url, portal=True\)"):
            await asyncio.to_thread(asyncio.run, begin(store))
        with pytest.raises(InvalidValue, match="portal=True"):
            sync.Store(store)  # type: ignore[arg-type]


def test_a_loop_that_has_ended_is_told() -> None:
    async def opened() -> PortalStore:
        store = PortalStore(MemoryStore())
        await begin(store)
        return store

    store = asyncio.run(opened())
    with pytest.raises(StoreError, match="not running") as caught:
        asyncio.run(begin(store))
    assert not isinstance(caught.value, StoreUnavailable)
    with pytest.raises(StoreError, match="not running"):
        sync.Store(store).row(KEY)


async def test_a_loop_that_ends_during_a_call_is_told() -> None:
    inner = Slow()

    async def owner(opened: asyncio.Queue[PortalStore], loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon_threadsafe(opened.put_nowait, PortalStore(inner))
        await asyncio.to_thread(inner.reached.wait)

    opened: asyncio.Queue[PortalStore] = asyncio.Queue()
    owning = asyncio.create_task(
        asyncio.to_thread(asyncio.run, owner(opened, asyncio.get_running_loop()))
    )
    store = await opened.get()
    with pytest.raises(StoreUnavailable, match="ended"):
        await begin(store)
    await owning


async def test_waiting_on_the_own_loop_is_refused_as_a_deadlock() -> None:
    store = PortalStore(MemoryStore())
    with pytest.raises(InvalidValue, match="deadlock"):
        sync.Store(store).row(KEY)

    async def within() -> None:
        process_portal().wait(asyncio.sleep, 0)

    with pytest.raises(InvalidValue, match="deadlock"):
        await process_portal().run(within)


def test_awaiting_outside_of_any_loop_is_refused() -> None:
    asking = process_portal().run(asyncio.sleep, 0)
    with pytest.raises(InvalidValue, match=r"holdfast\.sync"):
        asking.send(None)


async def test_a_portal_belongs_to_the_running_loop() -> None:
    assert Portal().here()
    assert not process_portal().here()
    assert await asyncio.to_thread(Portal().here) is False


async def test_wrapped_stores_work_behind_a_portal() -> None:
    async with owned_elsewhere(FaultyStore(MemoryStore())) as store:
        await begin(store)
        assert "FaultyStore" in repr(store)
        assert store.info().kind == "memory"


async def test_a_shared_store_behaves_like_others(tmp_path: Path) -> None:
    async with shared_store(f"sqlite:{tmp_path}/x.db") as store:
        await begin(store)
        with pytest.raises(HeadMoved):
            await store.append(KEY, [note(1)], expected=7)
