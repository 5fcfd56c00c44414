"""The sessions of agent SDKs, each driven as its contract asks and set as it ships.

They are optional: one that is not installed is `Absent`, and the report says so. Imports
are dynamic, so that this module can be read and type-checked without them.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import os
import sqlite3
import time
import warnings
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from .entries import turn
from .measure import Absent, steady
from .servers import CONNECTIONS, Place

OPENAI = "OpenAI SQLiteSession"
OPENAI_ENCRYPTED = "OpenAI EncryptedSession"
ADK_SQLITE = "ADK SqliteSessionService"
ADK_DATABASE = "ADK DatabaseSessionService"
LANGGRAPH = "LangGraph AsyncSqliteSaver"
OPENAI_POSTGRES = "OpenAI SQLAlchemySession"
ADK_POSTGRES = "ADK DatabaseSessionService"
OPENAI_MONGODB = "OpenAI MongoDBSession"

Loop = Callable[[], Awaitable[None]]

# How each writes a turn, as it ships.
WRITES = {
    OPENAI: "one transaction a turn",
    OPENAI_ENCRYPTED: "one transaction a turn, a Fernet token an entry",
    ADK_SQLITE: "a connection and a transaction an entry",
    ADK_DATABASE: "a transaction an entry",
    LANGGRAPH: "one checkpoint a turn, with the whole history in it",
    OPENAI_POSTGRES: "one transaction a turn",
    OPENAI_MONGODB: "a counter, then a document a turn",
}


def durability(folder: Path) -> str:
    """How the database that a peer left in `folder` is set; none of them sets `synchronous`."""
    path = next(folder.glob("*.db"))
    conn = sqlite3.connect(path)
    try:
        (journal,) = conn.execute("PRAGMA journal_mode").fetchone()
        (level,) = conn.execute("PRAGMA synchronous").fetchone()
    finally:
        conn.close()
    return f"journal {journal}, synchronous {('off', 'normal', 'full', 'extra')[level]}"


def need(module: str, package: str) -> Any:
    """A module of a peer."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(module)
    except ImportError as error:
        missing = error.name or module
        raise Absent(f"not installed ({package}: no module {missing})") from error


async def gathered(loops: Sequence[Loop]) -> float:
    """Seconds for all loops at once."""
    with steady():
        start = time.perf_counter()
        await asyncio.gather(*(loop() for loop in loops))
        return time.perf_counter() - start


async def warmly(first: Sequence[Loop], loops: Sequence[Loop]) -> float:
    """Seconds for all loops at once, after the first ones, by which connections are made and
    statements prepared."""
    await asyncio.gather(*(loop() for loop in first))
    return await gathered(loops)


def openai_turns(folder: Path, sessions: int, turns: int) -> float:
    """Seconds for `turns` turns of each session, all sessions at once."""
    memory = need("agents.memory", "openai-agents")

    async def main() -> float:
        path = folder / "openai.db"
        opened = [memory.SQLiteSession(f"session-{n}", path) for n in range(sessions)]
        try:
            return await gathered([_added(session, turns) for session in opened])
        finally:
            for session in opened:
                session.close()

    return asyncio.run(main())


def openai_encrypted_turns(folder: Path, sessions: int, turns: int) -> float:
    """The same with what they say encrypted."""
    memory = need("agents.memory", "openai-agents")
    more = need("agents.extensions.memory", "openai-agents")
    key = base64.urlsafe_b64encode(os.urandom(32)).decode()

    async def main() -> float:
        path = folder / "openai.db"
        plain = [memory.SQLiteSession(f"session-{n}", path) for n in range(sessions)]
        opened = [
            more.EncryptedSession(
                session_id=session.session_id, underlying_session=session, encryption_key=key
            )
            for session in plain
        ]
        try:
            return await gathered([_added(session, turns) for session in opened])
        finally:
            for session in plain:
                session.close()

    return asyncio.run(main())


def _openai_filled(folder: Path, entries: int) -> Any:
    """A session of so many entries."""
    memory = need("agents.memory", "openai-agents")
    session = memory.SQLiteSession("session", folder / "openai.db")

    async def fill() -> None:
        items = [item for number in range(250) for item in turn(number).items()]
        for start in range(0, entries, len(items)):
            await session.add_items(items[: entries - start])

    asyncio.run(fill())
    return session


