"""A LangGraph agent whose checkpoints are in a Holdfast store. Runs without a key: a function is
the model. Run it twice: the second run continues the conversation of the first."""

import sys

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from holdfast.adapters.langgraph import HoldfastSaver


def model(state: MessagesState) -> dict[str, list[AIMessage]]:
    messages = state["messages"]
    if messages[-1].type == "tool":
        return {"messages": [AIMessage("It was shipped.")]}
    call = {"name": "look_up", "args": {"order": 42}, "id": f"call_{len(messages)}"}
    return {"messages": [AIMessage("", tool_calls=[call])]}


def look_up(state: MessagesState) -> dict[str, list[ToolMessage]]:
    call = state["messages"][-1].tool_calls[0]
    return {"messages": [ToolMessage("order 42 was shipped", tool_call_id=call["id"])]}


def shop() -> StateGraph:
    graph = StateGraph(MessagesState)
    graph.add_node(model)
    graph.add_node(look_up)
    graph.add_edge(START, "model")
    graph.add_conditional_edges(
        "model", lambda state: "look_up" if state["messages"][-1].tool_calls else END
    )
    graph.add_edge("look_up", "model")
    return graph


def main(url: str) -> None:
    with HoldfastSaver.from_conn_string(url) as saver:
        agent = shop().compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "customer-42"}}
        state = agent.invoke({"messages": [("user", "Where is order 42?")]}, config)
        print(state["messages"][-1].content)
        print(f"{len(state['messages'])} messages in the conversation")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sqlite:langgraph.db")
