"""Reads logs for adapters. Events that cannot be read are skipped."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from ..errors import LogDamaged
from ..log.catalog import Row
from ..log.conversation import rewound_to
from ..log.events import Event, Key
from ..stores.conversation import newest_first
from ..stores.port import Store

log = logging.getLogger("holdfast.adapters")


async def read_events(store: Store, at: Key, after: int = 0) -> AsyncGenerator[Event, None]:
    """Yield the events of a log. Events that cannot be read are logged and skipped."""
    while True:
        try:
            async with aclosing(store.read(at, after=after)) as events:
                async for event in events:
                    yield event
                    after = event.seq
            return
        except LogDamaged as damage:
            skipped(damage)
            after = damage.seq


async def read_newest_first(store: Store, row: Row) -> AsyncGenerator[Event, None]:
    """Yield the events of a conversation, newest first, without those that a rewind removed. Events
    that cannot be read are logged and skipped."""
    last = row.head
    while True:
        try:
            async with aclosing(newest_first(store, row.key, log=row.log, last=last)) as events:
                async for event in events:
                    yield event
                    back = rewound_to(event)
                    last = event.seq - 1 if back is None else back
            return
        except LogDamaged as damage:
            skipped(damage)
            last = min(last, damage.seq - 1)


def skipped(damage: LogDamaged) -> None:
    """Log a warning that an event was skipped."""
    log.warning("skipped a damaged item: %s; run `holdfast verify` for a list", damage)
