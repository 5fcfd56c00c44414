"""Make one virtual environment, or bring it up to date: `environment.py FOLDER REQUIREMENTS`.

Runs on any Python 3.11 with nothing installed, and is the Python of the environment it makes.
Uses `uv` when there is one, else `venv` and `pip`. Does nothing when nothing changed; of two
that start at once, one works and the other waits.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(folder: Path, requirements: Path) -> None:
    # Locked by the kernel, so that a script that was killed leaves no lock behind.
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        pinned = stamp(folder, requirements.read_bytes())
        project = stamp(folder, (ROOT / "pyproject.toml").read_bytes())
        if read(folder / "pinned") != pinned:
            say(f"setting up {folder.name} with Python {sys.version.split()[0]}")
            create(folder)
            install(folder, "--require-hashes", "-r", str(requirements))
            (folder / "pinned").write_text(pinned)
        if read(folder / "project") != project:
            install(folder, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
            (folder / "project").write_text(project)


def stamp(folder: Path, content: bytes) -> str:
    """What an environment was made from. An environment that was moved, or whose Python is
    another now, does not run."""
    made = hashlib.sha256(content)
    made.update(f"{folder}\n{sys.version}\n{sys.executable}".encode())
    return made.hexdigest()


def create(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    if uv := shutil.which("uv"):
        run(uv, "venv", "--quiet", "--no-project", "--python", sys.executable, str(folder))
    else:
        run(sys.executable, "-m", "venv", str(folder))


def install(folder: Path, *what: str) -> None:
    python = str(folder / "bin" / "python")
    if uv := shutil.which("uv"):
        run(uv, "pip", "install", "--quiet", "--python", python, *what)
    else:
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what)


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode:
        say(f"failed: {' '.join(command)}")
        sys.exit(done.returncode)


def say(text: str) -> None:
    print(f"holdfast: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
