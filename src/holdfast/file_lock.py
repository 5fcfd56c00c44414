"""A lock between processes, on an empty file or on a folder.

SQLite's own busy handler sleeps and retries, so with eight writers, one of them can starve for
seconds. With a lock file, waiting writers queue in the kernel, so that no writer waits long.
"""

from __future__ import annotations

import os
import random
import threading
import time
from types import TracebackType

try:
    import fcntl
except ImportError:  # Windows: only SQLite's busy handler serializes writers
    fcntl = None  # type: ignore[assignment]  # the name is tested before each use


ASKED = 8  # attempts before a lock is reported as held


class FileLock:
    """An exclusive lock on a file or an existing folder, held by one thread of one process at a
    time. The file is created if it does not exist."""

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
    """Return whether a process holds the lock on this file. Another process that checks the lock
    also takes it for a moment, so this tries several times."""
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
                time.sleep(random.uniform(0, 0.002) * n)  # noqa: S311 - desynchronise checks
    finally:
        os.close(file)
    return True
