"""Evaluates an agent on recorded sessions: `pytest test_replay.py`. No model is called."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import Agent, Harness, export_bundle, tool
from holdfast.bundle import replay
from holdfast.models import Say, ScriptedModel, Use


@tool
async def look(order: str) -> str:
    """Look an order up."""
    return "broken"


agent = Agent("shop", instructions="Help with orders.", tools=[look])


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A recording. In your project: files in a folder, made by `holdfast bundle export`."""

    async def record() -> None:
        model = ScriptedModel([Say(calls=[Use("look", order="42")]), "It is broken."])
        async with Harness(agent, default_model=model) as harness:
            session = await harness.get_or_create("customer-42")
            await session.send("What is with order 42?")
            await export_bundle(session, "local", to=tmp_path / "customer-42.json")

    asyncio.run(record())
    return tmp_path / "customer-42.json"


def test_the_agent_does_what_it_did(recorded: Path) -> None:
    found = asyncio.run(replay(recorded, agent))
    assert found.same, found.first


def test_changed_instructions_are_noticed(recorded: Path) -> None:
    found = asyncio.run(replay(recorded, replace(agent, instructions="Be brief.")))
    assert found.first is not None
    assert found.first.kind == "context.built"
