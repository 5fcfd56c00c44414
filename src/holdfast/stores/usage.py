"""The model usage of a session, read from its logs."""

from __future__ import annotations

from contextlib import aclosing

from ..log.catalog import Row
from ..log.events import Event, Scope
from ..values.usage import Spent, table
from .measure import threads_of
from .port import Store


async def usage_table(store: Store, scope: Scope) -> list[Spent]:
    """Return the usage by thread, run and model of a session, including sub-agents; ordered by
    thread, oldest first."""
    found: list[Spent] = []
    for row in await threads_of(store, scope):
        found += table(row.thread, await model_answers(store, row))
    return found


async def model_answers(store: Store, row: Row) -> list[Event]:
    """Return the events with a model's answers in a thread. In a fork, events before the fork are
    not included, since they belong to the parent thread."""
    after = row.parent.at if row.parent is not None else 0
    async with aclosing(store.read(row.key, after=after, log=row.log)) as read:
        return [event async for event in read if event.kind == "message.completed"]
