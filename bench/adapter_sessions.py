"""Conversations of agent SDKs, by our adapter and by the SDK's own store on SQLite, driven alike.

Each function opens one of them in a folder, as its users do: ours on the URL of a store.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from . import peers
from .entries import turn
from .measure import steady
from .peers import need
from .turns import url

WriteTurn: TypeAlias = Callable[[int], Awaitable[None]]


class Conversations(Protocol):
    async def begin(self, name: str) -> WriteTurn:
        """Begin a conversation, and return a function that writes its next turn."""

    async def load(self, name: str) -> int:
        """Load a conversation, and return how many entries it has."""


Open: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Conversations]]


# The OpenAI Agents SDK


def openai_items(number: int) -> list[dict[str, Any]]:
    """Return a turn as its runner stores it."""
    texts = turn(number)
    part = {"annotations": [], "text": texts.answer, "type": "output_text", "logprobs": []}
    arguments = f'{{"order":"{texts.arguments["order"]}","why":"{texts.thought}"}}'
    call = {"arguments": arguments, "call_id": texts.call, "name": "lookup"}
    answer = {"id": f"msg_{number:032}", "content": [part], "role": "assistant"}
    return [
        {"content": texts.question, "role": "user"},
        {**call, "type": "function_call", "id": f"fc_{number:032}", "status": "completed"},
        {
            "call_id": texts.call,
            "output": str(texts.result["text"]),
            "type": "function_call_output",
        },
        {**answer, "status": "completed", "type": "message"},
    ]


class _OpenAI:
    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make

    async def begin(self, name: str) -> WriteTurn:
        session = self._make(name)
        return lambda number: session.add_items(openai_items(number))

    async def load(self, name: str) -> int:
        return len(await self._make(name).get_items())


@asynccontextmanager
async def openai_ours(folder: Path) -> AsyncGenerator[Conversations, None]:
    need("agents.memory", "openai-agents")
    adapter = need("holdfast.adapters.openai", "openai-agents")
    place = url("sqlite", folder)
    async with adapter.HoldfastSession("first", place):
        yield _OpenAI(lambda name: adapter.HoldfastSession(name, place))


@asynccontextmanager
async def openai_theirs(folder: Path) -> AsyncGenerator[Conversations, None]:
    memory = need("agents.memory", "openai-agents")
    opened: dict[str, Any] = {}

    def make(name: str) -> Any:
        if name not in opened:
            opened[name] = memory.SQLiteSession(name, folder / "theirs.db")
        return opened[name]

    yield _OpenAI(make)
    for session in opened.values():
        session.close()


# LangGraph


def langgraph_messages(made: Any, first: int, number: int) -> list[Any]:
    """Return the messages of a turn, with the ids from `first` on."""
    texts = turn(number)
    call = {"id": texts.call, "name": "lookup", "args": {**texts.arguments, "why": "asked"}}
    return [
        made.HumanMessage(texts.question, id=f"{first}"),
        made.AIMessage(texts.thought, tool_calls=[call], id=f"{first + 1}"),
        made.ToolMessage(texts.result["text"], tool_call_id=texts.call, id=f"{first + 2}"),
        made.AIMessage(texts.answer, id=f"{first + 3}"),
    ]


def langgraph_merging(turns: int) -> float:
    """Return the µs of CPU that LangGraph takes to merge the messages of a turn into a list of
    `turns` turns. A graph does so in each turn, whatever its checkpointer is."""
    made = need("langchain_core.messages", "langgraph-checkpoint")
    merge = need("langgraph.graph.message", "langgraph").add_messages
    earlier = [
        message
        for number in range(turns)
        for message in langgraph_messages(made, 4 * number, number)
    ]
    new = langgraph_messages(made, 4 * turns, turns)
    with steady():
        start = time.process_time()
        merge(earlier, new)
        return (time.process_time() - start) * 1e6


class _LangGraph:
    """Threads of a graph whose one channel is its messages. One checkpoint a turn is the kindest
    reading: a graph writes one a step."""

    def __init__(self, saver: Any) -> None:
        self._saver = saver
        self._base = need("langgraph.checkpoint.base", "langgraph-checkpoint")
        self._messages = need("langchain_core.messages", "langgraph-checkpoint")

    def _config(self, name: str) -> Any:
        return {"configurable": {"thread_id": name, "checkpoint_ns": ""}}

    async def begin(self, name: str) -> WriteTurn:
        messages: list[Any] = []
        config, version = self._config(name), None

        async def write(number: int) -> None:
            nonlocal config, version
            messages.extend(langgraph_messages(self._messages, len(messages), number))
            version = self._saver.get_next_version(version, None)
            checkpoint = self._base.empty_checkpoint()
            checkpoint["channel_values"] = {"messages": [*messages]}
            checkpoint["channel_versions"] = {"messages": version}
            metadata = {"source": "loop", "step": number, "parents": {}}
            config = await self._saver.aput(config, checkpoint, metadata, {"messages": version})

        return write

    async def load(self, name: str) -> int:
        found = await self._saver.aget_tuple(self._config(name))
        return len(found.checkpoint["channel_values"]["messages"])


@asynccontextmanager
async def langgraph_ours(folder: Path) -> AsyncGenerator[Conversations, None]:
    adapter = need("holdfast.adapters.langgraph", "langgraph-checkpoint")
    async with adapter.HoldfastSaver(url("sqlite", folder)) as saver:
        yield _LangGraph(saver)


@asynccontextmanager
async def langgraph_theirs(folder: Path) -> AsyncGenerator[Conversations, None]:
    aio = need("langgraph.checkpoint.sqlite.aio", "langgraph-checkpoint-sqlite")
    async with aio.AsyncSqliteSaver.from_conn_string(str(folder / "theirs.db")) as saver:
        await saver.setup()
        yield _LangGraph(saver)


# Google ADK


class _ADK:
    def __init__(self, service: Any) -> None:
        self._service = service

    async def begin(self, name: str) -> WriteTurn:
        session = await self._service.create_session(
            app_name="shop", user_id="user", session_id=name
        )

        async def write(number: int) -> None:
            for event in peers.adk_events(number):
                await self._service.append_event(session, event)

        return write

    async def load(self, name: str) -> int:
        found = await self._service.get_session(app_name="shop", user_id="user", session_id=name)
        return len(found.events)


@asynccontextmanager
async def adk_ours(folder: Path) -> AsyncGenerator[Conversations, None]:
    need("google.adk.sessions", "google-adk")
    adapter = need("holdfast.adapters.adk", "google-adk")
    service = adapter.HoldfastSessionService(url("sqlite", folder))
    try:
        yield _ADK(service)
    finally:
        await service.close()


@asynccontextmanager
async def adk_theirs(folder: Path) -> AsyncGenerator[Conversations, None]:
    service = need("google.adk.sessions.sqlite_session_service", "google-adk")
    opened = service.SqliteSessionService(str(folder / "theirs.db"))
    yield _ADK(opened)
