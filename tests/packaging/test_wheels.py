"""The wheel: built reproducibly, complete, and useful without any extra."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

import holdfast

from .wheels import ROOT, build, installed, sources

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return build(sources(folder / "source"), folder / "dist")


def test_two_builds_of_the_same_files_are_equal(wheel: Path, tmp_path: Path) -> None:
    other = sources(tmp_path / "elsewhere")
    for path in other.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    again = build(other, tmp_path / "dist")
    assert again.name == wheel.name == f"holdfast-{holdfast.__version__}-py3-none-any.whl"
    assert again.read_bytes() == wheel.read_bytes()


def test_a_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    source = ROOT / "src"
    files = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    package = {name for name in files if "__pycache__" not in name}
    assert {name for name in names if ".dist-info/" not in name} == package
    assert "holdfast/py.typed" in package


def test_the_demo_runs_from_the_wheel_without_any_extra(wheel: Path, tmp_path: Path) -> None:
    python = installed(wheel, tmp_path / "env")
    program = "import sys; from holdfast.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [str(python), "-I", "-c", program, "demo", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["ok"] is True
    without = [*command[:4], "sessions"]
    told = subprocess.run(without, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert told.returncode == 1
    assert told.stderr == (
        "error: holdfast needs an optional package: pip install 'holdfast[cli]' "
        "(docs/errors#missing_extra)\n"
    )


def test_the_extra_all_has_every_other_except_testing() -> None:
    named = [name for line in EXTRAS["all"] for name in line[len("holdfast[") : -1].split(",")]
    covered = {"anthropic", "google"}  # by `models`
    assert {*named} | covered | {"testing", "all"} == {*EXTRAS}
    assert all(line in str(EXTRAS["models"]) for line in ("openai", "anthropic", "google"))


def test_every_extra_is_documented() -> None:
    page = (ROOT / "docs" / "platforms.md").read_text()
    assert [name for name in EXTRAS if f"| `{name}` |" not in page] == []
