"""`holdfast --help`, `holdfast --version` and shell completion."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.overview import overview
from holdfast.cli.verbs import GROUPS, SECTIONS, VERBS

from .conftest import Cli

ALONE = """
import sys
from holdfast.cli import main
code = main(sys.argv[1:])
heavy = {"cyclopts", "rich", "asyncio", "holdfast.harness", "holdfast.cli.app"} & set(sys.modules)
print(code, sorted(heavy), file=sys.stderr)
"""


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_overview_fits_the_terminal(columns: int) -> None:
    lines = overview(columns).splitlines()
    assert max(map(len, lines)) <= min(columns, 100)


def test_overview_lists_every_verb_and_section_with_its_summary() -> None:
    text = " ".join(overview(80).split())
    for name, (_, _, summary) in VERBS.items():
        assert f"{name} {summary}" in text
    for name, (_, about, _) in GROUPS.items():
        summary = " ".join(about.partition("\n\n")[0].split())
        assert f"{name} {summary}" in text
    assert all(f"{section}:" in text for section in SECTIONS)


def test_help_is_the_same_with_no_arguments(cli: Cli) -> None:
    assert cli().out == cli("--help").out == cli("-h").out
    assert cli().code == 0


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_load_neither_parser_nor_harness(option: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE, option], capture_output=True, text=True, check=True
    )
    assert done.stderr == "0 []\n"
    assert "--help" in done.stdout or done.stdout.strip() == holdfast.__version__


def test_completion_is_installed_for_the_shell_of_the_user(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/bin/bash")
    assert cli("--install-completion").code == 0
    (script,) = (tmp_path / "home").rglob("completions/holdfast")
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert all(verb in script.read_text() for verb in (*VERBS, *GROUPS))
