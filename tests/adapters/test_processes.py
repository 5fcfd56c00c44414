"""Several real processes on one session: nothing is lost, doubled or out of order."""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import fold_session_summary

from holdfast.adapters.claude import ClaudeSessionStore
from tests import forks

from .words import entry, key, mtime, summary

ROOT = Path(__file__).parents[2]
SUB = key(sub="subagents/agent-1")

READ = """
import asyncio, sys
from holdfast.adapters.claude import ClaudeSessionStore

async def main(url):
    async with ClaudeSessionStore(url) as sessions:
        key = {"project_key": "p", "session_id": "s"}
        print(len(await sessions.load(key)))
        await sessions.append(key, [{"type": "user", "uuid": "more"}])

asyncio.run(main(sys.argv[1]))
"""


def write_at_once(url: str, writers: int, count: int) -> None:
    """Let so many processes append to one session at the same time."""
    with ExitStack() as stack:
        children = [
            stack.enter_context(
                forks.popen(
                    *("-m", "tests.adapters.writer", url, f"w{n}", str(count)),
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for n in range(writers)
        ]
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        assert [child.wait(timeout=240) for child in children] == [0] * writers


@pytest.mark.parity("computeragent", 33)
async def test_eight_processes_lose_and_double_nothing(shared_url: str) -> None:
    writers, count = 8, 10
    await asyncio.to_thread(write_at_once, shared_url, writers, count)
    async with ClaudeSessionStore(shared_url) as sessions:
        main: Any = await sessions.load(key())
        sub: Any = await sessions.load(SUB)
        uuids = [e["uuid"] for e in main if "uuid" in e]
        own = {f"w{w}-{n}" for w in range(writers) for n in range(count)}
        expected = own | {f"all-{n}" for n in range(count)}
        assert Counter(uuids) == Counter(expected)
        assert Counter(e["uuid"] for e in sub) == Counter(expected)
        for w in range(writers):
            marks = [e["mark"] for e in main if e.get("by") == f"w{w}" and "mark" in e]
            assert marks == list(range(count))
            ordered = [e["n"] for e in main if e.get("uuid", "").startswith(f"w{w}-")]
            assert ordered == list(range(count))
        assert len(main) == len(expected) + writers * count
        folded = fold_session_summary(None, key(), main)["data"]
        assert await summary(sessions) == folded
        # What the row holds is what a walk through the log finds.
        before = await mtime(sessions)
        await sessions.append(key(), [entry("last")])
        assert await mtime(sessions) > before


async def test_a_fresh_process_goes_on_where_another_stopped(shared_url: str) -> None:
    async with ClaudeSessionStore(shared_url) as sessions:
        await sessions.append(key(), [entry("a"), entry("b")])
    words = ("-W", "error", "-c", READ, shared_url)
    ended = await asyncio.to_thread(forks.run, *words, capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("2\n", "")
    async with ClaudeSessionStore(shared_url) as sessions:
        assert await sessions.load(key()) == [entry("a"), entry("b"), entry("more")]
