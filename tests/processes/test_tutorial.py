"""`docs/tutorial.md` is typed as printed, in an empty folder: each command prints what the page
says, where `…` stands for any text. Servers run in the background until the page stops them."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.process import PATIENCE, free_port, until

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
BLOCKS = re.findall(r"^```console\n(.*?)^```$", PAGE, re.M | re.S)
FILES = dict(re.findall(r'^```python title="([\w.]+)"\n(.*?)^```$', PAGE, re.M | re.S))
VENDORS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY")


def steps() -> Iterator[tuple[str, str]]:
    """Each command of the page with the output that is printed below it."""
    for block in BLOCKS:
        for step in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, output = step.partition("\n")
            yield command, output


def prints(output: str, said: str) -> bool:
    """Whether a command said what the page shows: `…` is any text of a line, a line of its own at
    the end is any number of lines, and spaces are as many as there are."""
    wanted, found = output.strip().splitlines(), said.strip().splitlines()
    if wanted and wanted[-1] == "…":
        wanted, found = wanted[:-1], found[: len(wanted) - 1]
    return len(wanted) == len(found) and all(map(_prints, wanted, found))


def _prints(wanted: str, found: str) -> bool:
    parts = [re.escape(" ".join(part.split())) for part in wanted.split("…")]
    return re.fullmatch(r"\s*.*\s*".join(parts), " ".join(found.split())) is not None


class Shell:
    """A shell in a folder. Variables that it exports stay set. Servers run until a later one takes
    their port, or the test ends."""

    def __init__(self, folder: Path, ports: dict[str, str]) -> None:
        self._folder, self._ports = folder, ports
        self._environ = dict(os.environ)
        self._background: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, command: str, output: str) -> None:
        if "holdfast serve" in command and "--port" not in command:
            command += " --port 7700"
        for written, free in self._ports.items():
            command, output = command.replace(written, free), output.replace(written, free)
        if "holdfast serve" in command:
            self.stop(port := command.rpartition(" ")[2])
            self._start(port, command, output)
        elif "holdfast tail" in command:
            self._start(command, command, output)
            self.stop(command)
        elif command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            self._environ[name] = self._output(f"echo {value}").strip()
        else:
            self._wait(command, output)

    def stop(self, name: str) -> None:
        if name in self._background:
            process = self._background.pop(name)
            process.terminate()
            process.wait(PATIENCE)

    def stop_all(self) -> None:
        for name in [*self._background]:
            self.stop(name)

    def _start(self, name: str, command: str, output: str) -> None:
        """Start a command that stays, and wait until it has printed its output."""
        file = self._folder / f"{secrets.token_hex(4)}.txt"
        environ = dict(self._environ)
        if assigned := re.match(r"(\w+)=(\S+) ", command):
            environ[assigned[1]], command = assigned[2], command[assigned.end() :]
        with file.open("wb") as target:
            self._background[name] = subprocess.Popen(
                command.split(), cwd=self._folder, env=environ, stdout=target, stderr=target
            )
        until(lambda: prints(output, file.read_text()), command)

    def _wait(self, command: str, output: str) -> None:
        """Run a command once, or until it says so if it reads a file that a worker writes."""
        if command.startswith("cat "):
            until(lambda: prints(output, self._output(command)), command)
        else:
            said = self._output(command)
            assert prints(output, said), f"{command}:\n{said}"

    def _output(self, command: str) -> str:
        return subprocess.run(
            ["bash", "-c", f"{command}\ntrue"],
            cwd=self._folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        ).stdout


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    for name in (*VENDORS, "HOLDFAST_MODEL", "HOLDFAST_STORE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    folder = tmp_path / "support"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    found = Shell(folder, {"7700": str(free_port()), "7702": str(free_port())})
    yield found
    found.stop_all()


def test_every_step_prints_what_the_page_says(shell: Shell) -> None:
    assert {*FILES} == {"support.py", "ask.py"}
    typed = list(steps())
    assert len(typed) > 20
    for command, output in typed:
        shell.run(command, output)


def test_the_programs_are_short() -> None:
    for name, text in FILES.items():
        assert len(text.splitlines()) < 40, name
