"""A conversation that one SDK began is continued by every other one, and by Holdfast's harness."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from holdfast import connect, key
from holdfast.bundle import import_bundle
from tests import forks

from .sdks import SDKS, Part

ROOT = Path(__file__).parents[2]
CANARY = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
CITY = f"Oslo {CANARY}"

FIRST: list[Part] = [
    ("user", "Weather?"),
    ("call", "look", {"city": "Oslo"}),
    ("result", "rain in Oslo"),
    ("model", "Rain."),
]
SECOND: list[Part] = [
    ("user", "And Rome?"),
    ("call", "look", {"city": "Rome"}),
    ("result", "rain in Rome"),
    ("model", "Rain too."),
]


def turns(prompt: list[Part]) -> list[Part]:
    """Return a prompt without ids. The result of each call must follow it, and must have its id."""
    found: list[Part] = []
    open: list[str] = []
    for kind, *rest in prompt:
        if kind == "call":
            open.append(rest[0])
        elif kind == "result":
            assert rest[0] == open.pop(0)
        else:
            assert open == []
        found.append((kind, *rest[1:]) if kind in ("call", "result") else (kind, *rest))
    assert open == []
    return found


@pytest.mark.parametrize("reader", SDKS)
@pytest.mark.parametrize("writer", SDKS)
async def test_conversation_is_continued_with_the_same_turns(
    writer: str, reader: str, tmp_path: Path
) -> None:
    async with connect(f"sqlite:{tmp_path}/log.db") as store:
        prompt = await SDKS[writer](store, "Weather?", {"city": "Oslo"}, "Rain.")
        assert turns(prompt) == FIRST[:3]
        prompt = await SDKS[reader](store, "And Rome?", {"city": "Rome"}, "Rain too.")
        assert turns(prompt) == FIRST + SECOND[:3]
        prompt = await SDKS["harness"](store, "Thanks.", "Welcome.")
        assert turns(prompt) == [*FIRST, *SECOND, ("user", "Thanks.")]
        if reader != "langgraph" and writer != "langgraph":  # its state is its checkpoints
            prompt = await SDKS[writer](store, "Bye.", "Bye.")
            end = [("user", "Thanks."), ("model", "Welcome."), ("user", "Bye.")]
            assert turns(prompt) == [*FIRST, *SECOND, *end]
        events = [event async for event in store.read(key("s"))]
        texts = [e.json()["text"] for e in events if e.kind == "message.received"]
        assert texts[:3] == ["Weather?", "And Rome?", "Thanks."]  # each is stored once
        assert [damage async for damage in store.verify()] == []


@pytest.mark.parametrize("writer", SDKS)
async def test_conversation_is_shown_exported_and_verified(writer: str, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/log.db"
    others = {"openai": "adk", "adk": "pydantic_ai", "pydantic_ai": "langgraph"}
    async with connect(url) as store:
        await SDKS[writer](store, f"Weather? {CANARY}", {"city": CITY}, f"Rain {CANARY}.")
        continued = SDKS.get(others.get(writer, ""), SDKS["openai"])
        await continued(store, f"And now? {CANARY}", {"city": CITY}, f"Sun {CANARY}.")
    shown = await cli("show", "s", "--all", "--store", url)
    for text in ("Weather?", "look(", "rain in Oslo", "Rain"):
        assert text in shown
    spoken = await cli("transcript", "s", "--store", url)
    assert [text in spoken for text in ("Weather?", "rain in Oslo", "Rain")] == [True] * 3
    tail = await cli("tail", "s", "--after", "0", "--no-follow", "--json", "--store", url)
    kinds = [json.loads(line)["kind"] for line in tail.splitlines()]
    assert {"message.received", "message.completed", "tool.finished"} <= {*kinds}
    bundle = str(tmp_path / "s.json")
    await cli("export", "s", "--json-file", "--out", bundle, "--store", url)
    text = await asyncio.to_thread(Path(bundle).read_text)
    assert CANARY not in text
    assert "Weather?" in text
    assert "rain in Oslo" in text
    await cli("verify", "s", "--store", url)
    async with connect(f"sqlite:{tmp_path}/copy.db") as store:
        await import_bundle(store, bundle, accept_redacted=True)
        prompt = await SDKS[writer](store, "Again?", "Yes.")
        assert len(turns(prompt)) == (5 if writer == "langgraph" else 9)


async def cli(*words: str) -> str:
    done: subprocess.CompletedProcess[Any] = await asyncio.to_thread(
        forks.run, "-m", "holdfast.cli", *words, capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    out: str = done.stdout
    return out
