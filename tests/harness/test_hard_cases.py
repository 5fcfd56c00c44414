"""Cases in which something could be lost, doubled or said wrongly, each seen to come out right."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from decimal import Decimal
from typing import Any

import pytest

from holdfast import (
    Agent,
    AlreadyDecided,
    CaughtUp,
    Event,
    Harness,
    InvalidValue,
    QueueFull,
    Store,
    ToolContext,
    ToolMissing,
    connect,
    key,
    tool,
)
from holdfast import events as ev
from holdfast.events import NewEvent
from holdfast.harness.live.decisions import settle_pending
from holdfast.harness.session.session import Session, core_of
from holdfast.models import Say, ScriptedModel, Use
from holdfast.values.delta import Delta

PATIENCE = 30


def script(*steps: Any, **options: Any) -> ScriptedModel:
    return ScriptedModel(steps, **{"per_turn": True, **options})


def payer(made: list[int], **options: Any) -> Agent:
    @tool(**options)
    async def pay(cents: int) -> str:
        """Pay."""
        made.append(cents)
        return "paid"

    return Agent("shop", instructions="Help.", tools=[pay])


PAY = (Say("", calls=[Use("pay", cents=5)]), "Done.")


async def outcomes(session: Session) -> list[tuple[str, str, str]]:
    return [
        (c.name, c.outcome.outcome, str(c.outcome.content or c.outcome.result))
        for message in await session.transcript()
        for c in message.calls
        if c.outcome is not None
    ]


async def lost_call(store: Store) -> None:
    """A log that ends in the middle of a call, as a killed process leaves it."""
    where = key("s")
    await store.append(where, [NewEvent.of("session.created", {"agent": "shop"})], create=True)
    call = ev.Call(id="c1", name="pay", arguments={"cents": 5})
    events = [
        NewEvent.of("message.received", ev.MessageReceived(text="go")),
        NewEvent.of("run.started", ev.RunStarted(driver="gone", inputs=[2]), run="r"),
        NewEvent.of("model.called", ev.ModelCalled(model="scripted/demo"), run="r"),
        NewEvent.of("message.completed", ev.MessageCompleted(calls=[call]), run="r"),
        NewEvent.of("tool.started", ev.ToolStarted(call="c1", name="pay", key="c1"), run="r"),
    ]
    await store.append(where, events)


# What may have happened


@pytest.mark.parametrize("how", ["steer", "abort", "interrupt"])
async def test_a_call_that_may_have_acted_is_never_told_as_not_made(how: Any) -> None:
    made: list[int] = []
    async with connect("memory:") as store:
        await lost_call(store)
        async with Harness(payer(made), default_model=script("Fine."), store=store) as harness:
            session = await harness.get_or_create("s")
            assert (await session.wait()).pending[0].what == "external"
            if how == "abort":
                await session.abort()
            else:
                await session.post("never mind", busy=how)
            await session.wait()
            (_, outcome, said) = (await outcomes(session))[0]
            assert (outcome, made) == ("unknown", [])
            assert "not known" in said


async def test_a_missing_tool_is_told_before_anything_is_written_and_is_no_crash() -> None:
    made: list[int] = []
    async with connect("memory:") as store:
        agent = payer(made, approval="ask")
        async with Harness(agent, default_model=script(*PAY), store=store) as harness:
            session = await harness.get_or_create("s")
            item = (await session.send("go")).pending[0].id
        await settle_pending(store, key("s"), item, "approved")
        bare = Agent("shop", instructions="Help.")
        for _ in range(5):
            async with Harness(bare, default_model=script("?"), store=store) as harness:
                session = await harness.get_or_create("s")
                head = core_of(session).live.state.head
                with pytest.raises(ToolMissing, match="pay"):
                    await session.wait()
                assert core_of(session).live.state.head == head
        async with Harness(agent, default_model=script(*PAY), store=store) as harness:
            session = await harness.get_or_create("s")
            assert ((await session.wait()).status, made) == ("done", [5])


class Deaf:
    """A store whose driver takes the first cancellation of a follower for a reply, and waits on."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def follow(self, *where: Any, **how: Any) -> AsyncGenerator[Any, None]:
        async for item in self._inner.follow(*where, **how):
            yield item
            if isinstance(item, CaughtUp):
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()


