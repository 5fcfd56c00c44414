"""What the tests of the harness share: short words for what a session did, and models and tools
that wait until they are told to go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

from holdfast import Agent, Harness
from holdfast.events import Event
from holdfast.harness.session.session import Session
from holdfast.models.port import (
    Chunk,
    EndChunk,
    FromModel,
    FromTools,
    FromUser,
    ModelCall,
    Text,
    TextChunk,
)
from holdfast.models.scripted import ScriptedModel, Step
from holdfast.values.delta import Delta
from holdfast.values.stream_items import CaughtUp, Item

PATIENCE = 30.0  # seconds; only a hang takes so long


def helper(**parts: Any) -> Agent:
    """An agent of which only what is given matters."""
    return Agent(**{"label": "Helper", "instructions": "Help.", **parts})


def script(*steps: Step, **options: Any) -> ScriptedModel:
    """A model that plays these steps for each message of a person."""
    return ScriptedModel(steps, **{"per_turn": True, **options})


def serve(agent: Agent, *steps: Step, **settings: Any) -> Harness:
    """A harness whose model plays these steps."""
    if "default_model" not in settings:
        settings["default_model"] = script(*steps)
    return Harness(agent, **settings)


async def until(true: Callable[[], Any], what: str = "it") -> None:
    """Wait until something is so."""
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110 - whatever is asked for has no event
            await asyncio.sleep(0.005)


def names(items: Iterable[Item]) -> list[str]:
    """A stream in words: the kinds of its events; text in flight is `delta`, once in a row."""
    found: list[str] = []
    for item in items:
        name = "delta" if isinstance(item, Delta) else "caught up"
        if isinstance(item, Event):
            name = item.kind
        elif not isinstance(item, Delta | CaughtUp):
            name = "trouble"
        if name != "delta" or found[-1:] != ["delta"]:
            found.append(name)
    return found


async def kinds(session: Session) -> list[str]:
    """The whole log in words."""
    return [event.kind for event in await session.events()]


def only(events: Iterable[Item], kind: str) -> list[dict[str, Any]]:
    """The payloads of all events of one kind."""
    return [e.json() for e in events if isinstance(e, Event) and e.kind == kind]


def read(call: ModelCall) -> list[str]:
    """A prompt in words, a line for each message."""
    lines = []
    for message in call.messages:
        if isinstance(message, FromUser):
            parts = [
                p.text if isinstance(p, Text) else f"<{p.media_type}>" for p in message.content
            ]
            lines.append("user: " + " | ".join(parts))
        elif isinstance(message, FromModel):
            asked = ", ".join(made.name for made in message.calls)
            lines.append(f"model: {message.text}{f' [{asked}]' if asked else ''}")
        elif isinstance(message, FromTools):
            lines.append("tools: " + " | ".join(r.content for r in message.results))
    return lines


class Gate:
    """Something that others wait at. `met` is set when one has come."""

    def __init__(self) -> None:
        self.met, self.opened = asyncio.Event(), asyncio.Event()
        self.passed = 0

    async def pass_through(self) -> None:
        self.met.set()
        await self.opened.wait()
        self.passed += 1

    async def someone(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.met.wait()

    def open(self) -> None:
        self.opened.set()


class Slow:
    """A model that says `first`, waits at its gate, and then says `rest`. `per` text of the
    last message it says something else at once."""

    def __init__(
        self,
        first: str = "Let me",
        rest: str = " see.",
        *,
        ref: str = "slow/model",
        quick: Iterable[str] = (),
    ) -> None:
        self.ref, self.first, self.rest, self.quick = ref, first, rest, set(quick)
        self.gate = Gate()
        self.calls: list[ModelCall] = []

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        self.calls.append(call)
        last = read(call)[-1].removeprefix("user: ")
        if last in self.quick:
            yield TextChunk(f"quick {last}")
        else:
            yield TextChunk(self.first)
            await self.gate.pass_through()
            yield TextChunk(self.rest)
        yield EndChunk()