def openai_tail(folder: Path, entries: int, last: int) -> Callable[[], Awaitable[list[Any]]]:
    """Fill a session, and give what reads its last entries."""
    session = _openai_filled(folder, entries)

    async def read() -> list[Any]:
        items: list[Any] = await session.get_items(last)
        return items

    return read


def openai_load(folder: Path, entries: int) -> Callable[[], list[Any]]:
    """Fill a session, and give what loads it."""
    session = _openai_filled(folder, entries)

    def load() -> list[Any]:
        items: list[Any] = asyncio.run(session.get_items())
        return items

    return load


def openai_windows(folder: Path, turns: int) -> Callable[[int], list[float]]:
    """Grow a session to `turns` turns, and give what times the next ones."""
    memory = need("agents.memory", "openai-agents")
    session = memory.SQLiteSession("session", folder / "openai.db")
    items = [item for number in range(250) for item in turn(number).items()]

    async def fill() -> None:
        for start in range(0, turns, 250):
            await session.add_items(items[: (turns - start) * 4])

    async def window(count: int) -> list[float]:
        times = []
        for number in range(count):
            start = time.perf_counter()
            await session.add_items(turn(number).items())
            times.append(time.perf_counter() - start)
        return times

    asyncio.run(fill())
    return lambda count: asyncio.run(window(count))


def adk_sqlite_turns(folder: Path, sessions: int, turns: int) -> float:
    """Seconds for `turns` turns of each session, all sessions at once."""
    service = need("google.adk.sessions.sqlite_session_service", "google-adk")
    return _adk_turns(lambda: service.SqliteSessionService(str(folder / "adk.db")), sessions, turns)


def adk_database_turns(folder: Path, sessions: int, turns: int) -> float:
    """Seconds for `turns` turns of each session, all sessions at once."""
    need("greenlet", "google-adk")
    service = need("google.adk.sessions.database_session_service", "google-adk")
    url = f"sqlite+aiosqlite:///{folder / 'adk.db'}"
    return _adk_turns(lambda: service.DatabaseSessionService(url), sessions, turns)


def adk_postgres_turns(place: Place, sessions: int, turns: int) -> float:
    """Seconds for `turns` turns of each session, all sessions at once."""
    service = need("google.adk.sessions.database_session_service", "google-adk")
    url, options = _sqlalchemy(place)
    return _adk_turns(lambda: service.DatabaseSessionService(url, **options), sessions, turns)


def _sqlalchemy(place: Place) -> tuple[str, dict[str, Any]]:
    """The URL of a server for SQLAlchemy, and what puts it into the schema of this place."""
    asyncpg = importlib.import_module("asyncpg")

    async def make() -> None:
        conn = await asyncpg.connect(place.plain)
        await conn.execute(f'CREATE SCHEMA IF NOT EXISTS "{place.name}"')
        await conn.close()

    asyncio.run(make())
    url = place.plain.replace("postgresql://", "postgresql+asyncpg://", 1)
    settings = {"search_path": place.name}
    pool = {"pool_size": CONNECTIONS, "max_overflow": 0}
    return url, {"connect_args": {"server_settings": settings}, **pool}


def openai_postgres_turns(place: Place, sessions: int, turns: int) -> float:
    """Seconds for `turns` turns of each session, all sessions at once."""
    engines = need("sqlalchemy.ext.asyncio", "openai-agents[sqlalchemy]")
    memory = need("agents.extensions.memory.sqlalchemy_session", "openai-agents[sqlalchemy]")

    async def main(url: str, options: dict[str, Any]) -> float:
        engine = engines.create_async_engine(url, **options)
        opened = [
            memory.SQLAlchemySession(f"session-{n}", engine=engine, create_tables=True)
            for n in range(sessions)
        ]
        try:
            await opened[0].add_items(turn(0).items())  # makes the tables
            return await warmly(
                [_added(session, 1) for session in opened],
                [_added(session, turns) for session in opened],
            )
        finally:
            await engine.dispose()

    return asyncio.run(main(*_sqlalchemy(place)))


def openai_mongodb_turns(place: Place, sessions: int, turns: int) -> float:
    """Seconds for `turns` turns of each session, all sessions at once."""
    memory = need("agents.extensions.memory.mongodb_session", "openai-agents[mongodb]")
    pymongo = importlib.import_module("pymongo")

    async def main() -> float:
        async with pymongo.AsyncMongoClient(place.plain) as client:
            opened = [
                memory.MongoDBSession(f"session-{n}", client=client, database=place.name)
                for n in range(sessions)
            ]
            return await warmly(
                [_added(session, 1) for session in opened],
                [_added(session, turns) for session in opened],
            )

    return asyncio.run(main())


