"""Cleanup after a command that created a store and then failed. If the new store contains no
session, its files and the folders created for it are removed. Databases on a server are not
changed."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from ..file_lock import FileLock
from .sql.tables import DEAD
from .url_display import place

AROUND = ("", "-wal", "-shm", "-journal", ".lock")  # suffixes of the files of a SQLite store


class StoreCreation:
    """Context manager for a block that may create the store at a URL. If the store is on this
    machine and did not exist before, its files are removed when the block raises an `Exception` or
    `drop` is set. With `folders`, missing parent folders are created first, and removed together
    with the store. A store that contains a session, or that another process has open, is kept."""

    def __init__(self, url: str, *, folders: bool = False) -> None:
        self._path = place(url)
        self._file = url.startswith("sqlite:")
        self._folders = folders
        self._missing: list[Path] = []
        self._fresh = False
        self.drop = False

    def __enter__(self) -> StoreCreation:
        if self._path is not None:
            self._fresh = not self._path.exists()
            above = [folder for folder in self._path.absolute().parents if not folder.exists()]
            self._missing = above if self._folders else []
            if self._folders:
                self._path.absolute().parent.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._path is None or not self._fresh or not (self.drop or isinstance(error, Exception)):
            return
        with contextlib.suppress(OSError, sqlite3.Error):
            remove_unused(self._path, file=self._file)
        for folder in self._missing:  # innermost first; only empty folders are removed
            with contextlib.suppress(OSError):
                folder.rmdir()

    async def __aenter__(self) -> StoreCreation:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)


def remove_unused(path: Path, *, file: bool) -> None:
    """Remove the files of a store, unless it contains a session or another process has it open."""
    database = path if file else path / "index.db"
    if not database.exists() or _used(database):
        return
    lock = FileLock(f"{database}.lock") if file else FileLock(str(path), folder=True)
    try:
        with lock:
            if _used(database) or not _alone(database):
                return
            if not file:
                shutil.rmtree(path)
                return
            for end in AROUND:
                Path(f"{path}{end}").unlink(missing_ok=True)
    finally:
        lock.close()


def _used(database: Path) -> bool:
    with closing(sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True)) as conn:
        if not conn.execute("SELECT 1 FROM sqlite_master WHERE name = 'logs'").fetchone():
            return conn.execute("SELECT 1 FROM sqlite_master").fetchone() is not None
        return conn.execute("SELECT 1 FROM logs WHERE state <> ?", (DEAD,)).fetchone() is not None


def _alone(database: Path) -> bool:
    """Return whether no other process has the database open: SQLite removes its journal only in
    that case."""
    with closing(sqlite3.connect(str(database), timeout=0)) as conn:
        try:
            return bool(conn.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",))
        except sqlite3.OperationalError:
            return False
