"""The published source archives of the SDKs, which contain their tests.

`requirements/published.txt` pins them by hash. Each is downloaded once per environment with `pip`,
from the index that the machine is configured for. Nothing in them is part of this project.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

PINS = Path(__file__).parents[3] / "requirements/published.txt"
FOLDER = Path(sys.prefix) / "published"


def pins() -> dict[str, str]:
    """Return the version of each project."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", PINS.read_text(), re.MULTILINE))


def unpack(project: str, folder: Path) -> Path:
    """Unpack the archive of a project, and return the folder with its files."""
    with tarfile.open(_downloaded(project)) as archive:
        archive.extractall(folder, filter="data")
    (top,) = folder.iterdir()
    return top


def _downloaded(project: str) -> Path:
    name = f"{project.replace('-', '_')}-{pins()[project]}.tar.gz"
    FOLDER.mkdir(exist_ok=True)
    with open(FOLDER / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (FOLDER / name).exists():
            _download(project)
    return FOLDER / name


def _download(project: str) -> None:
    lines = re.findall(rf"^{project}==.*?(?<!\\)$", PINS.read_text(), re.MULTILINE | re.DOTALL)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        Path(folder, "pins.txt").write_text(lines[0])
        words = ["download", "--quiet", "--no-deps", "--no-binary", ":all:", "--require-hashes"]
        words += ["--no-build-isolation", "--dest", f"{folder}/found", "-r", f"{folder}/pins.txt"]
        environment = {**os.environ, "PYTHONPATH": _pip(Path(folder))}
        subprocess.run([sys.executable, "-m", "pip", *words], env=environment, check=True)
        for found in Path(folder, "found").iterdir():
            found.rename(FOLDER / found.name)


def _pip(folder: Path) -> str:
    """Return the folder of a `pip` for this Python, or "" if it has one. Some tools make
    environments without it."""
    if importlib.util.find_spec("pip"):
        return ""
    venv.create(folder / "pip", with_pip=True)
    (packages,) = (folder / "pip").glob("lib/*/site-packages")
    return str(packages)
