"""Cancelling what becomes of one message: its run, and no other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ..harness.kernel.scene import Gate, Slow
from .scene import PATIENCE, connected


async def read(stream: Any) -> list[Any]:
    return [item async for item in stream]


async def test_to_cancel_what_has_ended_does_not_stop_what_came_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Slow()
    async with connected(harness={"default_model": model}) as client, asyncio.timeout(PATIENCE):
        session = await client.get_or_create("s")
        first = session.stream("first")
        reading = asyncio.create_task(read(first))
        await model.gate.someone()
        second = asyncio.create_task(session.send("second"))
        while not await session.follow_ups.list():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        find = first._run

        async def found(seq: int) -> str | None:
            """While it is looked for, the run ends, and the next begins."""
            run = await find(seq)
            old, model.gate = model.gate, Gate()
            old.open()
            await model.gate.someone()
            return run

        monkeypatch.setattr(first, "_run", found)
        await first.cancel("not needed any more")
        model.gate.open()
        await reading
        assert (first.result.status, first.result.text) == ("done", "Let me see.")
        assert (await second).status == "done"
        assert await session.events(kinds=("abort.requested",)) == []


async def test_to_cancel_what_goes_on_stops_it() -> None:
    model = Slow(quick=["second"])
    async with connected(harness={"default_model": model}) as client, asyncio.timeout(PATIENCE):
        session = await client.get_or_create("s")
        first = session.stream("first")
        reading = asyncio.create_task(read(first))
        await model.gate.someone()
        second = asyncio.create_task(session.send("second"))
        while not await session.follow_ups.list():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await first.cancel("not needed any more")
        await reading
        assert first.result.status == "aborted"
        assert (await second).text == "quick second"
