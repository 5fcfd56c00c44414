"""The README's commands, typed as they stand there, one after the other, in an empty folder, by
somebody who has nothing yet."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.terminal import READY, Terminal
from tests.servers.process import free_port

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PROGRAM = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]
BLOCKS = [
    [line.partition("  #")[0].strip() for line in block.splitlines()]
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
]
VENDORS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY")
PORT = "7700"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of somebody who has nothing yet, but for the program that they saved."""
    for name in (*VENDORS, "HOLDFAST_MODEL", "HOLDFAST_STORE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    place = tmp_path / "new"
    place.mkdir()
    (place / "shop.py").write_text(PROGRAM)
    return place


def chat(terminal: Terminal) -> None:
    terminal.until_screen(READY)
    terminal.type("hello")
    terminal.until_screen("You said: hello")
    terminal.type("/quit")
    assert terminal.end() == 0


def tail(terminal: Terminal) -> None:
    terminal.until("run.finished")
    terminal.press("\x03")  # Ctrl-C
    assert terminal.end() == 130


def delete(terminal: Terminal) -> None:
    terminal.until("[y/N]")
    terminal.type("y")
    terminal.until("removed: 1 log")
    assert terminal.end() == 0


BY_HAND: dict[str, Callable[[Terminal], None]] = {"chat": chat, "tail": tail, "delete": delete}
SAID = {
    "python shop.py": "waiting [\"refund(order='42', cents=1999)\"]",
    "holdfast pending": "refund(order='42', cents=1999)",
    "holdfast approve": "approved",
    "holdfast resume": "refunded 1999 cents of order 42",
    "holdfast sessions": "customer-42",
    "holdfast show": "run.finished",
    "holdfast transcript": "refunded 1999 cents of order 42",
    "holdfast search": "customer-42",
    "holdfast verify": "no damage",
    "holdfast export": "customer-42.zip",
    "holdfast import": "customer-42  imported",
    "curl -s": '"items":[',
}


def test_every_command_does_what_it_says(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    commands = [command for block in BLOCKS for command in block]
    server: Terminal | None = None
    port, typed = str(free_port()), []
    try:
        for command in commands:
            words = shlex.split(command)
            typed.append(" ".join(words[:2]))
            if words[0] in ("pip", "scripts/demo", "scripts/test") or words[1] == "demo":
                continue  # what they install is there; the demo has tests of its own
            if words[0] == "export":
                name, _, value = words[1].partition("=")
                monkeypatch.setenv(name, value)
            elif words[1] == "serve":
                server = Terminal(*words[1:], "--port", port, cwd=folder)  # others have 7700 too
                server.until("local token: ")
            elif words[1] in BY_HAND:
                with Terminal(*words[1:], cwd=folder) as terminal:
                    BY_HAND[words[1]](terminal)
            else:
                said = ran(command.replace(PORT, port), folder)
                assert SAID[" ".join(words[:2])] in said, command
        assert server is not None
        server.press("\x03")
        assert server.end() == 130
    finally:
        if server is not None:
            server.__exit__(None, None, None)
    assert {*SAID} <= {*typed}


def ran(command: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def test_what_the_commands_need_is_installed_before() -> None:
    extras: set[str] = set()
    for block in BLOCKS:
        for command in block:
            extras |= {*",".join(re.findall(r"holdfast\[(.*?)\]", command)).split(",")}
            if command.startswith("holdfast"):
                assert "cli" in extras, command
            if command.startswith("holdfast serve"):
                assert "server" in extras


def test_the_scripts_are_there() -> None:
    named = [command.split()[0] for block in BLOCKS for command in block if "scripts/" in command]
    assert named
    for script in named:
        assert os.access(ROOT / script, os.X_OK)
