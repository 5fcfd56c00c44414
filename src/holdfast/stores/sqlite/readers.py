"""`Readers`, a pool of threads that run read transactions on an SQLite database."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ...errors import StoreDamaged, StoreUnavailable
from ..event_loop import OwnLoop
from .identity import DatabaseFile, Identity
from .schema import translation
from .waiting import Waiting, copied, deliver
from .writer import SqliteWriter

T = TypeVar("T")

MOST_THREADS = 4
RENEWALS = 5  # how often a read is tried if the files are replaced meanwhile


class _Replaced(Exception):
    """The database files were replaced and are not those that the writer has open."""


class Readers:
    """A pool of read-only connections, each used by one thread at a time. If the database files
    were replaced or are damaged, the writer reopens or rebuilds the database, and the read is
    repeated."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        file: DatabaseFile,
        writer: SqliteWriter,
    ) -> None:
        self._connect = connect
        self._file = file
        self._writer = writer
        self._idle: list[tuple[Identity, sqlite3.Connection]] = []
        self._handed: queue.SimpleQueue[list[Waiting] | None] = queue.SimpleQueue()
        self._undelivered = 0  # lists of jobs whose results were not delivered yet
        self._threads: list[threading.Thread] = []
        self._loop, self._own = asyncio.get_running_loop(), OwnLoop("the store")
        self._gathered: list[Waiting] = []
        self._closed = False

    async def run(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a job in a read transaction, and return its result."""

        def alone() -> asyncio.Future[T]:
            future: asyncio.Future[T] = self._loop.create_future()
            self._hand([Waiting(job, future)])
            return future

        return await self._renewing(alone)

    async def run_soon(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a short job and return its result. All short jobs of one iteration of the event loop
        run together in one thread, because passing a job to a thread costs more than reading a
        row."""

        def soon() -> asyncio.Future[T]:
            if not self._gathered:
                self._loop.call_soon(self._hand_over)
            future: asyncio.Future[T] = self._loop.create_future()
            self._gathered.append(Waiting(job, future))
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
            problem=f"{self._file.path!r} was replaced repeatedly during a read: try again later"
        )

    def _check_open(self) -> None:
        self._own.check()
        if self._closed:
            raise StoreUnavailable(problem="the store is closed")

    def _hand_over(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered:
            self._hand(gathered)

    def _hand(self, jobs: list[Waiting]) -> None:
        """Pass jobs to a thread of the pool. Starts a thread if all others are busy and the limit
        is not reached."""
        self._undelivered += 1
        if len(self._threads) < min(self._undelivered, MOST_THREADS):
            thread = threading.Thread(target=self._work, name="holdfast-reader", daemon=True)
            thread.start()
            self._threads.append(thread)
        self._handed.put(jobs)

    def _work(self) -> None:
        while (jobs := self._handed.get()) is not None:
            self._run_all(jobs)
            with contextlib.suppress(RuntimeError):  # the loop is closed: no caller is left
                self._loop.call_soon_threadsafe(self._deliver, jobs)

    def _deliver(self, jobs: list[Waiting]) -> None:
        self._undelivered -= 1
        deliver(jobs)

    def _run_all(self, jobs: list[Waiting]) -> None:
        """Run jobs in one transaction. Called in a thread of the pool."""
        try:
            opened, conn = self._attempt(self._take, self._file.opened)
            try:
                self._attempt(lambda: conn.execute("BEGIN"), opened)
                for waiting in jobs:
                    try:
                        waiting.result = self._attempt(partial(waiting.job, conn), opened)
                    except Exception as error:
                        waiting.error = error
            finally:
                # Ended before anything is awaited: an open transaction would block the checkpoint.
                self._give_back(opened, conn)
        except BaseException as error:
            for waiting in jobs:
                waiting.error = waiting.error or copied(error)

    def _attempt(self, work: Callable[[], T], opened: Identity) -> T:
        """Call `work` and return its result. Raises `_Replaced` if it fails because the files
        `opened` were replaced."""
        try:
            return work()
        except (sqlite3.Error, OSError) as error:
            if isinstance(error, sqlite3.Error) and (
                self._file.is_replaced() or self._file.opened != opened
            ):
                raise _Replaced from error
            raise translation(error, self._file.path) from error

    def _give_back(self, opened: Identity, conn: sqlite3.Connection) -> None:
        """End the transaction, and return the connection to the pool. If this fails, the connection
        is closed."""
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
        with contextlib.ExitStack() as undo:
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
            for _ in self._threads:
                self._handed.put(None)
            await asyncio.to_thread(self._join)
            for _, conn in self._idle:
                conn.close()

    def _join(self) -> None:
        for thread in self._threads:
            thread.join()
