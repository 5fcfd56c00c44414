"""Timers: messages to come, whichever process runs by then."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import InvalidValue
from holdfast.harness.session.session import core_of
from holdfast.store import wall_clock

from .scene import helper, read, script, serve, until


@pytest.mark.parity("user-demand", 69)
async def test_a_timer_brings_its_message() -> None:
    model = script(lambda call: f"re {read(call)[-1]}")
    async with serve(helper(), default_model=model, ttl=0.2) as harness:
        session = await harness.get_or_create("s")
        id = await session.timers.set("wake up", seconds=0.05, metadata={"why": "nap"})
        assert [*session.timers.all] == [id]
        await until(lambda: model.calls and session.status.phase == "idle")
        assert session.timers.all == {}
        (asked, answer) = await session.transcript()
        assert (asked.text, asked.actor) == ("wake up", "timer")
        assert asked.metadata == {"why": "nap", "timer": id}
        assert answer.text == "re user: wake up"


@pytest.mark.parity("user-demand", 69)
async def test_a_timer_outlives_the_process_that_set_it(tmp_path: Path) -> None:
    storage = f"sqlite:{tmp_path}/x.db"
    async with serve(helper(), "hi", store=storage) as harness:
        session = await harness.get_or_create("s")
        await session.send("go")
        await session.timers.set("wake up", at=wall_clock() + 300)
    model = script("hi", "I am up")
    async with serve(helper(), default_model=model, store=storage, ttl=0.2) as harness:
        session = await harness.get_or_create("s")
        await until(lambda: model.calls and session.status.phase == "idle")
        texts = [m.text for m in await session.transcript(roles=("user",))]
        assert texts == ["go", "wake up"]  # once


async def test_timers_are_replaced_and_cleared() -> None:
    async with serve(helper(), "hi") as harness:
        session = await harness.get_or_create("s")
        later = wall_clock() + 3_600_000
        await session.timers.set("one", at=later, id="t")
        await session.timers.set("two", at=later + 1, id="t")
        assert session.timers.all == {"t": later + 1}
        await until(lambda: core_of(session).live.state.due == later + 1)
        row = await harness.store.row(session.key)
        assert row is not None
        assert row.due == later + 1
        await session.timers.clear("t")
        assert session.timers.all == {}
        await until(lambda: core_of(session).live.state.due is None)
        for wrong in ({}, {"at": 1, "seconds": 1}):
            with pytest.raises(InvalidValue):
                await session.timers.set("x", **wrong)  # type: ignore[arg-type]
        assert await session.transcript() == []
