"""A real agent of LangGraph in a process: `langgraph_agent URL WAY STOP`. It begins a conversation,
or continues it from wherever it is, and prints its messages. After `STOP` calls that write it is
killed; 0 means never. `WAY` is `invoke` or `ainvoke`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import create_react_agent
from langgraph.types import Command, interrupt

from holdfast.adapters.langgraph import HoldfastSaver

CONFIG: Any = {"configurable": {"thread_id": "customer-42"}}


class Model(BaseChatModel):
    """Asks for two tools at once, and answers when both have answered."""

    @property
    def _llm_type(self) -> str:
        return "stand-in"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        said = AIMessage("Done.", id="answer")
        if messages[-1].type != "tool":
            calls = [
                {"name": name, "args": {"order": 42}, "id": name} for name in ("look_up", "refund")
            ]
            said = AIMessage("", id="calls", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=said)])


@tool
def look_up(order: int) -> str:
    """Say where an order is."""
    return f"order {order} was shipped"


@tool
def refund(order: int) -> str:
    """Refund an order, if a person approves."""
    return f"refunded {order}: {interrupt({'refund': order})}"


class Killed(HoldfastSaver):
    """Counts the calls that write, and ends the process after one of them."""

    stop = 0
    made = 0

    def _count(self) -> None:
        self.made += 1
        if self.made == self.stop:
            os.kill(os.getpid(), signal.SIGKILL)

    def put(self, *args: Any) -> Any:
        found = super().put(*args)
        self._count()
        return found

    def put_writes(self, *args: Any) -> None:
        super().put_writes(*args)
        self._count()

    async def aput(self, *args: Any) -> Any:
        found = await super().aput(*args)
        self._count()
        return found

    async def aput_writes(self, *args: Any) -> None:
        await super().aput_writes(*args)
        self._count()


def next_input(state: Any) -> Any:
    """Return what continues a conversation: None if its graph only has to go on."""
    if not state.created_at:
        return {"messages": [("user", "Refund 42.")]}
    return Command(resume="yes") if state.interrupts else None


async def main(url: str, way: str, stop: str) -> None:
    saver = Killed(url)
    saver.stop = int(stop)
    graph = StateGraph(MessagesState)
    graph.add_node("shop", create_react_agent(Model(), [look_up, refund]))  # a graph in a graph
    graph.add_edge(START, "shop")
    agent = graph.compile(checkpointer=saver)
    while True:
        given = next_input(await agent.aget_state(CONFIG))
        if way == "invoke":
            await asyncio.to_thread(agent.invoke, given, CONFIG, durability="sync")
        else:
            await agent.ainvoke(given, CONFIG, durability="sync")
        state: Any = await agent.aget_state(CONFIG)
        if not state.next:
            break
    said = [[message.type, message.content] for message in state.values["messages"]]
    print(json.dumps({"messages": said, "calls": saver.made}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
