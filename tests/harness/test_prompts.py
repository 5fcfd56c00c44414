"""The prompt is a function of the log: a process that opens it anew shows the model the same, to
the byte, through compactions, queued messages and tools."""

from __future__ import annotations

import msgspec
import pytest

from holdfast import Agent, Harness, tool
from holdfast.harness.live.log import Live
from holdfast.harness.session.session import core_of
from holdfast.models import Say, ScriptedModel, Use
from holdfast.models.port import ModelCall

MODEL = "scripted/demo"


def speak(call: ModelCall) -> Say:
    """Every third message uses a tool first."""
    last = msgspec.json.encode(call.messages[-1])
    if b"third" in last and b"looked" not in last:
        return Say("Let me look.", calls=[Use("look", at="this"), Use("look", at="that")])
    return Say(f"I have read {len(call.messages)} messages.")


@tool
async def look(at: str) -> str:
    """Look at something."""
    return f"looked at {at}"


async def reopened(live: Live) -> Live:
    again = Live(live.store, live.key)
    await again.open()
    return again


@pytest.mark.parametrize("summarise", [None, lambda messages: f"{len(messages)} messages"])
@pytest.mark.parity("user-demand", 60, 73)
async def test_a_log_that_is_opened_again_gives_the_same_prompt(summarise: object) -> None:
    agent = Agent("shop", instructions="Help.", tools=[look])
    model = ScriptedModel([speak], repeat=True)
    harness = Harness(agent, default_model=model, window_turns=6, summarise=summarise)  # type: ignore[arg-type]
    async with harness:
        session = await harness.get_or_create("s")
        for n in range(24):
            await session.post(f"{n}: {'third' if n % 3 == 2 else 'plain'}")
            if n % 4 != 3:  # else the next one waits behind it
                await session.wait()
            if n % 5 == 4:
                await session.wait()
                again = await reopened(core_of(session).live)
                assert again.state == core_of(session).live.state
                ours = core_of(session).live.history.messages(MODEL, {})
                assert msgspec.json.encode(again.history.messages(MODEL, {})) == (
                    msgspec.json.encode(ours)
                )
                await again.aclose()
        await session.wait()
        events = await session.events()
    made = [event.json() for event in events if event.kind == "compaction.made"]
    assert len(made) >= 3
    assert all(("summary" in payload) == (summarise is not None) for payload in made)
    # However long the conversation, what a model reads stays in its bounds, and nothing is lost.
    assert max(len(call.messages) for call in model.calls) <= 2 + 6 * 4
    assert sum(event.kind == "message.received" for event in events) == 24
