"""Calls within calls, and one question after the other: each answer reaches its own call, and
what was done before the pause is not done again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from holdfast import Agent, Event, Harness, Store, tool
from holdfast.events import key
from holdfast.harness.live.decisions import settle_pending
from holdfast.harness.session.session import Session, core_of
from holdfast.harness.telemetry.logs import LogConfig
from holdfast.harness.tools import ToolContext
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.stores.memory import MemoryStore

from .test_approvals import PATIENCE, restored

AT = key("s")


class Shop:
    """Its tools, and what they did."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def harness(self, store: Store, *, safe: bool = True) -> Harness:
        @tool
        def note(text: str) -> str:
            """Note something."""
            self.done.append(f"noted {text}")
            return "noted"

        @tool(approval="ask")
        def pay(n: int) -> str:
            """Pay."""
            self.done.append(f"paid {n}")
            return f"paid {n}"

        @tool(repeat_safe=safe)
        async def order(context: ToolContext) -> str:
            """Order: a note, and two payments."""
            first = await context.invoke(note, text="order")
            one = await context.invoke(pay, n=1)
            two = await context.invoke("pay", n=2)
            return ", ".join(result.content for result in (first, one, two))

        return Harness(
            Agent("Shop", instructions="Sell.", tools=[note, pay, order]),
            default_model=ScriptedModel(
                [Say(calls=[Use("pay", n=8)]), Say(calls=[Use("pay", n=9)]), "Paid."]
                if not safe
                else [Say(calls=[Use("order")]), "Ordered."]
            ),
            store=store,
            logging=LogConfig(level="silent"),
        )


async def waits(session: Session, true: Callable[[list[str]], bool]) -> str:
    """Wait until the session has such items; the only one."""
    async with asyncio.timeout(PATIENCE):
        await core_of(session).live.until(lambda: true([*core_of(session).live.state.pending]))
    return next(iter(core_of(session).live.state.pending))


async def result(session: Session) -> object:
    async with asyncio.timeout(PATIENCE):
        assert (await session.wait()).status == "done"
    (call,) = [c for message in await session.transcript() for c in message.calls]
    return call.outcome and call.outcome.result


@pytest.mark.parity("user-demand", 15)
async def test_one_question_after_the_other_in_one_run() -> None:
    shop = Shop()
    async with shop.harness(MemoryStore(), safe=False) as serving:
        session = await serving.get_or_create("s")
        (first,) = (await session.send("Pay twice.")).pending
        await session.approve(first.id)
        async with asyncio.timeout(PATIENCE):
            (second,) = (await session.wait()).pending
        assert second.id != first.id
        await session.deny(second.id, "once is enough")
        async with asyncio.timeout(PATIENCE):
            assert (await session.wait()).text == "Paid."
    assert shop.done == ["paid 8"]


@pytest.mark.parity("user-demand", 15)
async def test_calls_within_a_call_are_asked_about_one_by_one() -> None:
    shop = Shop()
    async with shop.harness(MemoryStore()) as serving:
        session = await serving.get_or_create("s")
        await session.post("Order.")
        first = await waits(session, bool)
        assert shop.done == ["noted order"]
        await session.approve(first, actor="ann")
        second = await waits(session, lambda items: bool(items) and items != [first])
        assert shop.done == ["noted order", "paid 1"]
        await session.deny(second, "too much", actor="ann")
        told = await result(session)
    assert shop.done == ["noted order", "paid 1"]
    assert told == "noted, paid 1, This call was denied. too much"


@pytest.mark.parity("user-demand", 15)
async def test_who_sends_and_who_waits_are_told_of_a_question_within_a_call() -> None:
    shop = Shop()
    async with shop.harness(MemoryStore()) as serving, asyncio.timeout(PATIENCE):
        session = await serving.get_or_create("s")
        sent = await session.send("Order.")
        assert (sent.status, [ask.title for ask in sent.pending]) == ("waiting", ["pay(n=1)"])
        assert (await session.wait()).pending == sent.pending
        await session.approve()
        (second,) = (await session.wait()).pending
        assert second.title == "pay(n=2)"
        await session.approve(second.id)
        done = await session.wait()
        assert (done.status, done.text, done.pending) == ("done", "Ordered.", ())


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parity("user-demand", 12, 15)
async def test_a_question_within_a_call_outlives_its_process(early: bool) -> None:
    shop = Shop()
    async with shop.harness(MemoryStore()) as serving:
        session = await serving.get_or_create("s")
        await session.post("Order.")
        first = await waits(session, bool)
        left: list[Event] = await session.events()
        await session.abort()
    store = await restored(left)
    if early:
        await settle_pending(store, AT, first, "approved", actor="ann")
    async with shop.harness(store) as serving:
        session = await serving.get_or_create("s")
        if not early:
            await waits(session, bool)
            await settle_pending(store, AT, first, "approved", actor="ann")
        second = await waits(session, lambda items: bool(items) and items != [first])
        await session.approve(second, actor="bob")
        assert await result(session) == "noted, paid 1, paid 2"
    assert shop.done == ["noted order", "paid 1", "paid 2"]
