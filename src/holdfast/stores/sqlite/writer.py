"""The writer thread, which also watches for commits of other processes, and the pool of reader
connections.

All waiting jobs run in one transaction, so that many sessions share one fsync. A rejected job (a
`HoldfastError`) writes nothing and does not affect the others; a failed transaction fails all of
its jobs with `StoreUnavailable`. A queued job runs even if its caller is cancelled: ids make the
retry safe. While there is a follower, the same connection detects commits of other processes.

Each batch first checks that the open files are still at their paths. If not, a database that can be
rebuilt is opened again, and rebuilt if it is damaged; any other database is no longer used.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ...errors import HoldfastError, StoreDamaged, StoreError, StoreUnavailable
from ...file_lock import FileLock
from ..event_loop import OwnLoop
from .identity import DatabaseFile, Identity, replaced
from .payloads import PayloadStorage, Recent
from .schema import translated

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], Any]
Reopen = Callable[[bool], sqlite3.Connection]

MOST_JOBS = 256
MOST_BYTES = 8 << 20
MOST_RECENT = 1_024
RENEWALS = 5  # times that a read starts again because the files were replaced
LOOK = 0.02  # seconds between two checks for commits of other processes, while there are followers


class _Waiting:
    """A job and the future of its caller. If `alone` is true, the job runs outside a transaction,
    as VACUUM requires. If `tidy` is true, the job updates `SqliteWriter.recent` itself. `done` is
    called with the result, even if the caller was cancelled."""

    __slots__ = ("alone", "done", "error", "future", "job", "result", "size", "tidy")

    def __init__(
        self,
        job: Job,
        future: asyncio.Future[Any],
        *,
        size: int = 0,
        alone: bool = False,
        tidy: bool = False,
        done: Callable[[Any], None] | None = None,
    ) -> None:
        self.job = job
        self.future = future
        self.size = size
        self.alone = alone
        self.tidy = tidy
        self.done = done
        self.result: Any = None
        self.error: BaseException | None = None


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
        self._gathered: list[_Waiting] = []
        self._handed: queue.SimpleQueue[list[_Waiting] | None] = queue.SimpleQueue()
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
        self._put(_Waiting(job, future, size=size, tidy=tidy, done=done))
        return await future

    async def run_alone(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job outside a transaction and return its result."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._put(_Waiting(job, future, alone=True))
        return await future

    async def refresh(self) -> None:
        """Open the database again if its files were replaced. Raises `StoreReplaced` if that is not
        possible."""
        await self.run_alone(lambda conn: None)

    async def rebuild(self, damage: StoreDamaged) -> None:
        """Rebuild the database if it is damaged and can be rebuilt. Raises the error otherwise."""
        if self._reopen is None:
            raise damage
        await self.run_alone(_check)

    def watch(self) -> None:
        """Start watching for commits of other processes, because there is a follower."""
        self._handed.put([])

    def _put(self, waiting: _Waiting) -> None:
        self._own.check()
        if self._closed:
            raise StoreUnavailable(problem="the store is closed")
        if not self._gathered:
            # One iteration of the loop later, so that all appends of this iteration are queued
            # together and share a transaction.
            self._loop.call_soon(self._hand_over)
        self._gathered.append(waiting)

    def _hand_over(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered:
            self._handed.put(gathered)

    def _work(self) -> None:
        todo: deque[_Waiting] = deque()
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
            self._loop.call_soon_threadsafe(_deliver, batch)

    def _next(self) -> list[_Waiting] | None:
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

    def _more(self, todo: deque[_Waiting]) -> bool:
        try:
            handed = self._handed.get_nowait()
        except queue.Empty:
            return False
        if handed is None:
            self._handed.put(None)
            return False
        todo.extend(handed)
        return bool(todo)

    def _carry_out(self, batch: list[_Waiting]) -> None:
        try:
            with translated(self._file.path), self._lock:
                self._check_file()
                try:
                    with translated(self._file.path):
                        self._perform(batch)
                except StoreError as error:
                    damaged = isinstance(error, StoreDamaged)
                    if self._reopen is None or not (damaged or self._file.is_replaced()):
                        raise
                    self._open_again(rebuild=damaged)
                    self._perform(batch)
                if self._reopen is None:
                    self._file.check()  # otherwise the writes are lost in a removed file
        except BaseException as error:
            for waiting in batch:
                waiting.error = waiting.error or _copy(error)

    def _perform(self, batch: list[_Waiting]) -> None:
        if batch[0].alone:
            batch[0].result = batch[0].job(self._conn)
        else:
            self._transact(batch)

    def _check_file(self) -> None:
        """Switch to the files that are now at the paths, if they were replaced. Called under the
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

    def _transact(self, batch: list[_Waiting]) -> None:
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
        """Invalidate `recent`, the cache of recently written logs, when another connection commits,
        a job does not maintain the cache, or a transaction fails."""
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
    """Raise `StoreDamaged` if SQLite finds damage in its file."""
    with translated():
        for (text,) in conn.execute("PRAGMA quick_check(1)"):
            if text != "ok":
                raise StoreDamaged(problem=f"the database file is damaged ({text})")


