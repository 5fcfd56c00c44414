"""The real Claude Code CLI, driven by the SDK, against a stand-in for the Messages API: a
conversation goes on in a fresh process with an empty disk."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.claude import ClaudeSessionStore
from tests import forks

from .messages import Api, standing_in

ROOT = Path(__file__).parents[2]


def talk(api: Api, home: Path, *arguments: str | Path) -> Any:
    """One turn in a process of its own, on a machine where nothing else is."""
    home.mkdir()
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "ANTHROPIC_BASE_URL": api.url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    ended = forks.run(
        *("-m", "tests.adapters.talker", *map(str, arguments)),
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


# The contract is held on every kind of store elsewhere; a turn of the CLI takes seconds.
@pytest.mark.parametrize("shared_url", ["postgres"], indirect=True)
def test_a_conversation_goes_on_elsewhere(shared_url: str, tmp_path: Path) -> None:
    cwd = tmp_path / "work"
    cwd.mkdir()
    with standing_in() as api:
        first = talk(api, tmp_path / "home1", shared_url, cwd, "My cat is called Ada.")
        second = talk(
            api, tmp_path / "home2", shared_url, cwd, "What is it called?", first["session"]
        )
        texts = api.texts()
    assert first["said"] == ["Answer 1."]
    assert second == {"session": first["session"], "said": ["Answer 2."]}
    assert len(texts) == 2
    assert texts[1][0].endswith("My cat is called Ada.")
    assert texts[1][1] == "Answer 1."
    assert texts[1][2].endswith("What is it called?")
    assert asyncio.run(listed(shared_url)) == [first["session"]]


def test_the_last_conversation_goes_on_in_another_folder(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/s.db"
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    with standing_in() as api:
        talk(api, tmp_path / "home1", url, there, "My dog is called Bob.")
        last = talk(api, tmp_path / "home2", url, there, "My cat is called Ada.")
        more = ("--continue-from", there)
        again = talk(api, tmp_path / "home3", url, here, "What is it called?", *more)
        texts = api.texts()
    assert again["session"] == last["session"]
    assert texts[2][0].endswith("My cat is called Ada.")
    assert texts[2][-1].endswith("What is it called?")


async def listed(url: str) -> list[str]:
    async with ClaudeSessionStore(url) as sessions:
        return [session for _, session in await sessions.sessions()]
