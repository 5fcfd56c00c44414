"""The driver may release a lock of its own twice when a call is cancelled: the call is repeated."""

from __future__ import annotations

import asyncio

import pytest
from pymongo._asyncio_lock import Lock

from holdfast.stores.mongodb import MongoStore
from holdfast.stores.mongodb.failure import passing
from tests.servers import recycled


async def released_twice() -> None:
    lock = Lock()
    async with lock:
        lock.release()


async def test_a_call_that_fails_by_a_lock_of_the_driver_is_repeated() -> None:
    async with recycled.empty("mongodb") as url:
        store = await MongoStore.open(url)
        attempts = 0

        async def attempt() -> int:
            nonlocal attempts
            attempts += 1
            if attempts < 3:
                await released_twice()
            return attempts

        assert await store._ride(attempt) == 3
        await store.aclose()


async def test_a_cancelled_call_that_fails_so_is_cancelled() -> None:
    async with recycled.empty("mongodb") as url:
        store = await MongoStore.open(url)

        async def attempt() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                await released_twice()

        task = asyncio.create_task(store._ride(attempt))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await store.aclose()


def test_other_errors_of_a_program_are_not_temporary() -> None:
    assert not passing(RuntimeError("Event loop is closed"))
