"""A LangGraph thread begins with the messages that another program wrote to its session."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, RemoveMessage
from langgraph.graph import START, MessagesState, StateGraph

from holdfast import NewEvent, Store, connect, key
from holdfast.adapters.langgraph import HoldfastSaver

CONFIG: Any = {"configurable": {"thread_id": "s"}}
RUN = "0b6b1b3e-0000-4000-8000-000000000001"
CALL = {"id": "c1", "name": "look", "arguments": {"city": "Oslo"}}
TURN = [
    ("session.created", {"agent": "shop"}),
    ("message.received", {"text": "Weather?"}),
    ("message.completed", {"text": "Looking.", "calls": [CALL]}),
    ("tool.finished", {"call": "c1", "outcome": "failed", "error": "no wind"}),
    ("message.completed", {"text": "Calm."}),
]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store, None]:
    async with connect(f"sqlite:{tmp_path}/log.db") as store:
        events = [NewEvent.of(kind, data) for kind, data in TURN]
        await store.append(key("s"), events, create=True)
        yield store


def graph(store: Store) -> Any:
    def answer(state: MessagesState) -> dict[str, list[AnyMessage]]:
        return {"messages": [AIMessage(f"seen {len(state['messages'])}")]}

    made = StateGraph(MessagesState)
    made.add_node(answer)
    made.add_edge(START, "answer")
    return made.compile(checkpointer=HoldfastSaver(store))


async def said(store: Store) -> list[Any]:
    state = await graph(store).aget_state(CONFIG)
    return [message.content for message in state.values.get("messages", [])]


async def natives(store: Store) -> int:
    kinds = [event.kind async for event in store.read(key("s"))]
    return len([kind for kind in kinds if kind.startswith(("message.", "tool."))])


async def test_messages_of_others_are_the_first_state_and_are_stored_once(store: Store) -> None:
    first = ["Weather?", "Looking.", "no wind", "Calm."]
    state = await graph(store).aget_state(CONFIG)
    assert [message.content for message in state.values["messages"]] == first
    assert state.values["messages"][1].tool_calls[0]["args"] == {"city": "Oslo"}
    assert state.values["messages"][2].status == "error"
    assert (await graph(store).aget_state(state.config)).values == state.values
    for turn in (1, 2):
        await graph(store).ainvoke({"messages": [("user", "And?")]}, CONFIG)
        assert await natives(store) == 4 + 2 * turn
    assert await said(store) == [*first, "And?", "seen 5", "And?", "seen 7"]


async def test_message_of_another_is_removed_from_the_state(store: Store) -> None:
    state = await graph(store).aget_state(CONFIG)
    gone = RemoveMessage(id=state.values["messages"][0].id)
    await graph(store).aupdate_state(CONFIG, {"messages": [gone]})
    assert await said(store) == ["Looking.", "no wind", "Calm."]
    assert await natives(store) == 4


async def test_erased_message_of_another_is_missing(store: Store) -> None:
    await store.erase(key("s"), [2], reason="asked")
    assert await said(store) == ["Looking.", "no wind", "Calm."]
    await graph(store).ainvoke({"messages": [("user", "And?")]}, CONFIG)
    await store.erase(key("s"), [5], reason="asked")
    assert await said(store) == ["Looking.", "no wind", "And?", "seen 4"]


async def test_thread_whose_checkpoints_were_deleted_does_not_begin_again(store: Store) -> None:
    await graph(store).ainvoke(
        {"messages": [("user", "And?")]}, {**CONFIG, "metadata": {"run_id": RUN}}
    )
    await HoldfastSaver(store).adelete_for_runs([RUN])
    assert await said(store) == []


async def test_long_conversation_is_not_copied(store: Store) -> None:
    more = [NewEvent.of("message.received", {"text": str(number)}) for number in range(900)]
    await store.append(key("s"), more)
    await graph(store).ainvoke({"messages": [("user", "And?")]}, CONFIG)
    assert await natives(store) == 906
    assert len(await said(store)) == 906
