"""The agent of the simulations: its tools fail in many ways, and its model makes the tool calls
that are listed in each message.

A message such as `#7 charge+note/ask` makes the model call `charge` and `note`, then `ask`, and
then answer. The model derives its next step only from the prompt, as any model does.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any, cast

from ... import environment
from ...errors import ModelError, ModelUnavailable
from ...harness import (
    Agent,
    DontKnow,
    Happened,
    Mode,
    NotHappened,
    Park,
    ProbeAnswer,
    SubAgent,
    ToolContext,
    hook,
    tool,
)
from ...models.port import (
    CallChunk,
    Chunk,
    EndChunk,
    FromModel,
    FromUser,
    ModelCall,
    Text,
    TextChunk,
    ThoughtChunk,
)
from ...models.scripted import check_prompt
from .cluster import ProcessEnvironment, SimulatedProcess

MODEL, OTHER_MODEL = "simulated/model", "simulated/other"
ODD = 13  # a number of input tokens for which the price cannot be computed
MOST_SUMMARY = 4 << 20  # characters of a summary that a harness accepts
LONG = 60  # answers with at least this many characters are streamed slowly
DELEGATED = ("sub", "det")  # prefixes of tools that a sub-agent calls; `det`: a detached one
CROWDS = {"many": "note", "crowd": "refund"}
MESSAGE = re.compile(r"#(\S+) ?([\w+/]*)")


def this_process() -> SimulatedProcess:
    """Return the simulated process in which the caller runs."""
    return cast(ProcessEnvironment, environment.current()).process


def record_effect(context: ToolContext, *, repeatable: bool = False) -> None:
    """Record that a tool had an external effect, which a crash does not undo."""
    process, key = this_process(), context.session
    process.cluster.effects.add(
        process.name,
        key.session,
        key.thread,
        context.name,
        context.call,
        context.key,
        repeatable=repeatable,
    )


@tool(repeat_safe=True)
async def note(n: int, context: ToolContext) -> str:
    """Take a note; repeating it does no harm."""
    record_effect(context, repeatable=True)
    return f"noted {n}"


@tool
def count(n: int) -> int:
    """Count, in a thread."""
    return n + 1


@tool
async def charge(n: int, context: ToolContext) -> str:
    """Charge a card: must not happen twice."""
    await asyncio.sleep(0.01)
    record_effect(context)
    await asyncio.sleep(0.01)
    return f"charged {n}"


@tool(on_unknown="tell")
async def mail(n: int, context: ToolContext) -> str:
    """Send a mail; the model is told if nobody knows whether it was sent."""
    record_effect(context)
    await asyncio.sleep(0.02)
    return f"mailed {n}"


@tool(approval="ask")
async def refund(n: int, context: ToolContext) -> str:
    """Refund, if a person agrees."""
    record_effect(context)
    return f"refunded {n}"


@tool(approval="ask", expires=20.0)
async def publish(n: int, context: ToolContext) -> str:
    """Publish, if a person agrees in time."""
    record_effect(context)
    return f"published {n}"


@tool(approval="ask", approvals=2)
async def wire(n: int, context: ToolContext) -> str:
    """Transfer money, if two people agree."""
    record_effect(context)
    return f"wired {n}"


@tool
async def ask(n: int, context: ToolContext) -> str:
    """Ask a question, and continue with the answer."""
    if context.answer is None:
        raise Park(f"question {n}?", expires=None)
    record_effect(context)
    return f"answered {context.answer.outcome}"


@tool
async def slow(n: int, context: ToolContext) -> str:
    """Work for some seconds, and report progress."""
    await context.progress({"n": n})
    await asyncio.sleep(1.0 + n % 3)
    record_effect(context)
    return "done at last"


@tool(timeout=2.0)
async def hang(n: int) -> str:
    """Never return."""
    await asyncio.Event().wait()
    return ""


@tool(timeout=3.0)
async def deaf(n: int, context: ToolContext) -> str:
    """Ignore cancellation for a while."""
    for _ in range(3):
        try:
            await asyncio.sleep(2.0)
        except asyncio.CancelledError:
            continue
    return "heard nothing"


@tool
async def fail(n: int) -> str:
    """Raise."""
    raise ValueError(f"no {n}")


@tool
async def die_before(n: int, context: ToolContext) -> str:
    """Crash the process before the effect."""
    if _first(context):
        await crash()
    record_effect(context)
    return "survived"


@tool
async def die_after(n: int, context: ToolContext) -> str:
    """Crash the process after the effect."""
    record_effect(context)
    if _first(context):
        await crash()
    return "survived"


@tool
async def nested(n: int, context: ToolContext) -> str:
    """Call another tool."""
    result = await context.invoke("charge", n=n)
    return f"inner: {result.content}"


@tool
async def remember(n: int, context: ToolContext) -> str:
    """Change the user state."""
    await context.update_state(last=n)
    return "remembered"


@tool(approval="ask")
async def risky(n: int, context: ToolContext) -> str:
    """Crash the process after an effect that a person approved."""
    record_effect(context)
    if _first(context):
        await crash()
    return f"took risk {n}"


@tool
async def nested_ask(n: int, context: ToolContext) -> str:
    """Call a tool that asks a question, which a nested call cannot."""
    result = await context.invoke("ask", n=n)
    return f"inner: {result.content}"


@tool(repeat_safe=True)
async def die_always(n: int) -> str:
    """Crash the process at every attempt."""
    await crash()
    return ""


@tool
async def stray(n: int) -> str:
    """Cancel itself."""
    raise asyncio.CancelledError


@tool
async def huge(n: int) -> str:
    """Return more than a log holds."""
    return "x" * 20_000_000


@tool
async def bad(n: int, must: str) -> str:
    """Take an argument that the model forgets."""
    return must


@tool(approval="deny")
async def forbidden(n: int) -> str:
    """Never run."""
    return ""


@tool
async def parker(n: int, context: ToolContext) -> str:
    """Ask a question that expires."""
    if context.answer is None:
        raise Park(f"quick question {n}?", expires=4.0)
    return f"answered {context.answer.outcome}"


@tool
async def swarm(n: int, context: ToolContext) -> str:
    """Call another tool many times at once."""
    await asyncio.gather(*(context.invoke("hang", n=k) for k in range(600)))
    return "back"


async def transferred(context: ToolContext) -> ProbeAnswer:
    """Look for the transfer in the ledger; of some transfers, the bank says nothing."""
    await asyncio.sleep(0.01)
    if _number(context) % 5 == 4:
        return DontKnow("the bank is closed")
    made = any(effect.key == context.key for effect in this_process().cluster.effects.all)
    return Happened("transferred") if made else NotHappened()


@tool(probe=transferred)
async def transfer(n: int, context: ToolContext) -> str:
    """Transfer money. Some transfers crash the process, before or after the effect."""
    if _number(context) % 3 == 0 and _first(context):
        await crash()
    await asyncio.sleep(0.01)
    record_effect(context)
    if _number(context) % 3 == 1 and _first(context):
        await crash()
    return "transferred"


def _number(context: ToolContext) -> int:
    """Return a number that is the same in all attempts of a call."""
    return sum(map(ord, context.key))


@tool(concurrency=1)
async def single(n: int, context: ToolContext) -> str:
    """Run one call at a time."""
    await asyncio.sleep(0.05)
    record_effect(context)
    return "one"


def _fails(messages: Any) -> str:
    raise ValueError("no summary")


async def _slow(messages: Any) -> str:
    await asyncio.sleep(1.5)
    return "slow summary"


def _long(messages: Any) -> str:
    return "x" * (MOST_SUMMARY + 1)


SUMMARISERS: dict[str, Any] = {"fails": _fails, "slow": _slow, "long": _long}


def price(ref: str, usage: Mapping[str, int]) -> float:
    """Return the price of a call. Fails for `ODD` input tokens, which the fault `model_odd`
    causes."""
    return 0.001 / (usage.get("input_tokens", 0) - ODD)


async def crash() -> None:
    """Crash the process that runs this. Never returns."""
    process = this_process()
    process.loop.kill()
    process.cluster.scheduler.after(0.0, lambda: process.cluster.crashed(process))
    await process.loop.create_future()


def _first(context: ToolContext) -> bool:
    seen = this_process().cluster.died
    if context.call in seen:
        return False
    seen.add(context.call)
    return True


TOOLS = [
    *(note, count, charge, mail, refund, publish, wire, ask, slow, hang, deaf, fail),
    *(die_before, die_after, nested, remember, die_always, stray, huge, bad, forbidden, risky),
    *(parker, single, nested_ask, swarm, transfer),
]
NAMES = tuple(each.name for each in TOOLS)


def make_agent(version: int = 1) -> Agent:
    """Return the agent. Each version has a tool that the other versions lack, as during a rolling
    upgrade."""

    @hook("run.finished")
    async def after(context: Any, event: Any) -> None:
        """Wait briefly. An agent with a hook exercises other code in the driver, which keeps the
        lease until its hooks have run.
        """
        await asyncio.sleep(0.01)

    @tool(name=f"added{version}", approval="ask")
    async def added(n: int) -> str:
        """Exists in this version only."""
        return "new"

    @tool(name="changed", approval="ask", version=str(version))
    async def changed(n: int, context: ToolContext) -> str:
        """Do something else in each version."""
        record_effect(context)
        return f"version {version}"

    tools = ["note", "charge", "refund", "hang", "ask", "remember"]
    clerk = SubAgent("clerk", "does a task", instructions="Do it.", tools=tools, detached=True)
    return Agent(
        "simulated",
        instructions="Follow the program in the message.",
        tools=[*TOOLS, added, changed],
        modes=[Mode("plain"), Mode("brief", steps=3)],
        subagents=[clerk],
        hooks=[after] if version > 1 else [],
    )


class ProgramModel:
    """A model that makes the tool calls that are listed in the last user message. Active faults
    make it fail.
    """

    def __init__(self, ref: str = MODEL) -> None:
        self.ref = ref

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        process = this_process()
        check_prompt(call)
        process.cluster.prompts += 1
        fault = process.cluster.faults.model(process.place)
        await asyncio.sleep(process.cluster.random.uniform(0.001, 0.02))
        if fault == "model_deaf":
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(2.0)
        if fault == "model_limit":
            raise ModelUnavailable(model=self.ref, problem="too many requests", status=429)
        if fault == "model_error":
            raise ModelError(model=self.ref, problem="overloaded", status=503)
        text, calls = next_step(call)
        if fault == "model_repeat":
            yield ThoughtChunk("again and again")
        for piece in text.split():
            yield TextChunk(f"{piece} ")
            await asyncio.sleep(0.002 if len(text) < LONG else 0.07)
            if fault == "model_cut":
                return
            if fault == "model_stall":
                fault = None
                await asyncio.sleep(3.0)
        used = ODD if fault == "model_odd" else 10
        if fault == "model_odd":
            calls = [*calls, "unheard_of"]
        for name in calls * (2 if fault == "model_repeat" else 1):
            yield CallChunk(*_arguments(name))
        if call.output is not None and not calls and tag_of(call) % 4 and not mute(call):
            yield CallChunk(call.output.name, {"value": {"good": True}})
        yield EndChunk(
            "calls" if calls else "stop",
            {"input_tokens": used, "output_tokens": 5},
        )


def next_step(call: ModelCall) -> tuple[str, list[str]]:
    """Return the text and the tool calls that follow from a prompt."""
    last = max(n for n, m in enumerate(call.messages) if isinstance(m, FromUser))
    message = cast(FromUser, call.messages[last])
    asked = " ".join(part.text for part in message.content if isinstance(part, Text))
    found = MESSAGE.findall(asked)
    tag, program = found[-1] if found else ("?", "")
    rounds = [part.split("+") for part in program.split("/") if part]
    done = sum(isinstance(m, FromModel) and bool(m.calls) for m in call.messages[last:])
    known = {each.name for each in call.tools}
    calls = [n for n in rounds[done] if _tool(n) in known] if done < len(rounds) else []
    if program in CROWDS and not done:
        calls = [CROWDS[program]] * 300
    said = f"working on #{tag}" if calls else f"answered #{tag}"
    return said + " at length" * (20 if program.startswith("long") else 0), calls


def mute(call: ModelCall) -> bool:
    """Return whether the model never gives its typed answer, however often it is asked for it."""
    asked = [part for m in call.messages if isinstance(m, FromUser) for part in m.content]
    return any(isinstance(part, Text) and part.text.endswith(" mute") for part in asked)


def tag_of(call: ModelCall) -> int:
    """Return the sum of the character codes of the next answer, as a reproducible number."""
    text = next_step(call)[0]
    return sum(map(ord, text))


def _tool(name: str) -> str:
    return "subagent" if name[:3] in DELEGATED else name


def _arguments(name: str) -> tuple[str, dict[str, Any]]:
    if name[:3] in DELEGATED:
        how = {"detached": True} if name.startswith("det") else {}
        return "subagent", {"agent": "clerk", "task": f"#{name} {name[3:]}", **how}
    return name, {"n": 1}
