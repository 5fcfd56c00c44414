"""What a process saved before it was killed is there, whole, for the next one."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pydantic_ai  # noqa: F401 - as its users do, before a loop runs

from holdfast import connect
from holdfast.adapters.pydantic_ai import HoldfastConversationStore
from tests import forks

from ..cli.programs import without
from .pydantic_ai_writer import ANSWER, EXPECTED, USER

ROOT = Path(__file__).parents[2]
NEEDED = ("pydantic_ai.models.function", "holdfast.adapters.pydantic_ai")


async def test_process_killed_after_any_call_has_lost_nothing(tmp_path: Path) -> None:
    urls = [f"sqlite:{tmp_path}/{stop}.db" for stop in range(len(EXPECTED))]
    codes = await asyncio.gather(
        *(asyncio.to_thread(killed, url, str(stop + 1)) for stop, url in enumerate(urls))
    )
    assert codes == [-signal.SIGKILL] * len(urls)
    for url, (expected, forked) in zip(urls, EXPECTED, strict=True):
        async with connect(url) as log:
            store = HoldfastConversationStore(log)
            assert await store.messages("s") == expected
            assert await store.messages("f") == forked
            await store.add_messages("s", [ANSWER])
            assert await store.messages("s") == [*expected, ANSWER]
            assert [damage async for damage in log.verify()] == []


async def test_process_killed_in_a_tool_leaves_the_conversation_as_it_was(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/log.db"
    async with connect(url) as log:
        await HoldfastConversationStore(log).add_messages("s", [USER, ANSWER])
    assert await asyncio.to_thread(killed, url, "tool") == -signal.SIGKILL
    async with connect(url) as log:
        store = HoldfastConversationStore(log)
        assert await store.messages("s") == [USER, ANSWER]
        loaded = await store.load("s")
        assert loaded is not None
        loaded.messages.append(USER)
        assert len(await store.save(loaded)) == 1


def killed(url: str, stop: str) -> int:
    words = ("-m", "tests.adapters.pydantic_ai_writer", url, stop)
    return forks.run(*words, needs=NEEDED, cwd=ROOT).returncode


def test_example_continues_its_conversation(tmp_path: Path) -> None:
    example = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    path = str(ROOT / "examples/pydantic_ai_agent.py")
    words = ("-c", example, path, f"sqlite:{tmp_path}/log.db")
    for messages in (4, 8):
        done = forks.run(*words, needs=NEEDED, check=True, capture_output=True, text=True)
        assert done.stdout == f"It was shipped.\n{messages} messages in the conversation\n"


def test_without_the_sdk_the_extra_is_named() -> None:
    program = """
from holdfast import MissingExtra
try:
    from holdfast.adapters.pydantic_ai import HoldfastConversationStore
except MissingExtra as error:
    print(error)
"""
    assert "pip install 'holdfast[pydantic-ai]'" in without({"pydantic_ai"}, program).stdout
