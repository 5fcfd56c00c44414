"""`holdfast new`: what it writes works, and it never writes over anything."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Cli


@pytest.mark.parity("harness-kernel", 147)
def test_a_new_agent_passes_its_own_test(cli: Cli, tmp_path: Path) -> None:
    place = tmp_path / "My shop"
    ended = cli("new", str(place), "--json")
    files = ["agent.py", "serve.py", "test_agent.py", "README.md"]
    assert (ended.code, ended.json) == (0, {"folder": str(place), "files": files})
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
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
