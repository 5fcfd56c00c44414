"""A lock between processes, on an empty file or on a folder.

SQLite's own busy handler sleeps and retries, so that with eight writers, one of them can starve for
seconds. Waiting in the kernel's queue for a lock file is fair enough that no writer waits long.
"""

from __future__ import annotations

import os
import random
import threading
import time
from types import TracebackType

try:
    import fcntl
except ImportError:  # Windows: SQLite's busy handler alone keeps writers apart
    fcntl = None  # type: ignore[assignment]  # the name is tested before each use


ASKED = 8  # attempts before a lock counts as held


class FileLock:
    """An exclusive lock for one thread of one process at a time: on a file, created if it does not
    exist, or on an existing folder."""

    def __init__(self, path: str, *, mode: int = 0o600, folder: bool = False) -> None:
        if folder:
            flags = os.O_RDONLY | os.O_DIRECTORY
        else:
            make_file(path, mode)
            flags = os.O_RDWR | os.O_CREAT
        self._file = os.open(path, flags | os.O_CLOEXEC, mode)
        self._threads = threading.Lock()

    def __enter__(self) -> None:
        self._threads.acquire()
        try:
            if fcntl is not None:
                fcntl.flock(self._file, fcntl.LOCK_EX)
        except BaseException:
            self._threads.release()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        try:
            if fcntl is not None:
                fcntl.flock(self._file, fcntl.LOCK_UN)
        finally:
            self._threads.release()

    def is_at(self, path: str) -> bool:
        """Return whether the locked file is still the file at this path."""
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(path))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def make_file(path: str, mode: int) -> bool:
    """Create an empty file with exactly these permissions, regardless of the umask. Returns False
    if it already exists."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
    except FileExistsError:
        return False
    os.chmod(path, mode)
    return True


def held(path: str) -> bool:
    """Return whether some process holds the lock on this file. A concurrent check takes the lock
    for an instant, so this tries more than once."""
    if not fcntl:
        return False
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        for n in range(ASKED):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return False
            except BlockingIOError:
                time.sleep(random.uniform(0, 0.002) * n)  # noqa: S311 - to avoid other checks
    finally:
        os.close(file)
    return True
