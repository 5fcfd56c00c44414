"""Detects whether the open database files were removed or replaced.

When database files are removed or replaced, a process that has them open continues to read and
write the old files, and no other process sees those writes. A file keeps its device and inode while
a process has it open, so three calls of `stat` detect this.
"""

from __future__ import annotations

import os
import sqlite3

from ...errors import StoreReplaced
from ...file_lock import make_file

ENDS = ("", "-wal", "-shm")

Inode = tuple[int, int]  # device and inode
Identity = tuple[Inode | None, ...]


def inode(path: str) -> Inode | None:
    """Return the device and inode of the file at a path; None if it does not exist."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


class DatabaseFile:
    """The files of one database: the database itself, its write-ahead log and its shared memory.
    The writer's thread opens them; reader threads only check them."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        real = os.path.realpath(path)  # SQLite creates the other two next to it
        self._paths = (self.path, *(real + end for end in ENDS[1:]))
        self.opened: Identity = ()

    def make(self, mode: int) -> bool:
        """Create the database as an empty file with these permissions, if it does not exist.
        Returns whether the file was created. SQLite creates the files `-wal` and `-shm`
        with the same permissions."""
        return make_file(os.path.realpath(self.path), mode)

    def now(self) -> Identity:
        """Return the identity of the files that are currently at the paths."""
        return tuple(map(inode, self._paths))

    def is_replaced(self) -> bool:
        """Return whether one of the open files was removed or replaced."""
        return self.now() != self.opened

    def is_partly_replaced(self) -> bool:
        """Return whether some of the open files were replaced and others were not, so that the
        files do not belong together."""
        return any(now is not None and now in self.opened for now in self.now())

    def has_log(self) -> bool:
        """Return whether there is a write-ahead log that is not empty."""
        try:
            return os.path.getsize(self._paths[1]) > 0
        except FileNotFoundError:
            return False

    def is_whole(self) -> bool:
        """Return whether all files exist, as they do while a process has the database open."""
        return None not in self.now()

    def remember(self, conn: sqlite3.Connection, before: Inode | None) -> bool:
        """Record the current files as the open ones, unless they were replaced while `conn` was
        opened. Returns whether they were recorded. `before` is the inode of the database file
        before `conn` was opened."""
        found = self.now()
        (mode,) = conn.execute("PRAGMA journal_mode").fetchone()
        if found[0] != before or (mode == "wal" and None in found):
            return False
        self.opened = found
        return True

    def check(self) -> None:
        """Raise `StoreReplaced` if one of the open files was removed or replaced."""
        if self.is_replaced():
            raise replaced(self.path)

    def remove(self) -> None:
        """Delete the database, its write-ahead log and its shared memory."""
        for path in self._paths:
            if os.path.lexists(path):
                os.unlink(path)


def replaced(path: str) -> StoreReplaced:
    """Return the error for a file or folder that was removed or replaced while a store had it
    open."""
    return StoreReplaced(
        problem=f"{path!r} was removed or replaced while this store had it open, so new writes "
        f"would be lost: close the store, restore the files, then open it again",
        path=path,
    )
