"""Files that a process may not remove, also where the tests run as root: the threads that work
for the event loop take on the rights of another user on files."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65_534
needs_root = pytest.mark.xfail(
    os.geteuid() != 0, reason="only root can make a file that another user cannot remove", run=False
)


@contextmanager
def public_folder() -> Iterator[Path]:
    """A folder that anybody may reach and change."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-test-"))
    folder.chmod(0o777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def work_as_nobody() -> None:
    """Have the threads of this event loop create and remove files as another user, from now on.
    Linux gives each thread such a user of its own."""

    def become() -> None:
        ctypes.CDLL(None).setfsuid(NOBODY)

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4, initializer=become))


def work_as_oneself() -> None:
    """Have new threads of this event loop work as the user of the process again."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4))


def lock(folder: Path) -> Path:
    """A file in a folder of root's, which nobody else may remove."""
    locked = folder / "locked"
    locked.mkdir(mode=0o755)
    (locked / "kept.txt").write_text("kept")
    return locked


def unlock(locked: Path) -> None:
    os.chown(locked, NOBODY, -1)
