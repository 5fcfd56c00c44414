"""Changes of head documents, sent together where many sessions write at once.

A few commands are under way at a time; what comes meanwhile goes with the next one. The
changes of one command do not depend on each other, and each is still carried out on its own
terms: one that misses does not disturb its neighbours.
"""

from __future__ import annotations

import asyncio
import os
from typing import NamedTuple

from pymongo import UpdateOne
from pymongo.errors import AutoReconnect

from .entry import Document
from .schema import Collection

WAYS = 2  # commands under way at a time
MOST = 64  # changes in one command
MOST_BYTES = 2 << 20


class _Change(NamedTuple):
    where: Document
    update: Document
    size: int
    mark: bytes
    done: asyncio.Future[bool]


class Writes:
    """The way to the head documents of one store."""

    def __init__(self, logs: Collection, *, limit: float) -> None:
        self._logs = logs
        self._limit = limit
        self._waiting: list[_Change] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy = 0

    async def change(self, where: Document, update: Document, size: int) -> bool:
        """Carry out one change; whether there was a document that answered to `where`."""
        if self._busy < WAYS:
            self._busy += 1
            try:
                done = await self._logs.update_one(where, update, hint="_id_")
            finally:
                self._busy -= 1
                self._next()
            return done.matched_count == 1
        mark = os.urandom(8)
        update = {**update, "$set": {**update.get("$set", {}), "mark": mark}}
        told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Change(where, update, size, mark, told))
        return await told

    def _next(self) -> None:
        """Send what is waiting, if there is a way free."""
        while self._busy < WAYS and (group := self._taken()):
            self._busy += 1
            task = asyncio.create_task(self._send(group))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _taken(self) -> list[_Change]:
        group: list[_Change] = []
        size = 0
        while self._waiting and len(group) < MOST and size < MOST_BYTES:
            change = self._waiting.pop(0)
            if not change.done.done():  # else its caller has given up
                group.append(change)
                size += change.size
        return group

    async def _send(self, group: list[_Change]) -> None:
        try:
            async with asyncio.timeout(self._limit):
                answers = await self._together(group)
        except BaseException as error:
            answers = [error] * len(group)
            if not isinstance(error, Exception):
                raise
        finally:
            self._busy -= 1
            self._next()
            for change, answer in zip(group, answers, strict=True):
                if change.done.done():
                    continue
                if isinstance(answer, BaseException):
                    change.done.set_exception(answer)
                else:
                    change.done.set_result(answer)

    async def _together(self, group: list[_Change]) -> list[bool | BaseException]:
        """Which of the changes were made. The server says how many; if not all, the heads
        tell by their marks, unless they have changed again: then it is as if the reply were
        lost, and the caller finds out by what it sent."""
        changes = [UpdateOne(change.where, change.update, hint="_id_") for change in group]
        done = await self._logs.bulk_write(changes, ordered=False)
        if done.matched_count == len(group):
            return [True] * len(group)
        ids = [change.where["_id"] for change in group]
        heads = {
            doc["_id"]: doc
            async for doc in self._logs.find(
                {"_id": {"$in": ids}}, {"version": 1, "mark": 1}, hint="_id_"
            )
        }
        return [_made(change, heads.get(change.where["_id"])) for change in group]

    async def aclose(self) -> None:
        """Wait for what is under way."""
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _made(change: _Change, head: Document | None) -> bool | BaseException:
    if head is None:
        return False
    if head.get("mark") == change.mark:
        return True
    if head["version"] <= change.where["version"]:
        return False
    if head["version"] == change.where["version"] + 1:
        return False  # the change after that version was another one
    return AutoReconnect("whether a change was made cannot be told any more")
