"""An agent that talks, pays and tells stories, and a reader of server-sent events that knows
nothing of the one in the client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, NamedTuple

from holdfast import Agent, Harness, Store, tool
from holdfast.harness.session.session import Session
from holdfast.harness.telemetry.logs import LogConfig
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.server.streams.backpressure import OpenStreams
from holdfast.server.streams.session_stream import StreamRequest, begin

PATIENCE = 20.0
STORY = " ".join(f"word{n} é\u2028\U0001f600" for n in range(60))


@tool(approval="ask")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def harness(store: str | Store, *, delay: float = 0.0, **settings: Any) -> Harness:
    model = ScriptedModel.by_input(
        {
            "Pay.": [Say("I pay.", calls=[Use("pay", amount=5)]), "Paid."],
            "Tell a story.": Say(STORY, delay=delay),
            ".": "Good day.",
        }
    )
    agent = Agent("Clerk", instructions="Obey.", tools=[pay])
    logging = LogConfig(level="silent")
    return Harness(agent, default_model=model, store=store, logging=logging, **settings)


class Sent(NamedTuple):
    """One server-sent event."""

    name: str
    id: str | None
    data: dict[str, Any]


async def sent(chunks: AsyncIterator[bytes]) -> AsyncIterator[Sent]:
    """The events of a stream of bytes, by the letter of the standard."""
    text = b""
    async for chunk in chunks:
        text += chunk
        while b"\n\n" in text:
            block, _, text = text.partition(b"\n\n")
            fields = dict(
                line.split(b": ", 1) for line in block.split(b"\n") if not line.startswith(b":")
            )
            if b"data" in fields:
                id = fields.get(b"id")
                yield Sent(
                    fields[b"event"].decode(),
                    None if id is None else id.decode(),
                    json.loads(fields[b"data"]),
                )
    assert text == b""


async def read(session: Session, streams: OpenStreams | None = None, **wish: Any) -> list[Sent]:
    """A whole stream, to its end."""
    streams = streams or OpenStreams(pace=0.0)
    reading = await begin(session, StreamRequest(**wish))
    async with aclosing(streams.chunks(reading)) as chunks:
        return [one async for one in sent(chunks)]


def names(found: list[Sent]) -> list[str]:
    """The names in order, equal neighbours once."""
    return [one.name for n, one in enumerate(found) if n == 0 or found[n - 1].name != one.name]


def texts(found: list[Sent]) -> dict[str, str]:
    """The text of each message, put together of its deltas; fails where they do not join."""
    joined: dict[str, str] = {}
    for one in found:
        if one.name == "delta" and not one.data.get("thought"):
            so_far = joined.get(one.data["message"], "")
            assert one.data["offset"] == len(so_far)
            joined[one.data["message"]] = so_far + one.data["text"]
    return joined
