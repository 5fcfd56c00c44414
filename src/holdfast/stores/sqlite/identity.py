"""Which files a database has open, and whether they are still the ones at their paths.

A process that has a database open reads and writes on after its files were removed or replaced,
and nobody else ever sees what it writes then. A file keeps its device and inode for as long as
somebody has it open, so three calls of `stat` tell.
"""

from __future__ import annotations

import os
import sqlite3

from ...errors import StoreReplaced
from ...file_lock import make_file

ENDS = ("", "-wal", "-shm")

Inode = tuple[int, int]  # with its device
Identity = tuple[Inode | None, ...]


def inode(path: str) -> Inode | None:
    """The inode of the file at a path; None if it does not exist."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


class DatabaseFile:
    """The files of one database: the database, its write-ahead log and its shared memory. Used by
    the thread that writes, which opens it, and by those that read, which only ask."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        real = os.path.realpath(path)  # beside which SQLite puts the other two
        self._paths = (self.path, *(real + end for end in ENDS[1:]))
        self.opened: Identity = ()

    def make(self, mode: int) -> bool:
        """Make the database an empty file with these permissions, if it does not exist; whether it
        was made. The other two get the permissions of this one."""
        return make_file(os.path.realpath(self.path), mode)

    def now(self) -> Identity:
        """The files that are at the paths."""
        return tuple(map(inode, self._paths))

    def is_replaced(self) -> bool:
        """Whether another file is, or none, where one was that is open."""
        return self.now() != self.opened

    def is_partly_replaced(self) -> bool:
        """Whether some of the open files are still at their paths, which do not belong to those
        that are not."""
        return any(now is not None and now in self.opened for now in self.now())

    def has_log(self) -> bool:
        """Whether there is a write-ahead log that holds something."""
        try:
            return os.path.getsize(self._paths[1]) > 0
        except FileNotFoundError:
            return False

    def is_whole(self) -> bool:
        """Whether all files exist, as they do while a process has the database open."""
        return None not in self.now()

    def remember(self, conn: sqlite3.Connection, before: Inode | None) -> bool:
        """From now on these files are the open ones, if `conn`, before whose opening the database
        was `before`, has opened them; whether it has."""
        found = self.now()
        (mode,) = conn.execute("PRAGMA journal_mode").fetchone()
        if found[0] != before or (mode == "wal" and None in found):
            return False
        self.opened = found
        return True

    def check(self) -> None:
        """Raise `StoreReplaced` if the open files are no longer at their paths."""
        if self.is_replaced():
            raise replaced(self.path)

    def remove(self) -> None:
        """Remove all files."""
        for path in self._paths:
            if os.path.lexists(path):
                os.unlink(path)


def replaced(path: str) -> StoreReplaced:
    """What to raise when a file or folder was removed or replaced under an open store."""
    return StoreReplaced(
        problem=f"{path!r} was removed or replaced while this store had it open, and what is "
        "written now would be lost: close the store, put the right files in place, open it again",
        path=path,
    )
