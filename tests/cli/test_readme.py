"""The README's first story, as somebody new would try it: save, run, approve, resume."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text()
PROGRAM = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]
COMMANDS = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)[0]
VENDORS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY")


def test_the_first_commands_do_what_they_say(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    environ = {k: v for k, v in os.environ.items() if k not in (*VENDORS, "HOLDFAST_MODEL")}
    said = {}
    for command in COMMANDS.splitlines():
        words = shlex.split(command, comments=True)
        if words[0] == "export":
            name, _, environ[name] = words[1].partition("=")
        elif words[0] != "pip":
            said[words[1]] = ran(words, tmp_path, environ)
    assert said["shop.py"] == "waiting [\"refund(order='42', cents=1999)\"]\n"
    assert "approved" in said["approve"]
    assert "refunded 1999 cents of order 42" in said["resume"]


def ran(words: list[str], folder: Path, environ: dict[str, str]) -> str:
    program = {"python": [], "holdfast": ["-m", "holdfast.cli"]}[words[0]]
    done = subprocess.run(
        [sys.executable, *program, *words[1:]],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_the_commands_need_is_installed_before() -> None:
    block = README.partition("## On the command line")[2].partition("```\n")[0]
    extras = re.findall(r"holdfast\[(.*?)\]", block)[0].split(",")
    assert "holdfast serve" in block
    assert {"cli", "server"} <= {*extras}
