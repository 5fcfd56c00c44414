"""The one thread that writes and watches, and the pool of connections that read.

Every job waiting is carried out in one transaction, so that many sessions share one
fsync. A refused job (a `HoldfastError`) writes nothing and does not disturb its
neighbours; a failed transaction fails all of its jobs as `StoreUnavailable`. A job
that was handed over runs even when its caller is cancelled: ids make the retry safe.
While somebody follows, what other processes commit is noticed by the same connection, to
which its own commits are no news.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ...errors import HoldfastError, StoreUnavailable
from ..lock import FileLock
from .bodies import Bodies, Recent
from .schema import translated

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], Any]

MOST_JOBS = 256
MOST_BYTES = 8 << 20
MOST_RECENT = 1_024
LOOK = 0.02  # seconds between two looks at what others commit, while somebody follows


class _Waiting:
    """A job and who waits for it. `alone` runs outside a transaction (VACUUM needs that);
    `tidy` keeps `Writer.recent` true itself; `done` is told the result, whoever still waits for
    that."""

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


class Writer:
    """Runs jobs on one connection in one thread, many to a transaction. While `watching` is
    true, `changed` is called on the loop when another process has committed."""

    def __init__(
        self,
        conn: sqlite3.Connection,
        lock: FileLock,
        bodies: Bodies,
        *,
        watching: Callable[[], bool],
        changed: Callable[[], None],
    ) -> None:
        self._conn = conn
        self._lock = lock
        self._bodies = bodies
        self.recent: Recent = {}
        self._seen = -1
        self._watching, self._changed = watching, changed
        self._loop = asyncio.get_running_loop()
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
        """The job's result, once its transaction is durable."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._put(_Waiting(job, future, size=size, tidy=tidy, done=done))
        return await future

    async def run_alone(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """The result of a job that must not be in a transaction."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._put(_Waiting(job, future, alone=True))
        return await future

    def watch(self) -> None:
        """Somebody follows from now on."""
        self._handed.put([])

    def _put(self, waiting: _Waiting) -> None:
        if self._closed:
            raise StoreUnavailable(problem="the store is closed")
        if not self._gathered:
            # One round of the loop later, so that all who append in this round are
            # handed over together and share a transaction.
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
        """What is handed over next; meanwhile, look what others do."""
        while self._watching():
            try:
                return self._handed.get(timeout=LOOK)
            except queue.Empty:
                self._look()
        return self._handed.get()

    def _look(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # a follower's own read meets it and reports it
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
            with translated(), self._lock:
                if batch[0].alone:
                    batch[0].result = batch[0].job(self._conn)
                else:
                    self._transact(batch)
        except BaseException as error:
            for waiting in batch:
                waiting.error = waiting.error or _copy(error)

    def _transact(self, batch: list[_Waiting]) -> None:
        conn = self._conn
        conn.execute("BEGIN IMMEDIATE")
        try:
            self._check_recent()
            if self._bodies.begun(conn):
                self._forget()
            for waiting in batch:
                if not waiting.tidy:
                    self._forget()
                try:
                    waiting.result = waiting.job(conn)
                except HoldfastError as error:
                    waiting.error = error
            self._bodies.committing(conn)
            conn.execute("COMMIT")
        except BaseException:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
            self._bodies.rolled_back()
            self._forget()
            raise
        self._bodies.committed()

    def _check_recent(self) -> None:
        """`recent` holds the logs that were written last, as the tables have them: until another
        connection commits, a job does not keep it so, or a transaction fails."""
        (version,) = self._conn.execute("PRAGMA data_version").fetchone()
        if version != self._seen:
            self._seen = version
            self._forget()
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
                self._loop.call_soon_threadsafe(self._changed)
        elif len(self.recent) > MOST_RECENT:
            self._forget()

    def _forget(self) -> None:
        self.recent.clear()
        self._bodies.forget()

    async def aclose(self) -> None:
        """Finish what was handed over, then close the connection."""
        if self._closed:
            return
        self._closed = True
        self._hand_over()
        self._handed.put(None)
        await asyncio.to_thread(self._thread.join)
        self._conn.close()


def _copy(error: BaseException) -> BaseException:
    """An error for each who waited: they are raised in different tasks."""
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


class Readers:
    """A few connections that only read, each used by one thread at a time."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], *, most: int = 4) -> None:
        self._connect = connect
        self._idle: list[sqlite3.Connection] = []
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="holdfast-reader")
        self._loop = asyncio.get_running_loop()
        self._gathered: list[_Waiting] = []
        self._closed = False

    async def run(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """The result of a job that sees one consistent state of the database."""
        self._check_open()
        return await self._loop.run_in_executor(self._threads, self._run, job)

    async def run_soon(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """The result of a short job. All that are asked for in one round of the loop are one job
        of a thread: handing it over costs more than to read a row."""
        self._check_open()
        if not self._gathered:
            self._loop.call_soon(self._hand_over)
        future: asyncio.Future[T] = self._loop.create_future()
        self._gathered.append(_Waiting(job, future))
        return await future

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(problem="the store is closed")

    def _hand_over(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered:
            self._threads.submit(self._run_all, gathered)

    def _run_all(self, gathered: list[_Waiting]) -> None:
        def each(conn: sqlite3.Connection) -> None:
            for waiting in gathered:
                try:
                    with translated():
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
        with translated():
            try:
                conn = self._idle.pop()
            except IndexError:
                conn = self._connect()
            try:
                conn.execute("BEGIN")
                return job(conn)
            finally:
                # Ended before anything is awaited: an open one would stop the checkpoint.
                conn.execute("COMMIT")
                self._idle.append(conn)

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._hand_over()
            await asyncio.to_thread(self._threads.shutdown)
            for conn in self._idle:
                conn.close()
