"""The agent that several processes serve, and all that can be done to its session, as verbs with a
number: the number makes texts and choices."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from holdfast import Agent, Harness, Mode, tool
from holdfast.harness.builtins import ASKING, TASKS
from holdfast.harness.session.session import Session
from holdfast.harness.telemetry.logs import LogConfig
from holdfast.models.port import FromModel, FromUser, ModelCall
from holdfast.models.scripted import Say, ScriptedModel, Use, last_input
from holdfast.values.options import RunLimits

LOOK = 0.01
MODES = ("draft", "build", "check")
MODELS = ("small/model", "big/model")
CALLS: dict[str, list[Any]] = {
    "talk": [],
    "fine": [Use("fine")],
    "hold": [Use("hold"), Use("fine")],
    "pay": [Use("pay"), Use("pay")],
    "never": [Use("never")],
    "ask": [Use("ask_user", question="Which?"), Use("pay")],
    "plan": [Use("submit_plan", title="Plan", plan="So.")],
    "tasks": [Use("task_write", tasks=[{"id": "a", "content": "Do it", "status": "pending"}])],
}


def says(call: ModelCall) -> Say:
    """The first word of the last message says what the model does; then it has done it."""
    text = last_input(call)
    asked = max(n for n, message in enumerate(call.messages) if isinstance(message, FromUser))
    if any(isinstance(message, FromModel) for message in call.messages[asked:]):
        return Say(f"Did {text}.")
    calls = CALLS.get(text.partition(" ")[0], [])
    return Say(f"I do {text}.", calls=calls, usage={"input_tokens": 1, "output_tokens": 1})


def agent(gates: Path) -> Agent:
    @tool
    def fine() -> str:
        """Works."""
        return "fine"

    @tool(on_unknown="tell")
    async def hold() -> str:
        """Works until the gate is open."""
        while not await asyncio.to_thread(gates.exists):  # noqa: ASYNC110
            await asyncio.sleep(LOOK)
        return "held"

    @tool(approval="ask")
    def pay() -> str:
        """Works if it may."""
        return "paid"

    @tool(approval="deny")
    def never() -> str:
        """May never."""
        raise AssertionError("a denied tool ran")

    modes = [Mode(name, model="big/model" if name == "build" else None) for name in MODES]
    tools = [fine, hold, pay, never, *ASKING, *TASKS]
    return Agent("Two", instructions="Obey.", tools=tools, modes=modes, state={"n": 0})


def harness(url: str, gate: Path) -> Harness:
    return Harness(
        agent(gate),
        providers=[ScriptedModel([says], ref=ref, repeat=True) for ref in MODELS],
        default_model="small/model",
        store=url,
        limits=RunLimits(steps=6),
        logging=LogConfig(level="silent"),
    )


# Verbs. Each gives back what it was told, for the laws.


async def post(session: Session, n: int) -> dict[str, Any]:
    kinds = list(CALLS)
    busy: Any = ("queue", "queue", "steer", "interrupt")[n // len(kinds) % 4]
    text = f"{kinds[n % len(kinds)]} {n}"
    return {"said": text, "seq": await session.post(text, busy=busy, key=f"post {n}")}


async def decide(session: Session, n: int) -> dict[str, Any]:
    waiting = await session.pending()
    if not waiting:
        return {}
    ask = waiting[n % len(waiting)]
    if ask.what == "question":
        made = await session.answer(f"answer {n}", ask.id, actor=f"p{n}")
    elif n % 3:
        made = await session.approve(ask.id, actor=f"p{n}")
    else:
        made = await session.deny(ask.id, "no", actor=f"p{n}")
    return {"item": made.item, "outcome": made.outcome, "by": made.by}


async def respond(session: Session, n: int) -> dict[str, Any]:
    how: Any = ("approve", "decline")[n % 2]
    made = await session.respond_to_approval(how, actor=f"p{n}")
    return {} if made is None else {"item": made.item, "outcome": made.outcome, "by": made.by}


async def abort(session: Session, n: int) -> dict[str, Any]:
    await session.abort(f"enough {n}")
    return {}


async def switch(session: Session, n: int) -> dict[str, Any]:
    mode = MODES[n % len(MODES)]
    await session.mode.switch(mode)
    return {"mode": mode}


async def choose(session: Session, n: int) -> dict[str, Any]:
    mode = MODES[n // 2 % len(MODES)]
    await session.model.set(MODELS[n % 2], mode=mode)
    return {"model": [mode, MODELS[n % 2]]}


async def count(session: Session, n: int) -> dict[str, Any]:
    def one_more(state: dict[str, Any]) -> int:
        state["n"] += 1
        return int(state["n"])

    return {"counted": await session.state.update(one_more)}


async def keep(session: Session, n: int) -> dict[str, Any]:
    await session.thread.settings.set(**{f"name{n % 3}": n})
    return {"set": [f"name{n % 3}", n]}


async def rule(session: Session, n: int) -> dict[str, Any]:
    await session.permissions.set(tool="fine", rule="deny" if n % 2 else None)
    return {}


async def grant(session: Session, n: int) -> dict[str, Any]:
    await session.grant_tool("fine")
    return {}


async def edit(session: Session, n: int) -> dict[str, Any]:
    waiting = await session.follow_ups.list()
    if waiting:
        await session.follow_ups.edit(waiting[n % len(waiting)].seq, f"talk {n}")
    return {}


async def reorder(session: Session, n: int) -> dict[str, Any]:
    waiting = await session.follow_ups.list()
    if waiting:
        await session.follow_ups.reorder([waiting[-1].seq])
    return {}


async def remove(session: Session, n: int) -> dict[str, Any]:
    waiting = await session.follow_ups.list()
    if waiting:
        await session.follow_ups.remove(waiting[n % len(waiting)].seq)
    return {}


async def fork(session: Session, n: int) -> dict[str, Any]:
    other = await session.thread.clone(f"Fork {n}", id=f"fork{n}")
    [forked] = await other.events(kinds=("thread.forked",))
    return {"fork": other.key.thread, "at": forked.json()["at"]}


VERBS: dict[str, Callable[[Session, int], Awaitable[dict[str, Any]]]] = {
    verb.__name__: verb
    for verb in (
        post,
        decide,
        respond,
        abort,
        switch,
        choose,
        count,
        keep,
        rule,
        grant,
        edit,
        reorder,
        remove,
        fork,
    )
}
