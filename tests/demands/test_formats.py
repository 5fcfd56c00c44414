"""What is stored can be read by others and by later versions, is added once however often it is
sent, and is played again without the world."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Agent, Harness, LogConfig, LogDamaged, NewEvent, Store, connect, key, tool
from holdfast.adapters.claude import ClaudeSessionStore
from holdfast.bundle import export_bundle, import_bundle, replay
from holdfast.events import MessageCompleted
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.testing.samples import read_all
from tests.adapters.words import entry
from tests.adapters.words import key as claude_key
from tests.harness.kernel.scene import helper, serve
from tests.sessions import places

from .test_removal import raw

SILENT = LogConfig(level="silent")
KEPT = [kind for kind in places.OPEN if kind != "memory"]


@dataclass
class Verdict:
    """A value of this program's own."""

    fine: bool
    why: str


@tool
async def look(order: str) -> Verdict:
    """Look an order up."""
    return Verdict(True, order)


async def records(kind: str, folder: Path, url: str) -> list[bytes]:
    """All that a store holds, record by record."""
    if kind in ("postgres", "mongodb"):
        return await raw(kind, url)
    return await asyncio.to_thread(_local, folder / "holdfast")


def _local(place: Path) -> list[bytes]:
    if place.is_dir():
        files = [
            path for path in place.rglob("*") if path.is_file() and "index.db" not in path.name
        ]
        return [line for path in files for line in path.read_bytes().splitlines()]
    with closing(sqlite3.connect(place)) as conn:
        names = conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        rows = [row for (name,) in names for row in conn.execute(f"SELECT * FROM {name}")]
    return [value if isinstance(value, bytes) else str(value).encode() for r in rows for value in r]


@pytest.mark.parity("user-demand", 48)
@pytest.mark.parametrize("kind", KEPT)
async def test_what_is_stored_names_no_class_and_no_module(kind: str, tmp_path: Path) -> None:
    url = places.url(kind, tmp_path)
    steps = [
        Say("I look.", calls=[Use("look", order="7")]),
        Say(calls=[Use("final_result", value={"fine": True, "why": "7"})]),
    ]
    async with serve(helper(tools=[look]), *steps, store=url) as harness:
        session = await harness.get_or_create("s")
        result = await session.send("go", output_type=Verdict)
        assert result.output == Verdict(True, "7")
        events = await session.events()
    assert all(event.v == 1 and json.loads(bytes(event.data)) == event.json() for event in events)
    found = await records(kind, tmp_path, url)
    assert any(b"I look." in record for record in found), "the scan sees what is there"
    for record in found:
        for trace in (b"\x80\x04\x95", b"tests.", b"holdfast.", b"__main__", b"py/object"):
            assert trace not in record, record


@pytest.mark.parity("user-demand", 48)
@pytest.mark.parametrize("kind", places.OPEN)
async def test_what_cannot_be_understood_is_kept_and_told_and_never_nothing(
    kind: str, tmp_path: Path
) -> None:
    odd = [
        NewEvent.of("session.created", {"agent": "helper"}),
        NewEvent.of("message.completed", {"text": 7, "of": "another time"}),
        NewEvent.of("message.completed", {"words": "new"}, v=9),
        NewEvent.of("comet.seen", {"tail": [None, {}]}),
    ]
    async with connect(places.url(kind, tmp_path)) as store:
        await store.append(key("s"), odd, create=True)
        events = await read_all(store, key("s"))
        assert [event.data for event in events] == [event.data for event in odd]
        with pytest.raises(msgspec.ValidationError, match="text"):
            events[1].payload(MessageCompleted)
        bundle = await export_bundle((store, key("s").scope), "local")
        async with serve(helper(), "hi", store=store, logging=SILENT) as harness:
            with pytest.raises(LogDamaged, match="event 3 was written by a newer version"):
                await harness.send("s", "go")  # rather than to go on without it
        assert (await read_all(store, key("s")))[:4] == events
        async with connect("memory:") as other:
            await import_bundle(other, bundle)
            assert await read_all(other, key("s")) == events


# Sent again


@pytest.fixture(params=places.OPEN)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store, None]:
    async with connect(places.url(request.param, tmp_path)) as store:
        yield store


@pytest.mark.parity("user-demand", 35)
async def test_a_conversation_that_is_sent_again_adds_only_what_is_new(store: Store) -> None:
    sessions = ClaudeSessionStore(store)
    talk = [entry(f"u{n}", message={"role": "user", "content": f"{n}"}, n=n) for n in range(6)]
    await sessions.append(claude_key(), talk[:4])
    for upto in (4, 5, 6):
        again: Any = [dict(reversed(one.items())) for one in talk[:upto]]
        again = [{**one, "message": dict(reversed(one["message"].items()))} for one in again]
        await sessions.append(claude_key(), again)
        stored = await sessions.load(claude_key())
        assert stored == talk[:upto]
        assert [one["uuid"] for one in stored] == [f"u{n}" for n in range(upto)]
    assert await sessions.size(claude_key()) == 6


# Read without the framework

READER = """
import asyncio, sys
sys.modules["claude_agent_sdk"] = None
import holdfast

async def main(url):
    async with holdfast.connect(url) as store:
        (row,) = (await store.find(holdfast.Query())).items
        events = [event async for event in store.read(row.key)]
        print([event.json()["uuid"] for event in events if event.kind == "claude.entry"])

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parity("user-demand", 58)
def test_a_session_of_a_framework_is_read_where_it_is_not_installed(tmp_path: Path) -> None:
    url = places.url("sqlite", tmp_path)

    async def write() -> None:
        async with connect(url) as store:
            sessions = ClaudeSessionStore(store)
            for n in range(2):
                await sessions.append(claude_key(), [entry(f"u{n}")])

    asyncio.run(write())
    ran = subprocess.run(
        [sys.executable, "-c", READER, url], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stdout == "['u0', 'u1']\n", ran.stderr


@pytest.mark.parity("user-demand", 58)
async def test_a_session_has_its_id_before_its_first_message_and_for_good(tmp_path: Path) -> None:
    url = places.url("sqlite", tmp_path)
    async with serve(helper(), "hi", store=url) as harness:
        session = await harness.get_or_create("customer-42")
        id = session.id
        assert await session.transcript() == []
    for n in range(2):
        async with serve(helper(), "hi", store=url) as harness:
            session = await harness.open(id)
            assert session.id == id
            await session.send(f"{n}")
            assert len(await session.transcript()) == 2 * (n + 1)
            assert [row.session for row in (await harness.list()).items] == [id]


# Played again


@pytest.mark.parity("user-demand", 79)
async def test_a_bundle_is_played_again_without_the_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached: list[str] = []

    @tool
    async def fetch(url: str) -> str:
        """Fetch."""
        reached.append(url)
        return "a page"

    agent = Agent("shop", instructions="Help.", tools=[fetch], model="openai/gpt-5.1")
    model = ScriptedModel([Say(calls=[Use("fetch", url="x")]), "Done."], ref="openai/gpt-5.1")
    async with Harness(agent, providers=[model], logging=SILENT) as harness:
        session = await harness.get_or_create("s")
        assert (await session.send("Go.")).text == "Done."
        bundle = await export_bundle(session, "local")

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("the network was reached")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    found = await replay(bundle, agent)
    assert (found.same, reached) == (True, ["x"])
    changed = await replay(bundle, Agent("shop", instructions="Hinder.", tools=[fetch]))
    assert changed.first is not None
    assert (changed.first.recorded, changed.first.came) != (None, None)
    assert reached == ["x"]
