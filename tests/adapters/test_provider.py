"""The Claude Agent SDK as a harness's model: the real CLI, against a stand-in for the API."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Agent, Harness
from holdfast.adapters.claude import ClaudeProvider
from holdfast.adapters.claude.provider import SdkPosition, new_prompt
from holdfast.errors import ModelError
from holdfast.models.port import FromModel, FromUser, PromptMessage, Text
from holdfast.values.media import Media

from .messages import Api, standing_in

MODEL = "claude-agent-sdk/claude-sonnet-4-5"
AGENT = Agent("desk", instructions="Help with pets.")

pytestmark = pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning")


def children() -> set[str]:
    threads = Path("/proc/self/task").glob("*/children")
    return {child for thread in threads for child in thread.read_text().split()}


@pytest.fixture(autouse=True)
async def tidy() -> AsyncIterator[None]:
    """The SDK does not wait for its program to end, and leaves a stream of its own unclosed: both
    are found here, and not in another test."""
    before = children()
    yield
    async with asyncio.timeout(60):
        while children() - before:  # noqa: ASYNC110 - no event tells of them
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.01)  # in which the loop hears of the last that ended
    gc.collect()


def provider(api: Api, url: str, home: Path) -> ClaudeProvider:
    (home / "work").mkdir(parents=True, exist_ok=True)
    env = {
        "ANTHROPIC_BASE_URL": api.url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    return ClaudeProvider(url, cwd=str(home / "work"), env=env)


def harness(api: Api, url: str, home: Path) -> Harness:
    return Harness(AGENT, providers=[provider(api, url, home)], default_model=MODEL, store=url)


async def test_a_turn_of_ours_is_a_turn_of_its_own_and_goes_on_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "one"))
    url = f"sqlite:{tmp_path}/s.db"
    with standing_in() as api:
        async with harness(api, url, tmp_path / "one") as here:
            session = await here.get_or_create("pets")
            first = await session.send("My cat is called Ada.")
            assert (first.status, first.text) == ("done", "Answer 1.")
            assert first.usage["output_tokens"] > 0
        await asyncio.to_thread((tmp_path / "one").rename, tmp_path / "gone")
        async with harness(api, url, tmp_path / "one") as there:
            session = await there.get_or_create("pets")
            fork = await session.threads.clone("other")
            second = await session.send("What is it called?")
            assert second.text == "Answer 2."
            branch = await (await there.open("pets", fork.key.thread)).send("And my dog?")
            assert branch.text == "Answer 3."
        texts = api.texts()
    assert texts[1][0].endswith("My cat is called Ada.")
    assert texts[1][1] == "Answer 1."
    assert texts[1][-1].endswith("What is it called?")
    assert "What is it called?" not in "".join(texts[2])
    assert texts[2][-1].endswith("And my dog?")


def test_what_others_said_before_is_told_once() -> None:
    bound = ({"claude": {"session": "s", "at": "u"}},)
    asked = FromUser((Text("one"),))
    messages: list[PromptMessage] = [
        asked,
        FromModel("hello"),
        FromUser((Text("two"), Text("three"))),
    ]
    assert new_prompt(messages, MODEL) == (
        "one\n\n[another assistant said: hello]\n\ntwo\nthree",
        None,
    )
    later = [*messages, FromModel("mine", bound=bound), FromUser((Text("four"),))]
    assert new_prompt(later, MODEL) == ("four", SdkPosition("s", "u"))
    with pytest.raises(ModelError, match="images and files are not supported"):
        new_prompt([FromUser((Media(b"", "image/png"),))], MODEL)


async def test_a_program_that_is_not_there_fails_the_run_and_says_so(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/s.db"
    missing = ClaudeProvider(url, options={"cli_path": str(tmp_path / "none")})
    async with Harness(AGENT, providers=[missing], default_model=MODEL, store=url) as here:
        result = await (await here.get_or_create("pets")).send("hi")
    assert (result.status, result.code) == ("failed", "model_unavailable")
    assert (result.error or "").startswith("The model cannot be reached. Install Claude Code, or")
