"""Sessions to be replayed, one for each thing that can happen in one: made with a script, on the
store that is given, and left as they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from holdfast import Agent, Context, Harness, Mode, SubAgent, ToolContext, hook, tool
from holdfast.errors import ModelRateLimited, ToolError
from holdfast.events import Key, Scope
from holdfast.harness.agents.config import ANSWER
from holdfast.harness.builtins import ask_user, submit_plan
from holdfast.harness.session.schedules import OpenLog
from holdfast.harness.session.session import Session, core_of
from holdfast.models import Fail, Say, ScriptedModel, Use
from holdfast.models.port import Chunk, EndChunk, ModelCall, TextChunk
from holdfast.models.scripted import Step
from holdfast.sessions.schedules import Schedules
from holdfast.state import OPEN_CALLS, State
from holdfast.store import Store, wall_clock

SCOPE = Scope("main", "s")
KEY = Key("main", "s", "main")
PATIENCE = 30.0
Scene = Callable[[Store], Awaitable[Agent]]
SCENES: dict[str, Scene] = {}


def scene(make: Scene) -> Scene:
    SCENES[make.__name__] = make
    return make


def shop(**parts: Any) -> Agent:
    """An agent with one tool of each sort."""

    @tool
    async def look(order: str) -> dict[str, str]:
        """Look an order up."""
        return {"order": order, "state": "broken"}

    @tool(approval="ask", category="payments")
    async def refund(order: str, cents: int = 100) -> str:
        """Refund an order."""
        return f"refunded {order}: {cents}"

    @tool
    async def fails() -> str:
        """Fail."""
        raise ToolError(problem="no luck")

    @tool(approval="deny")
    async def forbidden() -> str:
        """Never."""
        return "never"

    tools = [look, refund, fails, forbidden, ask_user, submit_plan, *parts.pop("tools", [])]
    return Agent("shop", instructions="Help with orders.", tools=tools, **parts)


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110 - whatever is asked for has no event
            await asyncio.sleep(0.002)


async def talk(
    store: Store, agent: Agent, steps: list[Step], *inputs: str, **settings: Any
) -> Session:
    model = ScriptedModel(steps, per_turn=True)
    async with Harness(agent, default_model=model, store=store, **settings) as harness:
        session = await harness.get_or_create("s")
        for text in inputs:
            await session.send(text)
        return session


@scene
async def plain(store: Store) -> Agent:
    await talk(store, agent := shop(), [Say("Hello.", usage={"input_tokens": 3})], "Hi.", "Again.")
    return agent


@scene
async def tools(store: Store) -> Agent:
    steps: list[Step] = [Say("Looking.", calls=[Use("look", order="1")]), "Broken."]
    await talk(store, agent := shop(), steps, "Order 1?")
    return agent


@scene
async def parallel(store: Store) -> Agent:
    first = asyncio.Event()

    @tool
    async def slow() -> str:
        """Slow."""
        await first.wait()
        return "slow"

    @tool
    async def quick(context: ToolContext) -> str:
        """Quick."""
        await context.progress({"half": True})
        first.set()
        return "quick"

    agent = shop(tools=[slow, quick])
    steps: list[Step] = [
        Say(calls=[Use("slow"), Use("quick"), Use("look", order="1")]),
        "All done.",
    ]
    await talk(store, agent, steps, "Go.")
    return agent


async def _asked(store: Store, decide: Callable[[Session], Awaitable[Any]]) -> Agent:
    agent = shop()
    model = ScriptedModel([Say(calls=[Use("refund", order="1")]), "Done."], per_turn=True)
    async with Harness(agent, default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("Refund.")).status == "waiting"
        await decide(session)
        await session.wait()
    return agent


@scene
async def approved(store: Store) -> Agent:
    return await _asked(store, lambda session: session.approve(actor="ann"))


@scene
async def denied(store: Store) -> Agent:
    return await _asked(store, lambda session: session.deny(reason="too much", actor="ann"))


@scene
async def edited(store: Store) -> Agent:
    return await _asked(store, lambda session: session.approve(arguments={"order": "2"}))


@scene
async def waiting(store: Store) -> Agent:
    await talk(store, agent := shop(), [Say(calls=[Use("refund", order="1")]), "Done."], "Refund.")
    return agent


@scene
async def granted(store: Store) -> Agent:
    agent = shop()
    steps: list[Step] = [
        Say(calls=[Use("refund", order="1")]),
        Say(calls=[Use("refund", order="2")]),
        "Done.",
    ]
    async with Harness(
        agent, default_model=ScriptedModel(steps, per_turn=True), store=store
    ) as harness:
        session = await harness.get_or_create("s")
        await session.send("Refund.")
        await session.grant_category("payments")
        await session.approve()
        assert (await session.wait()).status == "done"
    return agent


@scene
async def question(store: Store) -> Agent:
    agent = shop()
    model = ScriptedModel([Say(calls=[Use("ask_user", question="Which?")]), "OK."], per_turn=True)
    async with Harness(agent, default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        await session.send("Refund one.")
        await session.answer("the red one")
        await session.wait()
    return agent


@scene
async def planned(store: Store) -> Agent:
    modes = [Mode("plan", "Plan.", after_plan="act"), Mode("act", "Act.")]
    agent = shop(modes=modes)
    steps: list[Step] = [Say(calls=[Use("submit_plan", title="T", plan="P")]), "Acting."]
    async with Harness(
        agent, default_model=ScriptedModel(steps, per_turn=True), store=store
    ) as harness:
        session = await harness.get_or_create("s")
        await session.send("Make a plan.")
        await session.approve()
        await session.wait()
        assert session.mode.name == "act"
    return agent


@scene
async def refused(store: Store) -> Agent:
    steps: list[Step] = [
        Say(calls=[Use("nothing"), Use("look", wrong=1), Use("fails"), Use("forbidden")]),
        "All of it went wrong.",
    ]
    await talk(store, agent := shop(), steps, "Try.")
    return agent


@scene
async def subagents(store: Store) -> Agent:
    agent = shop(
        subagents=[
            SubAgent("helper", "Helps.", instructions="Help out.", tools=["look", "refund"]),
            SubAgent("copy", "A copy.", forked=True),
        ]
    )

    def speak(call: ModelCall) -> Say:
        made = {c.name for m in call.messages for c in getattr(m, "calls", ())}
        text = str(call.messages[-1])
        if "Refund 7" in str(call.messages[0]) and "Go." not in str(call.messages[0]):
            if "refund" in made:
                return Say("Refunded 7.")
            return Say(calls=[Use("refund", order="7")])
        if "You are a copy" in text:
            return Say("The copy looked.")
        if "subagent" in made:
            return Say("Both are done.")
        both = [Use("subagent", agent="helper", task="Refund 7"), Use("look", order="1")]
        return Say("Delegating.", calls=[*both, Use("subagent", agent="copy", task="Look.")])

    model = ScriptedModel([speak], repeat=True)
    async with Harness(agent, default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("Go.")).status == "waiting"
        await session.approve()
        assert (await session.wait()).status == "done"
        await session.send("Thanks.")
    return agent


class Halting:
    """A model that says some words and then waits until it is told to go on."""

    ref = "slow/model"

    def __init__(self, *halts: int) -> None:
        self.halts, self.calls = halts, 0
        self.met, self.go = asyncio.Event(), asyncio.Event()

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        self.calls += 1
        yield TextChunk("Let me think ")
        if self.calls in self.halts:
            self.met.set()
            await self.go.wait()
        yield TextChunk("about it.")
        yield EndChunk()


async def _during(store: Store, act: Callable[[Session, Halting], Awaitable[Any]]) -> Agent:
    agent, model = shop(), Halting(1)
    async with Harness(agent, default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        going = asyncio.create_task(session.send("Think."))
        await asyncio.wait_for(model.met.wait(), PATIENCE)
        await act(session, model)
        await going
        await session.wait()
    return agent


@scene
async def aborted(store: Store) -> Agent:
    return await _during(store, lambda session, model: session.abort("enough"))


@scene
async def steered(store: Store) -> Agent:
    async def act(session: Session, model: Halting) -> None:
        joining = asyncio.create_task(session.send("And quickly.", busy="steer"))
        await until(lambda: core_of(session).live.state.queue)
        model.go.set()
        await joining

    return await _during(store, act)


@scene
async def interrupted(store: Store) -> Agent:
    async def act(session: Session, model: Halting) -> None:
        await session.send("Something else.", busy="interrupt")

    return await _during(store, act)


@scene
async def followed_up(store: Store) -> Agent:
    async def act(session: Session, model: Halting) -> None:
        later = [asyncio.create_task(session.send(text)) for text in ("Then this.", "And that.")]
        await until(lambda: len(core_of(session).live.state.queue) == 2)
        await session.queue.edit(core_of(session).live.state.queue[0].seq, "Then something else.")
        model.go.set()
        await asyncio.gather(*later)

    return await _during(store, act)


@scene
async def aborted_in_tools(store: Store) -> Agent:
    met = asyncio.Event()

    @tool
    async def hangs() -> str:
        """Hang."""
        met.set()
        await asyncio.Event().wait()
        return "never"

    agent = shop(tools=[hangs])
    model = ScriptedModel([Say(calls=[Use("look", order="1"), Use("hangs")])], per_turn=True)
    async with Harness(agent, default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        going = asyncio.create_task(session.send("Go."))
        await asyncio.wait_for(met.wait(), PATIENCE)
        await until(lambda: len(core_of(session).live.state.calls) == 1)
        await session.abort()
        assert (await going).status == "aborted"
    return agent


@scene
async def failing_model(store: Store) -> Agent:
    busy = Fail(ModelRateLimited(model="scripted/demo", problem="busy"), after="I will")
    await talk(store, agent := shop(), [busy], "Hi.")
    return agent


@scene
async def fallback(store: Store) -> Agent:
    agent = shop()
    away = ScriptedModel([Fail(ModelRateLimited(model="x/away", problem="no"))], ref="x/away")
    other = ScriptedModel(["I am the other."], ref="x/other")
    async with Harness(
        agent,
        default_model=away,
        providers=[other],
        fallback_models=["x/other"],
        store=store,
    ) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("Hi.")).status == "done"
    return agent


@scene
async def limited(store: Store) -> Agent:
    agent = shop()
    model = ScriptedModel([Say(calls=[Use("look", order="1")])], repeat=True)
    async with Harness(agent, default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("Go.", limits={"steps": 2})).code == "limit_steps"
    return agent


@scene
async def too_many_calls(store: Store) -> Agent:
    agent = shop()
    calls = [Use("look", order=f"{n}") for n in range(OPEN_CALLS + 10)]
    model = ScriptedModel([Say("All.", calls=calls), "Done."])
    async with Harness(agent, default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("Go.")).text == "Done."
    return agent


@scene
async def too_long(store: Store) -> Agent:
    agent = shop()
    long = Say(chunks=["x" * (ANSWER // 2)] * 3)
    model = ScriptedModel.by_input({"Go.": long, "And now?": "Better."})
    async with Harness(agent, default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("Go.")).code == "limit_size"
        assert (await session.send("And now?")).text == "Better."
    return agent


@scene
async def out_of_time(store: Store) -> Agent:
    agent = shop()
    async with Harness(agent, default_model=Halting(1), store=store) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("Go.", limits={"seconds": 0.05})).code == "limit_time"
    return agent


async def _lost(store: Store, on_unknown: Any, **options: Any) -> tuple[Agent, Session]:
    """A process that dies while a tool runs, and another one that goes on."""
    met, lost = asyncio.Event(), asyncio.Event()

    @tool(on_unknown=on_unknown, **options)
    async def charge() -> str:
        """Charge."""
        if not met.is_set():
            met.set()
            try:
                await asyncio.Event().wait()
            finally:
                lost.set()
        return "charged"

    agent = shop(tools=[charge])
    steps: list[Step] = [Say(calls=[Use("look", order="1"), Use("charge")]), "Charged."]
    model = ScriptedModel(steps, per_turn=True)
    async with Harness(agent, default_model=model, store=store, ttl=0.3) as harness:
        session = await harness.get_or_create("s")
        going = asyncio.create_task(session.send("Charge."))
        await asyncio.wait_for(met.wait(), PATIENCE)
        await until(lambda: len(core_of(session).live.state.calls) == 1)
        lease = await store.acquire(KEY, "another", ttl=60, steal="the first one died")
        await asyncio.wait_for(lost.wait(), PATIENCE)
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
    await store.release(lease)
    async with Harness(agent, default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        await session.wait()
        if core_of(session).live.state.pending:
            await session.answer("it was charged")
            await session.wait()
    return agent, session


@scene
async def unknown(store: Store) -> Agent:
    return (await _lost(store, "ask"))[0]


@scene
async def told_unknown(store: Store) -> Agent:
    return (await _lost(store, "tell"))[0]


@scene
async def repeated(store: Store) -> Agent:
    return (await _lost(store, "ask", repeat_safe=True))[0]


@scene
async def handed_over(store: Store) -> Agent:
    agent, model = shop(), Halting(1)
    first = await Harness(agent, default_model=model, store=store).start()
    session = await first.get_or_create("s")
    going = asyncio.create_task(session.send("Think."))
    await asyncio.wait_for(model.met.wait(), PATIENCE)
    await first.aclose(grace=0)
    await asyncio.gather(going, return_exceptions=True)
    async with Harness(agent, default_model=Halting(), store=store) as second:
        session = await second.get_or_create("s")
        assert (await session.wait()).status == "done"
    return agent


@scene
async def typed(store: Store) -> Agent:
    agent = shop()
    steps: list[Step] = ["Well.", Say(calls=[Use("final_result", value=7)])]
    model = ScriptedModel(steps)
    async with Harness(agent, default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("How many?", output_type=int)).output == 7
    return agent


@scene
async def always_typed(store: Store) -> Agent:
    agent = shop(output_type=int)
    steps: list[Step] = ["Well.", Say(calls=[Use("final_result", value=7)])]
    async with Harness(agent, default_model=ScriptedModel(steps), store=store) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("How many?")).output == 7
    return agent


@scene
async def nested(store: Store) -> Agent:
    @tool
    async def outer(context: ToolContext) -> str:
        """Outer."""
        await context.update_state(seen=True)
        await context.emit("shop.seen", {"order": "1"})
        found = await context.invoke("look", order="1")
        return f"found {found.data}"

    agent = shop(tools=[outer])
    await talk(store, agent, [Say(calls=[Use("outer")]), "Done."], "Go.")
    return agent


@scene
async def contexts(store: Store) -> Agent:
    async def orders(reading: Any) -> str:
        return f"{reading.usage.get('input_tokens', 0)} tokens so far"

    @hook("message.received")
    async def note(acting: Any, event: Any) -> None:
        await acting.add_context("They are in a hurry.", scope="session", consume="while_active")

    agent = shop(
        contexts=[Context("orders", orders), Context("aside", orders, role="message")],
        hooks=[note],
    )
    await talk(store, agent, [Say("Hello.", usage={"input_tokens": 3})], "Hi.", "Again.")
    return agent


@scene
async def compacted(store: Store) -> Agent:
    agent = shop()
    inputs = [f"Message {n}." for n in range(6)]
    await talk(store, agent, ["Yes."], *inputs, window_turns=2)
    return agent


@scene
async def timed(store: Store) -> Agent:
    agent = shop()
    model = ScriptedModel(["Yes."], per_turn=True)
    async with Harness(agent, default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        await session.timers.set("Wake up.", seconds=0.01)
        await until(lambda: not core_of(session).live.state.timers)
        await session.wait()
        await session.timers.set("Much later.", seconds=1000)
        await session.send("Hi.")
    return agent


@scene
async def schedules(store: Store) -> Agent:
    agent = shop(tools=[])
    model = ScriptedModel(["Yes."], per_turn=True)
    async with Harness(agent, default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        before = Schedules(OpenLog(core_of(session)), clock=lambda: wall_clock() - 150_000)
        await before.set("all", message="Look.", every=60, missed="all", overlap="queue")
        await before.set("once", message="Look.", every=60)
        await session.schedules.set("daily", message="Look.", cron="0 9 * * *")
        await until(lambda: not _due(core_of(session).live.state))
        await session.wait()
        await session.schedules.pause("all")
        await session.send("Hi.")
    return agent


def _due(state: State) -> bool:
    return min(at or 0 for at in state.ticking.values()) <= wall_clock() or bool(state.queue)


@scene
async def expired(store: Store) -> Agent:
    @tool(approval="ask", expires=0.05)
    async def soon() -> str:
        """Soon."""
        return "soon"

    @tool(approval="ask", expires=30)
    async def late() -> str:
        """Late."""
        return "late"

    agent = shop(tools=[soon, late])
    model = ScriptedModel([Say(calls=[Use("soon"), Use("late")]), "Done."], per_turn=True)
    async with Harness(agent, default_model=model, store=store) as harness:
        session = await harness.get_or_create("s")
        await session.send("Go.")
        await until(lambda: len(core_of(session).live.state.pending) == 1)
        await session.approve()
        await session.wait()
    return agent
