"""The version of an agent, and what a process does with runs of another version."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Any

import pytest

from holdfast import LogConfig, Mode, Store, SubAgent, connect, key, tool
from holdfast.events import NewEvent, RunResumed, RunStarted
from holdfast.sessions.undriven import undriven
from holdfast.testing.samples import read_all
from tests.crash.children import ROOT

from .scene import AGENTS, LOOK, PATIENCE, SESSION, desk, look, refund, row_when, served

KNOWN = "e3e6b999f7032b9f"  # the version of `desk()` on every Python, in every process


def clerk(**parts: Any) -> SubAgent:
    return SubAgent(
        **{
            "name": "clerk",
            "description": "does a task",
            "instructions": "Do it.",
            "tools": ["look"],
            **parts,
        }
    )


@pytest.fixture
async def store() -> Any:
    async with connect("memory:") as opened:
        yield opened


def test_the_version_is_the_same_everywhere() -> None:
    assert desk().version == KNOWN
    code = "from tests.harness.versions.scene import desk; print(desk().version)"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, check=True
    )
    assert ended.stdout.decode().strip() == KNOWN


@pytest.mark.parametrize(
    "changed",
    [
        {"instructions": "Help politely."},
        {"instructions": lambda session: "Help."},
        {"tools": [look]},
        {"tools": [look.replace(version="2"), refund]},
        {"tools": [look.replace(description="Look."), refund]},
        {"tools": [look.replace(approval="ask"), refund]},
        {"model": "scripted/other"},
        {"initial_mode": "brief"},
        {"modes": [Mode("plain"), Mode("brief", instructions="Be very brief.", steps=3)]},
        {
            "modes": [
                Mode("plain", approval="ask"),
                Mode("brief", instructions="Be brief.", steps=3),
            ]
        },
        {"output_type": int},
        {"subagents": []},
        {"subagents": [clerk(instructions="Do it well.")]},
        {"subagents": [clerk(tools=[])]},
    ],
)
def test_what_is_declared_changes_the_version(changed: dict[str, Any]) -> None:
    assert desk(subagents=[clerk()]).version == desk().version
    assert desk(**changed).version != desk().version


def test_code_and_what_is_shown_to_people_do_not_change_the_version() -> None:
    @tool(repeat_safe=True, name="look")
    async def other(item: str) -> str:
        """Look something up."""
        return "nothing"

    same = desk(tools=[other, refund], description="Helps.", state={"seen": 1})
    assert same.version == desk().version
    assert desk(tools=[refund, look]).version == desk().version


async def test_a_run_that_waits_for_an_answer_is_left_to_its_version(store: Store) -> None:
    async with served("old", store, versions="pin") as old:
        session = await old.get_or_create(SESSION)
        await session.post("Refund", key="r")
        await row_when(store, "main", lambda row: row.run == "waiting" and bool(row.pending))
    async with served("new", store, versions="pin") as new:
        session = await new.get_or_create(SESSION)
        (item,) = await session.pending()
        sent = asyncio.create_task(session.send("Hello", key="h"))
        await session.approve(item.id)
        await row_when(store, "main", lambda row: not row.pending)
        (found,) = await undriven(store, "main")
        assert (found.version, found.thread) == (AGENTS["old"].version, "main")
        assert not sent.done()  # who waits goes on waiting
        async with served("old", store, versions="pin"):
            result = await sent
        assert result.text == "Good day."
    events = await read_all(store, key(SESSION))
    assert "refunded 42" in str([e.json() for e in events if e.kind == "tool.finished"])


async def test_an_abort_ends_a_pinned_run_in_any_version(store: Store) -> None:
    async with served("old", store) as old:
        await (await old.get_or_create(SESSION)).post("Refund", key="r")
        await row_when(store, "main", lambda row: row.run == "waiting" and bool(row.pending))
    async with served("new", store, versions="pin") as new:
        session = await new.get_or_create(SESSION)
        await session.abort()
        await row_when(store, "main", lambda row: row.run == "aborted")
        assert (await session.send("Hello")).text == "Good day."
    started = [e for e in await read_all(store, key(SESSION)) if e.kind == "run.started"]
    versions = [e.payload(RunStarted).version for e in started]
    assert versions == [AGENTS["old"].version, AGENTS["new"].version]


async def test_a_run_without_a_version_is_continued(store: Store) -> None:
    events = [
        NewEvent.of("session.created", {"agent": "desk"}),
        NewEvent.of("message.received", {"text": "Look"}),
        NewEvent.of("run.started", {"driver": "gone", "inputs": [2]}, run="r1"),
    ]
    await store.append(key(SESSION), events, create=True)
    async with served("new", store, versions="pin"):
        await row_when(store, "main", lambda row: row.run == "done")
    log = await read_all(store, key(SESSION))
    reasons = [e.payload(RunResumed).reason for e in log if e.kind == "run.resumed"]
    assert reasons == ["driver_lost"]


async def test_the_change_is_told(store: Store) -> None:
    records: list[dict[str, Any]] = []
    async with served("old", store) as old:
        await (await old.get_or_create(SESSION)).post("Refund", key="r")
        await row_when(store, "main", lambda row: row.run == "waiting" and bool(row.pending))
    logging = LogConfig(level="warning", sinks=[records.append], propagate=False)
    for policy, said in (("pin", "run_pinned"), ("warn", "agent_changed")):
        async with served("new", store, versions=policy, logging=logging) as new:
            session = await new.get_or_create(SESSION)
            for item in await session.pending():
                await session.approve(item.id)
            async with asyncio.timeout(PATIENCE):
                while not records:  # noqa: ASYNC110 - a sink has no event
                    await asyncio.sleep(LOOK)
            if policy == "warn":
                await row_when(store, "main", lambda row: row.run == "done")
        assert [record["event"] for record in records] == [said]
        records.clear()
