"""Random conversations: what a model says, what people do meanwhile, and what log there is then."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from hypothesis import strategies as st
from msgspec import Struct

from holdfast import Agent, Event, Harness, tool
from holdfast.errors import AlreadyDecided, InvalidValue, NotPending, SessionBusy
from holdfast.events import key
from holdfast.harness.session.session import Session
from holdfast.harness.telemetry.logs import LogConfig
from holdfast.harness.tools import ToolContext, ToolResult
from holdfast.models.port import FromModel, ModelCall
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.stores.memory import MemoryStore
from holdfast.values.options import RunLimits

AT = key("s")
PATIENCE = 20.0
TOOLS = ("fine", "fails", "asks", "denied", "safe", "slow", "outer", "missing")


class Move(Struct, frozen=True):
    """What the model says in one call: some words, and calls of tools."""

    text: str
    tools: tuple[str, ...]
    slow: bool = False


class Act(Struct, frozen=True):
    """What a person does, once the loop has turned so often."""

    do: str
    turns: int = 0


class Plan(Struct, frozen=True):
    """A conversation; the model reads at most so many turns of it."""

    moves: tuple[Move, ...]
    acts: tuple[Act, ...]
    window: int = 200


_moves = st.builds(
    Move,
    st.sampled_from(["", "Well.", "One two three four five."]),
    st.lists(st.sampled_from(TOOLS), max_size=3).map(tuple),
    st.booleans(),
)
_acts = st.builds(
    Act,
    st.sampled_from(
        ["queue", "steer", "interrupt", "reject", "abort", "settle", "yes", "no", "edit", "answer"]
    ),
    st.integers(0, 12),
)
plans = st.builds(
    Plan,
    st.lists(_moves, min_size=1, max_size=6).map(tuple),
    st.lists(_acts, max_size=8).map(tuple),
    st.sampled_from([1, 2, 200]),
)


@tool
def fine(n: int) -> str:
    """Works."""
    return f"fine {n}"


@tool
def fails(n: int) -> str:
    """Does not work."""
    raise RuntimeError(f"broken {n}")


@tool(approval="ask")
def asks(n: int) -> dict[str, int]:
    """Works if it may."""
    return {"n": n}


@tool(approval="deny")
def denied(n: int) -> str:
    """May never."""
    raise AssertionError("a denied tool ran")


@tool(repeat_safe=True)
def safe(n: int) -> str:
    """Works, and again."""
    return f"safe {n}"


@tool(on_unknown="tell")
async def slow(n: int) -> str:
    """Takes some time."""
    await asyncio.sleep(0.002)
    return f"slow {n}"


@tool(repeat_safe=True)
async def outer(n: int, context: ToolContext) -> str:
    """Calls two others."""
    first: ToolResult = await context.invoke(fine, n=n)
    second: ToolResult = await context.invoke("safe", n=n)
    return f"{first.content} and {second.content}"


AGENT = Agent("Laws", instructions="Obey.", tools=[fine, fails, asks, denied, safe, slow, outer])


def model(plan: Plan) -> ScriptedModel:
    """Says the move whose turn it is, by the number of model messages that it reads."""

    def say(call: ModelCall) -> Say:
        said = sum(isinstance(message, FromModel) for message in call.messages)
        move = plan.moves[said % len(plan.moves)]
        text = move.text if move.text or move.tools else "Done."
        calls = [Use(name, n=n) for n, name in enumerate(move.tools)]
        return Say(text, calls=calls, delay=0.0005 if move.slow else 0.0)

    return ScriptedModel([say], repeat=True)


@contextlib.asynccontextmanager
async def served(store: MemoryStore, plan: Plan) -> AsyncIterator[Session]:
    """The session, served; whatever was left undone in it is taken up at once."""
    harness = Harness(
        AGENT,
        default_model=model(plan),
        store=store,
        limits=RunLimits(steps=6),
        window_turns=plan.window,
        logging=LogConfig(level="silent"),
    )
    async with harness:
        yield await harness.get_or_create(AT.session)


async def play(plan: Plan) -> list[Event]:
    """The log of a conversation: it begins, people act, and in the end nothing is open."""
    store = MemoryStore()
    async with served(store, plan) as session:
        await session.post("Begin.")
        for done in plan.acts:
            await act(session, done)
        await quiet(session)
        return await session.events()


async def act(session: Session, told: Act) -> None:
    """Do what a person does, when it is time."""
    for _ in range(told.turns):
        await asyncio.sleep(0)
    do: Any = told.do
    if do in ("queue", "steer", "interrupt", "reject"):
        with contextlib.suppress(SessionBusy):
            await session.post(f"Some {do}.", busy=do)
    elif do == "abort":
        await session.abort("enough")
    elif do == "settle":
        await _settled(session)
    elif waiting := await session.pending():
        with contextlib.suppress(AlreadyDecided, NotPending):
            await _decide(session, waiting[-1].id, do)


async def _decide(session: Session, item: str, do: str) -> None:
    if do == "yes":
        await session.approve(item, actor="ann")
    elif do == "no":
        await session.deny(item, "not today", actor="ann")
    elif do == "edit":
        await session.approve(item, arguments={"n": 99}, actor="ann")
    else:
        with contextlib.suppress(InvalidValue):  # of an approval: then it waits on
            await session.answer("told", item, actor="ann")


async def _settled(session: Session) -> Any:
    async with asyncio.timeout(PATIENCE):
        return await session.wait()


async def quiet(session: Session) -> None:
    """Answer everything until nothing waits and nothing goes on."""
    for round in range(100):
        await _settled(session)
        waiting = await session.pending()
        if not waiting:
            return
        do = ("yes", "no", "edit", "answer")[round % 4]
        with contextlib.suppress(AlreadyDecided, NotPending):
            await _decide(session, waiting[0].id, do)
    raise AssertionError("it never became quiet")
