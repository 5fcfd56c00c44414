"""Batching of appends: several calls of the append function share one transaction and one flush.

One connection appends at a time. Appends that arrive meanwhile are queued, and are its next batch:
the larger a batch, the less each append costs, however many processes share the database. Another
connection appends too when a full batch waits, or when no batch has started for some time, because
a row is locked elsewhere or the network is slow.

A call that only reads does not affect the rest of its batch. If a batch fails, each call is retried
on its own; the event ids make the retry safe.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from asyncpg import Record

from ...log.events import Key
from .database import PostgresDatabase

WRITERS = 4  # the most connections that append at the same time
TOGETHER = 32  # the most appends per transaction
# Seconds for which a batch waits to become as large as the last one, because the writers of the
# last one are about to append again.
GATHER = 0.002
LATE = 0.05  # seconds without a new batch after which another connection appends too


class _Waiting(NamedTuple):
    key: Key
    values: list[Any]
    within: float | None
    answer: asyncio.Future[Record]


class Calls:
    """Batches calls of one SQL statement that many tasks make at the same time."""

    def __init__(self, database: PostgresDatabase, sql: str) -> None:
        self._database = database
        self._sql = sql
        self._waiting: list[_Waiting] = []
        self._enough = TOGETHER  # with so many waiting calls, the next batch starts at once
        self._busy = 0
        self._timer: asyncio.TimerHandle | None = None  # starts the next batch
        self._tasks: set[asyncio.Task[None]] = set()

    async def call(self, key: Key, values: list[Any], within: float | None) -> Record:
        """Call the function and return its row. Each attempt is limited to `within` seconds."""
        self._database.own_loop.check()
        if not self._busy and not self._waiting:
            self._busy += 1
            try:
                return await self._alone(values, within)
            finally:
                self._ended(1)
        waiting = _Waiting(key, values, within, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if len(self._waiting) >= self._enough:
            self._next()
        elif self._timer is None:
            self._next_after(LATE)
        return await waiting.answer

    def _ended(self, size: int) -> None:
        """Start the next batch after a batch of `size` calls has ended: at once if at least as many
        calls are waiting, or else after a short delay."""
        self._busy -= 1
        if len(self._waiting) >= size:
            self._next()
        else:
            self._enough = size
            self._next_after(GATHER)

    def _next(self) -> None:
        """Start the next batch if fewer than `WRITERS` connections are in use; otherwise it is
        started when a batch ends."""
        if self._busy < WRITERS:
            some, self._waiting = self._waiting[:TOGETHER], self._waiting[TOGETHER:]
            self._enough = TOGETHER
            self._busy += 1
            task = asyncio.create_task(self._together(some))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._next_after(LATE)

    def _next_after(self, seconds: float) -> None:
        """Start the next batch after a delay, unless another event starts it earlier."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and self._busy < WRITERS:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._next)

    async def _together(self, some: list[_Waiting]) -> None:
        # Sorted by key, so that two transactions lock the same logs in the same order.
        size = len(some)
        some = sorted((one for one in some if not one.answer.done()), key=lambda one: one.key)
        try:
            if len(some) > 1 and not await self._in_one(some):
                for one in some:
                    await self._in_turn(one)
            elif len(some) == 1:
                await self._in_turn(some[0])
        finally:
            self._ended(size)

    async def _in_one(self, some: list[_Waiting]) -> bool:
        try:
            answers = await self._database.run(
                lambda link: link.each(self._sql, [one.values for one in some]),
                whole=False,
                within=max((one.within or 0.0 for one in some), default=0.0) or None,
            )
        except Exception:
            return False
        for one, answer in zip(some, answers, strict=True):
            if not one.answer.done():
                one.answer.set_result(answer)
        return True

    async def _in_turn(self, one: _Waiting) -> None:
        try:
            answer = await self._alone(one.values, one.within)
        except Exception as error:
            if not one.answer.done():
                one.answer.set_exception(error)
        else:
            if not one.answer.done():
                one.answer.set_result(answer)

    async def _alone(self, values: list[Any], within: float | None) -> Record:
        return await self._database.run(
            lambda link: link.call(self._sql, *values), whole=False, within=within
        )
