"""Notifies followers in all processes of new events.

One connection per process sends the notifications (NOTIFY), after the commit and for many appends
at once; a NOTIFY inside of the append would make all appends of the database wait for one lock. A
process with followers receives notifications on the same connection. A notification may be lost,
with its sender or its connection, so followed logs are also polled from time to time, all with one
query. Through a pooler a process cannot receive notifications, so it only polls.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from functools import lru_cache
from typing import Any, TypeAlias

from ...cancellation import cancellable, ended
from ...log.events import Key
from ..notify import Wakes
from ..rules import Extension
from .columns import encode
from .database import Link, PostgresDatabase
from .failure import passing

LOOK = 1.0  # seconds between two polls if notifications can be received
POLL = 0.05  # seconds between two polls if notifications cannot be received
GATHER, OFTEN = 0.01, 0.05  # seconds to collect appends for one notification; under load
LATELY = 0.2  # load means that the last notification was sent less than these seconds ago
LogVersion: TypeAlias = tuple[int, int]  # the id and the version of a log

MOST = 400  # digests that fit into a notification of at most 8,000 bytes


class PostgresNotices:
    """Sends and receives notifications about logs that have new events."""

    def __init__(self, database: PostgresDatabase, wakes: Wakes) -> None:
        self._database = database
        self._wakes = wakes
        self._says, self._listens = database.can_say, database.can_listen
        self._channel = f"holdfast_{database.options.schema}"
        self._grown: set[str] = set()
        self._said = asyncio.Event()
        self._silent = asyncio.Event()  # set while no notification is waiting
        self._seen: dict[Key, LogVersion | None] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._process = 0  # the server's process id of our connection
        self._hears = False
        self._closed = False

    def grew(
        self, key: Key, done: Extension | None = None, version: LogVersion | None = None
    ) -> None:
        """Notify followers that this process committed an append or another change to a log.
        `version` is the version of the log after an append."""
        self._wakes.tell(key, done)
        if version is not None and self._seen.get(key) == (version[0], version[1] - 1):
            self._seen[key] = version  # so the next poll does not wake the followers again
        if self._closed or not self._says or (name := digest(key)) in self._grown:
            return
        self._grown.add(name)
        self._silent.clear()
        self._said.set()
        if not self._tasks:
            self._begin(self._talk())

    def follow(self) -> None:
        """Start to receive notifications of appends by other processes."""
        if self._hears or self._closed:
            return
        self._hears = True
        if self._says and not self._tasks:
            self._begin(self._talk())
        self._begin(self._look())
        self._said.set()

    def _begin(self, work: Any) -> None:
        self._tasks.append(asyncio.create_task(work))

    # The connection

    async def _talk(self) -> None:
        """Keep the connection for notifications open. It sends notifications, and also receives
        them while there are followers."""
        while True:
            try:
                with cancellable():
                    await self._connected()
            except Exception as error:
                if not passing(error):
                    # Followers still poll; a later append tries again to send.
                    await asyncio.sleep(LOOK)
            self._wakes.wake_all()  # notifications sent meanwhile were missed
            await asyncio.sleep(LOOK / 4)

    async def _connected(self) -> None:
        async with self._database.apart() as conn:
            await self._on(conn)

    async def _on(self, conn: Any) -> None:
        lost = asyncio.Event()

        def ended(_: object) -> None:
            lost.set()
            self._said.set()

        conn.add_termination_listener(ended)
        self._process = conn.get_server_pid()
        listening = False
        try:
            while not lost.is_set():
                if self._hears and self._listens and not listening:
                    await conn.add_listener(self._channel, self._heard)
                    listening = True
                    self._wakes.wake_all()
                await self._say(conn)
                said = time.monotonic()
                await self._said.wait()
                await asyncio.sleep(OFTEN if time.monotonic() - said < LATELY else GATHER)
        finally:
            # It may be a connection of the caller, so its listeners are removed.
            conn.remove_termination_listener(ended)
            if listening and not conn.is_closed():
                with contextlib.suppress(Exception):  # the connection is broken
                    await conn.remove_listener(self._channel, self._heard)

    async def _say(self, conn: Any) -> None:
        self._said.clear()
        while self._grown:
            some = [self._grown.pop() for _ in range(min(MOST, len(self._grown)))]
            try:
                # No flush of the write-ahead log is needed: the append itself is already durable.
                await conn.execute(
                    "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)",
                    self._channel,
                    " ".join(some),
                )
            except BaseException:
                self._grown.update(some)
                raise
        self._silent.set()

    def _heard(self, conn: object, process: int, channel: str, payload: object) -> None:
        if process == self._process:
            return  # our own notification; our followers were already woken
        grown = set(str(payload).split())
        for key in self._wakes.followed():
            if digest(key) in grown:
                self._wakes.wake(key)

    # Polling

    async def _look(self) -> None:
        """Poll the followed logs, and wake the followers of those that changed."""
        while True:
            await asyncio.sleep(LOOK if self._listens else POLL)
            keys = self._wakes.followed()
            if not keys:
                self._seen.clear()
                continue
            try:
                with cancellable():
                    now = await self._database.run(lambda link: _heads(link, keys), whole=False)  # noqa: B023
            except Exception:  # noqa: S112 - a read reports the error; polling continues
                continue
            self._seen = {key: self._compared(key, now.get(key)) for key in keys}

    def _compared(self, key: Key, now: LogVersion | None) -> LogVersion | None:
        """Wake the followers of a log if another process changed it. Returns the log's version that
        the followers then know."""
        seen = self._seen.get(key)
        if seen is not None and now is not None and seen[0] == now[0] and seen[1] >= now[1]:
            return seen  # this process may have appended since the poll
        self._wakes.wake(key)
        return now

    async def aclose(self) -> None:
        """Send the remaining notifications, then stop."""
        self._closed = True
        tasks, self._tasks = self._tasks, []
        if tasks and self._grown:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._silent.wait(), LOOK)
        await ended(*tasks)


async def _heads(link: Link, keys: list[Key]) -> dict[Key, LogVersion]:
    records = await link.rows(
        "SELECT l.tenant, l.session, l.thread, l.id, l.version FROM unnest($1::text[], $2::text[],"
        " $3::text[]) AS k (tenant, session, thread) JOIN hf.logs AS l ON l.tenant = k.tenant"
        " AND l.session = k.session AND l.thread = k.thread",
        [key.tenant for key in keys],
        [key.session for key in keys],
        [key.thread for key in keys],
    )
    return {Key(*record[:3]): (record[3], record[4]) for record in records}


@lru_cache(maxsize=1 << 14)
def digest(key: Key) -> str:
    """Hash a key to a few characters, so that many fit into one notification."""
    return hashlib.sha256(encode(key)).hexdigest()[:16]