async def test_a_driver_that_swallows_a_cancellation_does_not_keep_a_harness_open() -> None:
    agent = Agent("shop", instructions="Help.")
    async with connect("memory:") as store:
        deaf: Any = Deaf(store)
        harness = await Harness(agent, default_model=script("Yes."), store=deaf).start()
        session = await harness.get_or_create("s")
        await asyncio.sleep(0.05)  # until it follows; earlier it is not deaf, and all is well
        closing = asyncio.create_task(harness.aclose())
        await asyncio.wait({closing}, timeout=PATIENCE)
        assert closing.done()
        assert core_of(session).closed


# What is accepted


async def test_of_many_messages_at_once_all_that_are_accepted_are_answered() -> None:
    model = script("Yes.")
    agent = Agent("shop", instructions="Help.")
    async with Harness(agent, default_model=model) as harness:
        session = await harness.get_or_create("s")
        sent = [session.send(str(n)) for n in range(300)]
        async with asyncio.timeout(PATIENCE):
            results = await asyncio.gather(*sent, return_exceptions=True)
        full = [r for r in results if isinstance(r, QueueFull)]
        done = [r for r in results if not isinstance(r, BaseException)]
        assert (len(full), len(done)) == (200, 100)
        assert {r.status for r in done} == {"done"}


@pytest.mark.parametrize("busy", ["queue", "reject"])
async def test_a_message_that_is_there_already_is_never_refused(busy: Any) -> None:
    async with Harness(payer([], approval="ask"), default_model=script(*PAY)) as harness:
        session = await harness.get_or_create("s")
        first = await session.send("go", key="k", busy=busy)
        assert first.status == "waiting"
        again = await session.send("go", key="k", busy=busy)
        assert (again.run, again.status) == (first.run, "waiting")
        await session.approve()
        assert (await session.wait()).status == "done"
        last = await session.send("go", key="k", busy=busy)
        assert (last.run, last.status, last.text) == (first.run, "done", "Done.")


async def test_a_key_cannot_stand_in_for_a_timer() -> None:
    agent = Agent("shop", instructions="Help.")
    async with Harness(agent, default_model=script("Yes.")) as harness:
        session = await harness.get_or_create("s")
        await session.timers.set("wake up", seconds=0.2)
        seq = core_of(session).live.state.timers[next(iter(session.timers.all))].seq
        await session.send("x", key=f"timer:{seq}")
        async with asyncio.timeout(PATIENCE):
            await core_of(session).live.until(lambda: not core_of(session).live.state.timers)
            await session.wait()
        said = [m.text for m in await session.transcript(roles=("user",))]
        assert said == ["x", "wake up"]


async def test_what_would_be_forgotten_is_refused() -> None:
    agent = Agent("shop", instructions="Help.")
    async with Harness(agent, default_model=script("Yes.")) as harness:
        session = await harness.get_or_create("s")
        for n in range(100):
            await session.timers.set("x", seconds=1000, id=f"t{n}")
            await session.permissions.set(tool=f"t{n}", rule="deny")
        with pytest.raises(InvalidValue, match="already has 100 timers"):
            await session.timers.set("x", seconds=1000)
        with pytest.raises(InvalidValue, match="the session already has 100 rules"):
            await session.permissions.set(tool="one more", rule="allow")
        assert set(session.permissions.rules.tools.values()) == {"deny"}
        await session.send("hello")
        with pytest.raises(InvalidValue, match="has started"):
            await session.seed([("user", "x")])


# What a person says


async def test_a_no_wins_over_a_yes_that_came_before_it() -> None:
    made: list[int] = []

    def limit(cents: int) -> str:
        return "deny" if cents > 100 else "ask"

    agent = payer(made, approval=limit, category="payments")
    async with Harness(agent, default_model=script(*PAY)) as harness:
        session = await harness.get_or_create("s")
        await session.send("go")
        await session.approve(arguments={"cents": 1_000_000})
        await session.wait()
        await session.send("go")
        await session.permissions.set(category="payments", rule="deny")
        await session.approve()
        await session.wait()
        assert [how for _, how, _ in await outcomes(session)] == ["denied", "denied"]
        assert made == []