def _copy(error: BaseException) -> BaseException:
    """Copy an error for each waiting caller, since callers raise it in different tasks."""
    if not isinstance(error, HoldfastError):
        return error
    copy = type(error)(**error.fields)
    copy.__cause__ = error.__cause__
    return copy


def _deliver(batch: list[_Waiting]) -> None:
    for waiting in batch:
        if waiting.done is not None and waiting.error is None:
            waiting.done(waiting.result)
        if waiting.future.done():
            continue  # its caller was cancelled
        if waiting.error is not None:
            waiting.future.set_exception(waiting.error)
        else:
            waiting.future.set_result(waiting.result)


class _Replaced(Exception):
    """The database files are not the files that the writer has open."""


class Readers:
    """A few read-only connections, each used by one thread at a time. If a read finds other files
    than the writer has open, or a damaged database, the writer reopens or rebuilds the database,
    and the read starts again."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        file: DatabaseFile,
        writer: SqliteWriter,
        *,
        most: int = 4,
    ) -> None:
        self._connect = connect
        self._file = file
        self._writer = writer
        self._idle: list[tuple[Identity, sqlite3.Connection]] = []
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="holdfast-reader")
        self._loop, self._own = asyncio.get_running_loop(), OwnLoop("the store")
        self._gathered: list[_Waiting] = []
        self._closed = False

    async def run(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job that sees one consistent state of the database, and return its result."""
        return await self._renewing(
            lambda: self._loop.run_in_executor(self._threads, self._run, job)
        )

    async def run_soon(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a short job and return its result. All short jobs of one iteration of the event loop
        run together in one thread, because the handover to a thread costs more than reading a
        row."""

        def soon() -> asyncio.Future[T]:
            if not self._gathered:
                self._loop.call_soon(self._hand_over)
            future: asyncio.Future[T] = self._loop.create_future()
            self._gathered.append(_Waiting(job, future))
            return future

        return await self._renewing(soon)

    async def _renewing(self, begin: Callable[[], asyncio.Future[T]]) -> T:
        """Run a read and return its result. The read is repeated if the database was reopened
        meanwhile."""
        damage: StoreDamaged | None = None
        for _ in range(RENEWALS):
            self._check_open()
            try:
                return await begin()
            except _Replaced:
                await self._writer.refresh()
            except StoreDamaged as error:
                if damage is not None:
                    raise
                damage = error
                await self._writer.rebuild(damage)
        raise StoreUnavailable(
            problem=f"{self._file.path!r} is replaced repeatedly: try again later"
        )

    def _check_open(self) -> None:
        self._own.check()
        if self._closed:
            raise StoreUnavailable(problem="the store is closed")

    def _hand_over(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered:
            self._threads.submit(self._run_all, gathered)

    def _run_all(self, gathered: list[_Waiting]) -> None:
        opened = self._file.opened

        def each(conn: sqlite3.Connection) -> None:
            for waiting in gathered:
                try:
                    with translated(self._file.path), self._noticing(opened):
                        waiting.result = waiting.job(conn)
                except Exception as error:
                    waiting.error = error

        try:
            self._run(each)
        except BaseException as error:
            for waiting in gathered:
                waiting.error = waiting.error or _copy(error)
        self._loop.call_soon_threadsafe(_deliver, gathered)

    def _run(self, job: Callable[[sqlite3.Connection], T]) -> T:
        with translated(self._file.path):
            opened, conn = self._take()
            try:
                with self._noticing(opened):
                    conn.execute("BEGIN")
                    return job(conn)
            finally:
                # Ended before anything is awaited: an open transaction would block the checkpoint.
                self._give_back(opened, conn)

    @contextlib.contextmanager
    def _noticing(self, opened: Identity) -> Iterator[None]:
        """Context manager that raises `_Replaced` instead of an error that occurs because the files
        were replaced."""
        try:
            yield
        except sqlite3.Error as error:
            if self._file.is_replaced() or self._file.opened != opened:
                raise _Replaced from error
            raise

    def _give_back(self, opened: Identity, conn: sqlite3.Connection) -> None:
        """End the transaction of a connection. If this fails, the connection is not used again."""
        try:
            if conn.in_transaction:
                conn.execute("COMMIT")
        except sqlite3.Error:
            conn.close()
        else:
            self._idle.append((opened, conn))

    def _take(self) -> tuple[Identity, sqlite3.Connection]:
        """Return a connection to the files that the writer has open."""
        opened = self._file.opened
        if self._file.is_replaced():
            raise _Replaced
        while self._idle:
            try:
                known, conn = self._idle.pop()
            except IndexError:
                break  # another thread was faster
            if known == opened:
                return known, conn
            conn.close()
        return opened, self._connected(opened)

    def _connected(self, opened: Identity) -> sqlite3.Connection:
        with contextlib.ExitStack() as undo, self._noticing(opened):
            conn = self._connect()
            undo.callback(conn.close)
            conn.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()  # opens all files
            if self._file.is_replaced() or self._file.opened != opened:
                raise _Replaced
            undo.pop_all()
        return conn

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._hand_over()
            await asyncio.to_thread(self._threads.shutdown)
            for _, conn in self._idle:
                conn.close()
