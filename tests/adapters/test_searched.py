"""What agent SDKs write is found once, in the message that it is."""

from __future__ import annotations

from typing import Any

import agents  # noqa: F401 - before a loop runs
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

from holdfast import NewEvent, Sessions, Store, key
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.openai import HoldfastSession
from holdfast.stores.memory import MemoryStore


async def kinds_found(store: Store, words: str) -> list[str]:
    return [hit.kind for hit in (await Sessions(store).search(words)).hits]


async def test_messages_of_a_graph_are_found_once() -> None:
    async def answer(_: MessagesState) -> dict[str, list[AIMessage]]:
        return {"messages": [AIMessage("A heron.")]}

    store = MemoryStore()
    graph: Any = StateGraph(MessagesState)
    graph.add_node(answer).add_edge(START, "answer")
    agent = graph.compile(checkpointer=HoldfastSaver(store))
    config = {"configurable": {"thread_id": "s"}}
    await agent.ainvoke({"messages": [("user", "Which pelican?")]}, config)
    assert await kinds_found(store, "pelican") == ["message.received"]
    assert await kinds_found(store, "heron") == ["message.completed"]


async def test_state_of_a_paused_run_repeats_no_message() -> None:
    store = MemoryStore()
    message = {"role": "user", "content": "Which pelican?"}
    await HoldfastSession("s", store).add_items([message])
    state = NewEvent.of("openai.run_state", {"state": {"original_input": [message]}})
    await store.append(key("s"), [state])
    assert await kinds_found(store, "pelican") == ["message.received"]
