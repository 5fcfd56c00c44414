"""A lock between processes, on a file that holds nothing, or on a folder.

SQLite's own busy handler sleeps and retries, and under eight writers one of them
can starve for seconds; waiting in the kernel's queue for a lock file is fair enough
that none waits long.
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


ASKED = 8  # times before a lock that is taken counts as held


class FileLock:
    """An exclusive lock, for one thread of one process at a time: on a file, made if it does not
    exist, or on a folder that exists, which stays whatever is removed in it."""

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
        """Whether what it locks is what is at this path."""
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(path))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Give the file back. Safe to call twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def make_file(path: str, mode: int) -> bool:
    """Make an empty file with exactly these permissions, whatever the umask is, if there is none;
    whether it was made."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
    except FileExistsError:
        return False
    os.chmod(path, mode)
    return True


def held(path: str) -> bool:
    """Whether some process holds the lock on this file. One that only asks, as this does, has it
    for an instant, so that it is asked more than once."""
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
                time.sleep(random.uniform(0, 0.002) * n)  # noqa: S311 - to miss others that ask
    finally:
        os.close(file)
    return True