async def test_a_yes_after_the_deadline_is_too_late_unless_it_was_moved() -> None:
    made: list[int] = []
    async with connect("memory:") as store:
        agent = payer(made, approval="ask", expires=0.05)
        async with Harness(agent, default_model=script(*PAY), store=store) as harness:
            session = await harness.get_or_create("s")
            first = (await session.send("go")).pending[0].id
            await session.extend(first, 3600)
            await asyncio.sleep(0.06)
            await session.approve(first)
            assert (await session.wait()).status == "done"
            second = (await session.send("again")).pending[0].id
        await asyncio.sleep(0.06)
        with pytest.raises(AlreadyDecided, match="expired"):
            await settle_pending(store, key("s"), second, "approved", actor="ann")
        async with Harness(agent, default_model=script(*PAY), store=store) as harness:
            session = await harness.get_or_create("s")
            assert (await session.wait()).status == "done"
            assert [how for _, how, _ in await outcomes(session)] == ["ok", "cancelled"]
            assert made == [5]


async def test_a_question_within_a_call_expires_too() -> None:
    @tool(approval="ask", expires=0.1)
    async def inner() -> str:
        """Ask."""
        return "never"

    @tool
    async def outer(context: ToolContext) -> str:
        """Call another."""
        return (await context.invoke("inner")).content

    agent = Agent("shop", instructions="Help.", tools=[inner, outer])
    model = script(Say("", calls=[Use("outer")]), "Done.")
    async with Harness(agent, default_model=model) as harness:
        session = await harness.get_or_create("s")
        await session.send("go")
        async with asyncio.timeout(PATIENCE):
            live = core_of(session).live
            await live.until(lambda: live.state.run is not None and not live.state.run.open)
        assert "expired" in (await outcomes(session))[0][2]


# What a model reads


async def test_one_large_message_does_not_push_everything_out_again_and_again() -> None:
    agent = Agent("shop", instructions="Help.")
    summaries = 0

    def summarise(messages: Any) -> str:
        nonlocal summaries
        summaries += 1
        return "earlier"

    model = script("Yes.")
    settings: dict[str, Any] = {"window_tokens": 2_000, "summarise": summarise}
    async with Harness(agent, default_model=model, **settings) as harness:
        session = await harness.get_or_create("s")
        for n in range(5):
            await session.send(f"{n}")
        await session.send("x" * 20_000)
        for n in range(5):
            await session.send(f"more {n}")
        assert summaries <= 3
        assert len(model.calls[-1].messages) > 3


async def test_a_price_of_any_number_keeps_the_answer_readable() -> None:
    made: list[int] = []
    settings: dict[str, Any] = {"price": lambda ref, usage: Decimal("0.25")}
    async with Harness(payer(made), default_model=script(*PAY), **settings) as harness:
        session = await harness.get_or_create("s")
        result = await session.send("go")
        assert (result.text, made) == ("Done.", [5])
        assert result.metrics is not None
        assert result.metrics.cost == 0.5


# What a listener hears


async def test_the_text_of_a_message_never_comes_after_the_message() -> None:
    agent = Agent("shop", instructions="Help.")
    model = script(Say("one two three four five six", delay=0.005))
    async with Harness(agent, default_model=model) as harness:
        session = await harness.get_or_create("s")
        running = asyncio.create_task(session.send("go"))
        heard: list[str] = []

        async def listen() -> None:
            over: set[str] = set()
            async for item in session.subscribe(after=0):
                if isinstance(item, Delta):
                    heard.append("late" if item.message in over else "delta")
                elif isinstance(item, Event):
                    over.add(item.id)
                    if item.kind == "run.finished":
                        return

        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(running, *(listen() for _ in range(20)))
        assert "late" not in heard
