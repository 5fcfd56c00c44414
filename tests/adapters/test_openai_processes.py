"""What a process wrote before it was killed is there, whole, for the next one."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import agents  # noqa: F401 - as its users do, before a loop runs

from holdfast import connect
from holdfast.adapters.openai import HoldfastSession
from tests import forks

from .openai_writer import EXPECTED

ROOT = Path(__file__).parents[2]
NEEDED = ("agents", "holdfast.adapters.openai")


async def test_process_killed_after_any_call_has_lost_nothing(tmp_path: Path) -> None:
    urls = [f"sqlite:{tmp_path}/{stop}.db" for stop in range(len(EXPECTED))]
    codes = await asyncio.gather(
        *(asyncio.to_thread(killed, url, stop + 1) for stop, url in enumerate(urls))
    )
    assert codes == [-signal.SIGKILL] * len(urls)
    for url, expected in zip(urls, EXPECTED, strict=True):
        async with connect(url) as store:
            session = HoldfastSession("s", store)
            assert await session.get_items() == expected
            await session.add_items(EXPECTED[0])
            assert await session.get_items() == expected + EXPECTED[0]
            assert [damage async for damage in store.verify()] == []


def killed(url: str, stop: int) -> int:
    words = ("-m", "tests.adapters.openai_writer", url, str(stop))
    return forks.run(*words, needs=NEEDED, cwd=ROOT).returncode


def test_paused_run_is_approved_in_another_process_and_survives_its_crash(tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    effects.touch()

    def agent(crash: str) -> tuple[int, str]:
        url = f"sqlite:{tmp_path}/log.db"
        words = ("-m", "tests.adapters.openai_agent", url, crash, str(effects))
        done = forks.run(*words, needs=NEEDED, cwd=ROOT, capture_output=True, text=True)
        return done.returncode, done.stdout

    assert agent("paused") == (-signal.SIGKILL, "")
    assert effects.read_text() == ""
    assert agent("tool") == (-signal.SIGKILL, "")
    assert effects.read_text() == "42\n"
    code, items = agent("never")
    assert code == 0
    outputs = ["order 42 was shipped", "refund", "refunded 42", None]
    assert json.loads(items) == [None, "look_up", *outputs]
    assert effects.read_text() == "42\n42\n"  # the SDK repeats a call whose result is not known


def test_example_continues_its_conversation(tmp_path: Path) -> None:
    example = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    words = ("-c", example, str(ROOT / "examples/openai_agent.py"), f"sqlite:{tmp_path}/log.db")
    for items in (4, 8):
        done = forks.run(*words, needs=NEEDED, check=True, capture_output=True, text=True)
        assert done.stdout == f"It was shipped.\n{items} items in the conversation\n"
