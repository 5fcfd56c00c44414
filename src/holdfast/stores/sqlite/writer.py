"""`SqliteWriter`, the thread that runs all writes, and that detects commits of other processes.

All waiting jobs run in one transaction, so that many sessions share one fsync. A rejected job (a
`HoldfastError`) writes nothing and does not affect the others; a failed transaction fails all of
its jobs with `StoreUnavailable`. A queued job runs even if its caller is cancelled; event ids make
a retry safe. While there is a follower, the same connection detects commits of other processes.

Before each batch, the thread checks whether the open files were removed or replaced. If so, a
database that can be rebuilt is opened again, and rebuilt if it is damaged; with any other database,
all jobs fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from ...errors import HoldfastError, StoreDamaged, StoreError, StoreUnavailable
from ...file_lock import FileLock
from ..event_loop import OwnLoop
from .identity import DatabaseFile, replaced
from .payloads import PayloadStorage, Recent
from .schema import translated, translation
from .waiting import Waiting, copied, deliver

T = TypeVar("T")
Reopen = Callable[[bool], sqlite3.Connection]

MOST_JOBS = 256
MOST_BYTES = 8 << 20
MOST_RECENT = 1_024
LOOK = 0.02  # seconds between two checks for commits of other processes, while there are followers


class SqliteWriter:
    """Runs jobs on one connection in one thread, many per transaction. While `watching` is true,
    `changed` is called on the loop when another process has committed.

    `reopen` opens the database again, under the lock; called with True, it also rebuilds the
    database. Without `reopen`, every job on a database whose files were replaced raises
    `StoreReplaced`, either before the job runs or, if the files were replaced meanwhile, after it.
    """

    def __init__(
        self,
        conn: sqlite3.Connection,
        lock: FileLock,
        payloads: PayloadStorage,
        file: DatabaseFile,
        *,
        reopen: Reopen | None,
        watching: Callable[[], bool],
        changed: Callable[[], None],
    ) -> None:
        self._conn = conn
        self._lock = lock
        self._payloads = payloads
        self._file = file
        self._reopen = reopen
        self.recent: Recent = {}
        self._seen = -1
        self._watching, self._changed = watching, changed
        self._loop, self._own = asyncio.get_running_loop(), OwnLoop("the store")
        self._gathered: list[Waiting] = []
        self._busy = 0  # jobs of the thread whose results were not delivered yet
        self._latest = 0  # number of jobs in the last list that was handed over
        self._handed: queue.SimpleQueue[list[Waiting] | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="holdfast-writer", daemon=True)
        self._thread.start()

    async def run(
        self,
        job: Callable[[sqlite3.Connection], T],
        *,
        size: int = 0,
        tidy: bool = False,
        done: Callable[[T], None] | None = None,
    ) -> T:
        """Run a job. Returns its result when its transaction is durable."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._put(Waiting(job, future, size=size, tidy=tidy, done=done))
        return await future

    async def run_alone(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job outside a transaction and return its result."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._put(Waiting(job, future, alone=True))
        return await future

    async def refresh(self) -> None:
        """Open the database again if its files were replaced. Raises `StoreReplaced` if it cannot
        be rebuilt."""
        await self.run_alone(lambda conn: None)

    async def rebuild(self, damage: StoreDamaged) -> None:
        """Rebuild the database if it is damaged. Raises `damage` if this database cannot be
        rebuilt."""
        if self._reopen is None:
            raise damage
        await self.run_alone(_check)

    def watch(self) -> None:
        """Start watching for commits of other processes, because there is a follower."""
        self._handed.put([])

    def _put(self, waiting: Waiting) -> None:
        self._own.check()
        if self._closed:
            raise StoreUnavailable(problem="the store is closed")
        self._gathered.append(waiting)
        if self._busy == 0 and self._latest == 1:
            # Jobs come one at a time, so this one has nothing to wait for.
            self._hand_over()
        elif len(self._gathered) == 1:
            # One iteration of the loop later, so that all appends of this iteration are queued
            # together and share a transaction.
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered:
            self._latest = len(gathered)
            self._busy += self._latest
            self._handed.put(gathered)

    def _deliver(self, batch: list[Waiting]) -> None:
        self._busy -= len(batch)
        deliver(batch)

    def _work(self) -> None:
        todo: deque[Waiting] = deque()
        while True:
            if not todo:
                handed = self._next()
                if handed is None:
                    return
                todo.extend(handed)
                continue
            batch = [todo.popleft()]
            size = batch[0].size
            while not batch[0].alone:
                if not todo and not self._more(todo):
                    break
                size += todo[0].size
                if todo[0].alone or len(batch) == MOST_JOBS or size > MOST_BYTES:
                    break
                batch.append(todo.popleft())
            self._carry_out(batch)
            self._loop.call_soon_threadsafe(self._deliver, batch)

    def _next(self) -> list[Waiting] | None:
        """Return the next jobs. While waiting for jobs, check for commits of other processes."""
        while self._watching():
            try:
                return self._handed.get(timeout=LOOK)
            except queue.Empty:
                self._look()
        return self._handed.get()

    def _look(self) -> None:
        # A follower's own read meets the same error and reports it.
        with contextlib.suppress(sqlite3.Error, OSError, HoldfastError):
            if self._file.is_replaced():
                self._tell_changed()
                with self._lock:
                    self._check_file()
            self._check_recent()

    def _more(self, todo: deque[Waiting]) -> bool:
        try:
            handed = self._handed.get_nowait()
        except queue.Empty:
            return False
        if handed is None:
            self._handed.put(None)
            return False
        todo.extend(handed)
        return bool(todo)

    def _carry_out(self, batch: list[Waiting]) -> None:
        try:
            with self._lock:
                self._check_file()
                try:
                    self._perform(batch)
                except (sqlite3.Error, OSError, StoreError) as error:
                    self._perform_again(batch, self._told(error))
                if self._reopen is None:
                    self._file.check()  # otherwise the writes are lost in a removed file
        except BaseException as error:
            told = self._told(error)
            for waiting in batch:
                waiting.error = waiting.error or copied(told)

    def _told(self, error: BaseException) -> BaseException:
        """Return the error to raise to callers. Errors of the driver are translated to Holdfast
        errors."""
        if not isinstance(error, (sqlite3.Error, OSError)):
            return error
        told = translation(error, self._file.path)
        told.__cause__ = error
        return told

    def _perform_again(self, batch: list[Waiting], error: BaseException) -> None:
        """Open the database again and repeat the jobs, if it was replaced or is damaged. Raises
        `error` otherwise."""
        damaged = isinstance(error, StoreDamaged)
        if self._reopen is None or not (damaged or self._file.is_replaced()):
            raise error
        self._open_again(rebuild=damaged)
        self._perform(batch)

    def _perform(self, batch: list[Waiting]) -> None:
        if batch[0].alone:
            batch[0].result = batch[0].job(self._conn)
        else:
            self._transact(batch)

    def _check_file(self) -> None:
        """Open the files that are now at the paths, if they were replaced. Called under the
        lock."""
        if self._file.is_replaced():
            if self._reopen is None:
                raise replaced(self._file.path)
            self._open_again(rebuild=False)

    def _open_again(self, *, rebuild: bool) -> None:
        assert self._reopen is not None
        self._forget()
        conn = self._reopen(rebuild)
        self._conn.close()
        self._conn, self._seen = conn, -1

    def _transact(self, batch: list[Waiting]) -> None:
        conn = self._conn
        conn.execute("BEGIN IMMEDIATE")
        try:
            self._check_recent()
            if self._payloads.begun(conn):
                self._forget()
            for waiting in batch:
                waiting.error = None
                if not waiting.tidy:
                    self._forget()
                try:
                    waiting.result = waiting.job(conn)
                except HoldfastError as error:
                    waiting.error = error
            self._payloads.committing(conn)
            conn.execute("COMMIT")
        except BaseException:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
            self._payloads.rolled_back()
            self._forget()
            raise
        self._payloads.committed()

    def _check_recent(self) -> None:
        """Clear `recent`, the cache of recently written logs, if another connection has committed
        or the cache is full."""
        (version,) = self._conn.execute("PRAGMA data_version").fetchone()
        if version != self._seen:
            self._seen = version
            self._forget()
            self._tell_changed()
        elif len(self.recent) > MOST_RECENT:
            self._forget()

    def _tell_changed(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no caller is left to notify
            self._loop.call_soon_threadsafe(self._changed)

    def _forget(self) -> None:
        self.recent.clear()
        self._payloads.forget()

    async def finish(self) -> None:
        """Finish the queued jobs, and accept no more."""
        if not self._closed:
            self._closed = True
            self._hand_over()
            self._handed.put(None)
            await asyncio.to_thread(self._thread.join)

    def close(self) -> None:
        """Close the connection. Call `finish` first."""
        self._conn.close()


def _check(conn: sqlite3.Connection) -> None:
    """Raise `StoreDamaged` if SQLite's integrity check finds damage in the file."""
    with translated():
        for (text,) in conn.execute("PRAGMA quick_check(1)"):
            if text != "ok":
                raise StoreDamaged(problem=f"the database file is damaged ({text})")