def _added(session: Any, turns: int) -> Loop:
    async def run() -> None:
        for number in range(turns):
            await session.add_items(turn(number).items())

    return run


def adk_events(number: int) -> list[Any]:
    """Return a turn as four events."""
    events = need("google.adk.events.event", "google-adk")
    types = need("google.genai.types", "google-adk")
    texts = turn(number)
    call = types.Part(
        function_call=types.FunctionCall(
            id=texts.call, name="lookup", args={**texts.arguments, "thought": texts.thought}
        )
    )
    response = types.Part(
        function_response=types.FunctionResponse(
            id=texts.call, name="lookup", response=texts.result
        )
    )
    parts = [
        ("user", "user", types.Part(text=texts.question)),
        ("shop", "model", call),
        ("shop", "user", response),
        ("shop", "model", types.Part(text=texts.answer)),
    ]
    return [
        events.Event(
            author=author, invocation_id="run", content=types.Content(role=role, parts=[part])
        )
        for author, role, part in parts
    ]


def _adk_turns(open: Callable[[], Any], sessions: int, turns: int) -> float:
    async def main() -> float:
        service = open()
        opened = [
            await service.create_session(app_name="shop", user_id="user", session_id=f"s-{n}")
            for n in range(sessions)
        ]

        def loop(session: Any) -> Loop:
            async def run() -> None:
                for number in range(turns):
                    for event in adk_events(number):
                        await service.append_event(session, event)

            return run

        try:
            return await gathered([loop(session) for session in opened])
        finally:
            if hasattr(service, "close"):
                await service.close()

    return asyncio.run(main())


class _Graph:
    """A thread of a graph whose one channel is the list of entries, as plain dicts.

    One checkpoint a turn is the kindest reading: a graph writes one a step.
    """

    def __init__(self, saver: Any, thread: str) -> None:
        self.base = need("langgraph.checkpoint.base", "langgraph-checkpoint-sqlite")
        self.saver = saver
        self.config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        self.messages: list[Any] = []
        self.version = 0

    async def turn(self, number: int) -> None:
        self.version += 1
        self.messages.extend(turn(number).items())
        checkpoint = self.base.empty_checkpoint()
        checkpoint["channel_values"] = {"messages": self.messages}
        checkpoint["channel_versions"] = {"messages": self.version}
        metadata = {"source": "loop", "step": self.version, "parents": {}}
        self.config = await self.saver.aput(
            self.config, checkpoint, metadata, {"messages": self.version}
        )


def langgraph_turns(folder: Path, sessions: int, turns: int) -> float:
    """Seconds for `turns` turns of each session, all sessions at once."""
    aio = need("langgraph.checkpoint.sqlite.aio", "langgraph-checkpoint-sqlite")

    async def main() -> float:
        async with aio.AsyncSqliteSaver.from_conn_string(str(folder / "graph.db")) as saver:
            await saver.setup()
            graphs = [_Graph(saver, f"thread-{n}") for n in range(sessions)]

            def loop(graph: _Graph) -> Loop:
                async def run() -> None:
                    for number in range(turns):
                        await graph.turn(number)

                return run

            return await gathered([loop(graph) for graph in graphs])

    return asyncio.run(main())


def langgraph_windows(folder: Path, turns: int) -> Callable[[int], list[float]]:
    """Give what times turns of a thread that is `turns` turns long.

    The checkpoints before are not written one by one: each holds the whole history, so
    the next one costs the same without them.
    """
    aio = need("langgraph.checkpoint.sqlite.aio", "langgraph-checkpoint-sqlite")
    history = [item for number in range(turns) for item in turn(number).items()]

    async def window(count: int) -> list[float]:
        path = str(folder / "graph.db")
        async with aio.AsyncSqliteSaver.from_conn_string(path) as saver:
            graph = _Graph(saver, "thread")
            graph.messages = list(history)
            await graph.turn(0)
            times = []
            for number in range(count):
                start = time.perf_counter()
                await graph.turn(number)
                times.append(time.perf_counter() - start)
            return times

    return lambda count: asyncio.run(window(count))
