"""What the tests of sub-agents share: an agent with two of them, and a model that plays all the
parts by what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast import Agent, Harness, SubAgent, tool
from holdfast.events import Event
from holdfast.harness.session.session import Session, core_of
from holdfast.models.port import ModelCall
from holdfast.models.scripted import Say, ScriptedModel, Step, Use

from ..kernel.scene import PATIENCE


@tool
def look(what: str) -> str:
    """Look at something."""
    return f"{what} is blue"


@tool(approval="ask", category="writing")
def paint(what: str) -> str:
    """Paint something."""
    return f"{what} is red now"


def scout(**parts: Any) -> SubAgent:
    """A sub-agent that may look and paint."""
    given: dict[str, Any] = {"instructions": "Scout.", "tools": ["look", "paint"], **parts}
    return SubAgent("scout", "finds things out", **given)


def lead(*subagents: SubAgent, **parts: Any) -> Agent:
    """An agent with sub-agents; a scout, if none are given."""
    given: dict[str, Any] = {"instructions": "Lead.", "tools": [look, paint], **parts}
    return Agent("Lead", subagents=subagents or (scout(),), **given)


def hand(task: str, agent: str = "scout", **more: Any) -> Any:
    """A call that hands a task on."""
    return Use("subagent", agent=agent, task=task, **more)


def plays(parts: Mapping[str, Step | Sequence[Step]], **options: Any) -> ScriptedModel:
    """A model that has a script for each thing that it is told."""
    return ScriptedModel.by_input(parts, **options)


GO: dict[str, Step | Sequence[Step]] = {
    "Go.": [Say("I ask.", calls=[hand("Find it.")], usage={"input_tokens": 1}), "All is well."],
    "Find it.": [
        Say(calls=[Use("look", what="sky")], usage={"input_tokens": 10}),
        Say("The sky is blue.", usage={"input_tokens": 20}),
    ],
}
ASKING: dict[str, Step | Sequence[Step]] = {
    "Go.": [Say(calls=[hand("Paint it.")]), "All is well."],
    "Paint it.": [Say("I paint.", calls=[Use("paint", what="sky")]), "It is painted."],
}


async def sent(harness: Harness, text: str = "Go.", id: str = "s") -> tuple[Session, Any]:
    async with asyncio.timeout(PATIENCE):
        session = await harness.get_or_create(id)
        return session, await session.send(text)


async def child(session: Session, n: int = 0) -> Session:
    """The session of the sub-agent that was begun as number `n`."""
    return await session.subagents.open((await session.subagents.list())[n].thread)


async def outcome(session: Session, n: int = 0) -> dict[str, Any]:
    """What the parent's call came to."""
    found = await session.events(kinds=("tool.finished",))
    payload: dict[str, Any] = found[n].json()
    return payload


def asked_as(model: ScriptedModel, instructions: str) -> list[ModelCall]:
    """The calls of the model in one part."""
    return [call for call in model.calls if call.system == instructions]


async def told(thread: Session) -> None:
    """Wait until the parent was told what came of a sub-agent."""
    live = core_of(thread).live
    await live.until(lambda: not live.state.owes)


def kinds(events: Sequence[Event]) -> list[str]:
    return [event.kind for event in events]
