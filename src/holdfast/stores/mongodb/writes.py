"""Batching of changes to head documents when many sessions write at the same time.

The number of commands in flight is limited; changes that arrive meanwhile are sent together in the
next command. The changes of one command are independent, and each has its own condition: a change
whose condition fails does not affect the others.
"""

from __future__ import annotations

import asyncio
import os
from typing import NamedTuple

from pymongo import UpdateOne
from pymongo.errors import AutoReconnect

from .entry import Document
from .schema import Collection

WAYS = 2  # commands in flight at a time
MOST = 64  # changes in one command
MOST_BYTES = 2 << 20


class _Change(NamedTuple):
    where: Document
    update: Document
    size: int
    mark: bytes
    done: asyncio.Future[bool]


class Writes:
    """Sends the changes to the head documents of one store, in batches under load."""

    def __init__(self, logs: Collection, *, limit: float) -> None:
        self._logs = logs
        self._limit = limit
        self._waiting: list[_Change] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy = 0

    async def change(self, where: Document, update: Document, size: int) -> bool:
        """Apply one change. Returns whether a document matched `where`."""
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
        """Send the waiting changes, if the limit of commands in flight allows another one."""
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
            if not change.done.done():  # otherwise its caller was cancelled
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
        """Send some changes in one command, and return which of them were applied. The server
        reports only their number. If some were not applied, marks in the heads show which, unless a
        head has changed again. That case counts as a lost reply, and the caller checks for its own
        write."""
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
        """Wait for the commands in flight."""
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _made(change: _Change, head: Document | None) -> bool | BaseException:
    if head is None:
        return False
    if head.get("mark") == change.mark:
        return True
    if head["version"] <= change.where["version"]:
        return False
    if head["version"] == change.where["version"] + 1:
        return False  # another change was made to that version
    return AutoReconnect("it is unknown whether the change was made")
