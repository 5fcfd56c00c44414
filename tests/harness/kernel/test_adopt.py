"""Sessions that the adapter of an SDK wrote: a harness continues them once they are adopted."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Agent, Harness, InvalidValue, NewEvent, Sessions, Store, key
from holdfast.adapters.writing import append
from holdfast.models.port import FromTools, FromUser, ModelCall, Text
from holdfast.models.scripted import ScriptedModel
from holdfast.stores.memory import MemoryStore

CALL = {"id": "c1", "name": "look", "arguments": {}}
TURN: list[tuple[str, Any]] = [
    ("message.received", {"text": "Weather?"}),
    ("message.completed", {"calls": [CALL]}),
    ("tool.finished", {"call": "c1", "result": "rain"}),
    ("message.completed", {"text": "Rain."}),
]


async def written(store: Store, facts: list[tuple[str, Any]], agent: str = "openai") -> None:
    await append(store, key("s"), [NewEvent.of(*fact) for fact in facts], agent=agent)


def harness(store: Store, model: ScriptedModel) -> Harness:
    return Harness(Agent("shop", instructions="Help."), store=store, default_model=model)


def spoken(call: ModelCall) -> list[str]:
    """The texts of a prompt, with the results of calls."""
    texts: list[str] = []
    for message in call.messages:
        if isinstance(message, FromUser):
            texts += [part.text for part in message.content if isinstance(part, Text)]
        elif isinstance(message, FromTools):
            texts += [result.content for result in message.results]
        else:
            texts.append(message.text)
    return texts


async def test_send_says_how_to_continue_the_session_of_an_sdk() -> None:
    store = MemoryStore()
    await written(store, TURN)
    async with harness(store, ScriptedModel(["hi"])) as shop:
        with pytest.raises(InvalidValue) as caught:
            await shop.send("s", "And now?")
    assert caught.value.field == "id"
    assert "was written by the adapter 'openai'" in str(caught.value)
    assert "call `harness.adopt('s')` first" in str(caught.value)


async def test_an_adopted_conversation_goes_on_with_its_earlier_turns() -> None:
    store, model = MemoryStore(), ScriptedModel(["Sun."], repeat=True)
    await written(store, TURN)
    async with harness(store, model) as shop:
        session = await shop.adopt("s", actor="ann")
        assert (await shop.adopt("s")) is session
        assert (await session.send("And now?")).text == "Sun."
        assert spoken(model.calls[-1]) == ["Weather?", "", "rain", "Rain.", "And now?"]
    adopted = [e async for e in store.read(key("s")) if e.kind == "session.adopted"]
    assert [(e.json(), e.actor) for e in adopted] == [({"agent": "shop"}, "ann")]
    row = await store.row(key("s"))
    assert row is not None
    assert (row.agent, row.due, row.run) == ("shop", None, "done")


async def test_what_the_sdk_left_open_is_not_taken_up_but_stays_in_the_prompt() -> None:
    store, model = MemoryStore(), ScriptedModel(["Done."], repeat=True)
    await written(store, TURN[:2])
    async with harness(store, model) as shop:
        session = await shop.adopt("s")
        await shop.evict(0)
        session = await shop.open("s")
        assert (await session.send("Never mind.")).text == "Done."
        assert len(model.calls) == 1
        said = spoken(model.calls[0])
        assert (said[0], said[-1]) == ("Weather?", "Never mind.")
    row = await store.row(key("s"))
    assert row is not None
    assert row.due is None


async def test_the_session_of_another_agent_is_not_adopted() -> None:
    store = MemoryStore()
    await written(store, TURN, agent="bank")
    async with harness(store, ScriptedModel(["hi"])) as shop:
        with pytest.raises(InvalidValue, match="belongs to agent 'bank'"):
            await shop.adopt("s")


async def test_an_unanswered_message_of_an_sdk_does_not_keep_its_session_from_going_stale() -> None:
    store = MemoryStore()
    await written(store, TURN[:1])
    await written(store, [("session.timed", {"ttl": 10})])
    later = Sessions(store, clock=lambda: 1 << 45)
    assert (await later.sweep_stale()).suspended == ["s"]
