"""What becomes of a run whose driver is gone is a matter of policy, and has an end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Agent, Event, Harness, NewEvent, Store, tool
from holdfast.harness.telemetry.logs import LogConfig
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.stores.memory import MemoryStore

from ..crash.scene import illegal
from .test_approvals import AT, PATIENCE, restored

done: list[str] = []


@tool
def send(to: str) -> str:
    """Send, which must not happen twice."""
    done.append(to)
    return f"sent {to}"


@tool(repeat_safe=True)
def look(at: str) -> str:
    """Look, as often as you like."""
    done.append(at)
    return f"saw {at}"


def serve(store: Store, **options: Any) -> Harness:
    calls = [Use("send", to="ann"), Use("look", at="it")]
    return Harness(
        Agent("Lost", instructions="Do.", tools=[send, look]),
        default_model=ScriptedModel(
            [Say("I do.", calls=calls), "Done.", "Yes."], per_turn=True, repeat=True
        ),
        store=store,
        logging=LogConfig(level="silent"),
        **options,
    )


@pytest.fixture
async def left() -> list[Event]:
    """The log of a driver that died while both tools ran."""
    async with serve(MemoryStore()) as serving:
        session = await serving.get_or_create("s")
        await session.send("Go.")
        events = await session.events()
    done.clear()
    begun = [event.seq for event in events if event.kind == "tool.started"]
    return events[: begun[-1]]


async def outcomes(store: Store, **options: Any) -> tuple[str, str | None, list[str], list[Event]]:
    """How the run ended, how its calls did, and the log."""
    async with serve(store, **options) as serving, asyncio.timeout(PATIENCE):
        session = await serving.get_or_create("s")
        result = await session.wait()
        calls = [call for message in await session.transcript() for call in message.calls]
        found = [call.outcome.outcome if call.outcome else "open" for call in calls]
        return result.status, result.code, found, await session.events()


@pytest.mark.parity("user-demand", 2, 31, 70)
async def test_resume_repeats_what_is_safe_and_asks_about_the_rest(left: list[Event]) -> None:
    status, _, found, events = await outcomes(await restored(left))
    assert (status, found) == ("waiting", ["open", "ok"])
    assert done == ["it"]
    assert illegal(events) is None


@pytest.mark.parity("harness-kernel", 96)
@pytest.mark.parity("user-demand", 2, 70)
async def test_close_ends_the_run_and_says_what_is_not_known(left: list[Event]) -> None:
    status, code, found, events = await outcomes(await restored(left), recovery="close")
    assert (status, code) == ("interrupted", "driver_lost")
    assert found == ["unknown", "unknown"]
    assert done == []
    assert illegal(events) is None


@pytest.mark.parity("user-demand", 70)
async def test_leave_leaves_it_to_others(left: list[Event]) -> None:
    store = await restored(left)
    async with serve(store, recovery="leave"):
        pass
    assert [event.id async for event in store.read(AT)] == [event.id for event in left]
    assert done == []


@pytest.mark.parity("user-demand", 70)
async def test_a_run_that_kills_its_drivers_is_ended(left: list[Event]) -> None:
    store = await restored(left)
    for n in range(4):
        await store.append(AT, [NewEvent.of("run.resumed", {"driver": f"{n}"})])
    status, code, found, events = await outcomes(store)
    assert (status, code) == ("failed", "crash_loop")
    assert found == ["unknown", "unknown"]
    assert done == []
    assert illegal(events) is None


@pytest.mark.parity("user-demand", 31)
async def test_who_says_no_to_a_second_try_tells_the_model(left: list[Event]) -> None:
    store = await restored(left)
    async with serve(store) as serving, asyncio.timeout(PATIENCE):
        session = await serving.get_or_create("s")
        (ask,) = (await session.wait()).pending
        assert ask.what == "external"
        await session.deny(ask.id, "I cannot tell", actor="ann")
        assert (await session.wait()).text == "Done."
        calls = [call for message in await session.transcript() for call in message.calls]
        told = calls[0].outcome
        assert told is not None
        assert told.outcome == "unknown"
        assert "I cannot tell" in str(told.result)
    assert done == ["it"]
