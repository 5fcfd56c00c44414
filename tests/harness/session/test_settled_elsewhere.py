"""An item that was settled while nobody drove the session: a caller that sends the message again,
or waits, gets what comes of the decision, and not a run that waits for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Event, Harness, LogConfig, NewEvent, Store, connect, key, tool
from holdfast import events as ev
from holdfast.harness.builtins import ask_user
from holdfast.harness.live.decisions import settle_pending
from holdfast.harness.session.session import Session
from holdfast.models.scripted import Say, Use
from holdfast.values.result import Result

from ..kernel.scene import PATIENCE, helper, only, serve
from ..subagents.scene import ASKING, lead, plays

AT = key("s")


@tool(approval="ask")
def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


def paying(store: Store, *calls: Any, **settings: Any) -> Harness:
    given = calls or (Use("pay", n=1),)
    agent = helper(tools=[pay, ask_user])
    more: dict[str, Any] = {"logging": LogConfig(level="silent"), **settings}
    return serve(agent, Say("So.", calls=given), "Done.", store=store, **more)


async def again(session: Session) -> Result:
    return await session.send("Go.", key="k")


async def streamed(session: Session) -> Result:
    stream = session.stream("Go.", key="k")
    async for _ in stream:
        pass
    return stream.result


async def waited(session: Session) -> Result:
    return await session.wait()


Ways = pytest.mark.parametrize("way", [again, streamed, waited])
Way = Callable[[Session], Awaitable[Result]]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with connect(f"sqlite:{tmp_path / 's.db'}") as opened, asyncio.timeout(PATIENCE):
        yield opened


async def asked(harness: Harness) -> list[str]:
    """Ask, and close; the items that wait."""
    async with harness:
        result = await (await harness.get_or_create("s")).send("Go.", key="k")
    assert result.status == "waiting"
    return [item.id for item in result.pending]


@Ways
@pytest.mark.parametrize("recovery", ["resume", "leave"])
@pytest.mark.parametrize("outcome", ["approved", "denied"])
async def test_a_call_that_was_decided_on_meanwhile_is_driven_on(
    store: Store, way: Way, recovery: str, outcome: Any
) -> None:
    [item] = await asked(paying(store))
    await settle_pending(store, AT, item, outcome, actor="ann")
    async with paying(store, recovery=recovery) as harness:
        result = await way(await harness.get_or_create("s"))
        assert (result.status, result.text, result.pending) == ("done", "Done.", ())


@Ways
async def test_a_question_that_was_answered_meanwhile_is_driven_on(store: Store, way: Way) -> None:
    question = Use("ask_user", question="How many?")
    [item] = await asked(paying(store, question))
    await settle_pending(store, AT, item, "answered", answer="two")
    async with paying(store, question) as harness:
        result = await way(await harness.get_or_create("s"))
        assert (result.status, result.text) == ("done", "Done.")


@Ways
async def test_an_item_that_has_expired_meanwhile_is_driven_on(store: Store, way: Way) -> None:
    [item] = await asked(paying(store))
    over = NewEvent.of("pending.extended", ev.PendingExtended(id=item, expires=1))
    await store.append(AT, [over])
    async with paying(store, recovery="leave") as harness:
        session = await harness.get_or_create("s")
        result = await way(session)
        assert (result.status, result.text) == ("done", "Done.")
        assert [event["outcome"] for event in only(await session.events(), "pending.settled")] == [
            "expired"
        ]


@Ways
async def test_of_two_items_the_one_that_is_left_is_still_pending(store: Store, way: Way) -> None:
    calls = (Use("pay", n=1), Use("pay", n=2))
    first, second = await asked(paying(store, *calls))
    await settle_pending(store, AT, first, "approved", actor="ann")
    async with paying(store, *calls, recovery="leave") as harness:
        session = await harness.get_or_create("s")
        result = await way(session)
        assert (result.status, [item.id for item in result.pending]) == ("waiting", [second])
        [paid] = only(await session.events(), "tool.finished")
        assert (paid["call"], paid["result"]) == (first, "paid 1")


@Ways
async def test_an_item_of_a_sub_agent_that_was_settled_meanwhile_is_driven_on(
    store: Store, way: Way
) -> None:
    def serving(**settings: Any) -> Harness:
        model = plays(ASKING)
        return serve(lead(), store=store, default_model=model, **settings)

    async with serving() as harness:
        session = await harness.get_or_create("s")
        [item] = (await session.send("Go.", key="k")).pending
    await settle_pending(store, key("s", item.thread), item.id, "approved", actor="ann")
    async with serving(recovery="leave") as harness:
        result = await way(await harness.get_or_create("s"))
        assert (result.status, result.text, result.pending) == ("done", "All is well.", ())


async def test_what_still_waits_is_told_at_once_with_its_items(store: Store) -> None:
    items = await asked(paying(store))
    async with paying(store) as harness:
        session = await harness.get_or_create("s")
        for way in (again, streamed, waited):
            result = await way(session)
            assert (result.status, [item.id for item in result.pending]) == ("waiting", items)


async def test_a_stream_of_a_message_that_was_sent_before_shows_how_it_went_on(
    store: Store,
) -> None:
    [item] = await asked(paying(store))
    await settle_pending(store, AT, item, "approved", actor="ann")
    async with paying(store, recovery="leave") as harness:
        stream = (await harness.get_or_create("s")).stream("Go.", key="k")
        shown = [item.kind async for item in stream if isinstance(item, Event)]
    assert shown[0] == "message.received"
    assert shown[-1] == "run.finished"
    assert shown.count("run.waiting") == 1
