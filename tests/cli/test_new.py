"""`holdfast new`: what it writes works, and it never writes over anything."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast import NewEvent, Store, key

from ..contract.test_plugin import WITHOUT_OTHERS
from .conftest import Cli, write


@pytest.mark.parity("harness-kernel", 147)
def test_a_new_agent_passes_its_own_test(cli: Cli, tmp_path: Path) -> None:
    place = tmp_path / "My shop"
    ended = cli("new", str(place), "--json")
    files = ["agent.py", "serve.py", "test_agent.py", "README.md"]
    assert (ended.code, ended.json) == (0, {"folder": str(place), "files": files})
    command = [sys.executable, "-m", "pytest", "-q", *WITHOUT_OTHERS, "-p", "no:cacheprovider", "."]
    ran = subprocess.run(
        command, cwd=place, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stdout
    said = subprocess.run(
        [sys.executable, "-c", "from agent import agent; print(agent.key)"],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert said.stdout == "my-shop\n"


@pytest.mark.parity("harness-kernel", 147)
def test_the_folder_can_come_from_the_input(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{tmp_path / 'a'}\n"))
    ended = cli("new", "--template", "one-file")
    assert ended.code == 0
    assert [file.name for file in (tmp_path / "a").iterdir()] == ["agent.py"]


@pytest.mark.parity("harness-kernel", 147)
def test_what_is_there_is_never_replaced(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("mine")
    ended = cli("new", str(tmp_path))
    assert ended.code == 2
    assert "not empty" in ended.err
    assert (tmp_path / "agent.py").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("label", ['a"b', "a{b}", "a\\b"])
def test_a_label_that_would_break_the_code_is_refused(cli: Cli, tmp_path: Path, label: str) -> None:
    ended = cli("new", str(tmp_path / "x"), "--label", label)
    assert ended.code == 2
    assert not (tmp_path / "x").exists()


SLOW = """
import asyncio
from pathlib import Path
from holdfast import Agent, tool

@tool
async def look_up(order: str) -> str:
    "Say how an order stands, if anybody ever says so."
    Path("begun").touch()
    await asyncio.sleep(3_600)
    return "delivered"

agent = Agent("shop", instructions="Help.", tools=[look_up])
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_that_is_written_ends_gracefully_in_the_middle_of_a_run(
    cli: Cli, tmp_path: Path, number: signal.Signals
) -> None:
    place = tmp_path / "shop"
    assert cli("new", str(place)).code == 0
    (place / "agent.py").write_text(SLOW)
    url = f"sqlite:{place}/shop.db"

    async def send(store: Store) -> None:
        begun = NewEvent.of("session.created", {"agent": "shop"})
        asked = NewEvent.of("message.received", {"text": "look_up order=42"})
        await store.append(key("a"), [begun, asked], create=True)

    write(url, send)
    program = [sys.executable, "-W", "error", "serve.py"]
    with subprocess.Popen(program, cwd=place, stderr=subprocess.PIPE, text=True) as server:
        try:
            end = time.monotonic() + 60
            while not (place / "begun").exists():
                assert server.poll() is None
                assert time.monotonic() < end
                time.sleep(0.02)
            server.send_signal(number)
            _, said = server.communicate(timeout=60)
        finally:
            server.kill()
    assert (server.returncode, "Traceback" in said) == (0, False), said
    events = cli("show", "a", "--json", "--store", url).json["events"]
    assert events[-1]["kind"] == "run.waiting"
    assert events[-1]["data"]["reason"] == "handover"


def test_what_cannot_be_written_leaves_nothing(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = cli("new", str(tmp_path / "file" / "shop"))
    assert ended.code == 1
    assert ended.err.startswith("error: FOLDER: ")
    ended = cli("new", str(tmp_path / "a" / "b"), "--label", "x\udcff")
    assert ended.code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
