"""Wheels of this source, built as `scripts/wheel` builds them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib import util
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src")


def sources(to: Path) -> Path:
    """Copy what a wheel is built of; files get the current time."""
    to.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, to / name, ignore=ignored, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(ROOT / name, to / name)
    return to


def build(source: Path, to: Path) -> Path:
    """Build a wheel of these sources into a folder."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", str(to)]
    unset = {k: v for k, v in os.environ.items() if k != "SOURCE_DATE_EPOCH"}
    subprocess.run(command, cwd=source, env=unset, check=True, capture_output=True)
    (wheel,) = to.glob("*.whl")
    return wheel


def installed(wheel: Path, folder: Path) -> Path:
    """Make an environment with the wheel and `msgspec`, and nothing else; its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    spec = util.find_spec("msgspec")
    assert spec is not None
    assert spec.origin is not None
    shutil.copytree(Path(spec.origin).parent, packages / "msgspec")
    return folder / "bin" / "python"
