"""Functions that read the newest messages of a log, or its events in reverse order. Events that a
rewind removed are skipped, so that the cost depends on the number of events returned and not on the
length of the log."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from ..log import events as ev
from ..log.codec import check_count, typed
from ..log.conversation import rewound_to
from ..log.events import Event, Key
from ..log.transcript import ROLES, Message, transcript
from .pages import existing_row
from .port import Store

SKIPPED = 256  # one read discards at most this many events; to skip more, a new read starts


async def newest_first(
    store: Store, key: Key, *, log: str, last: int, after: int = 0
) -> AsyncGenerator[Event, None]:
    """Yield the events of the conversation as it was right after event `last`, newest first, back
    to event `after` (exclusive). Events that a rewind removed are skipped; the rewind itself is
    included."""
    while last > after:
        to = last
        read = store.read(key, after=after, before=last + 1, reverse=True, log=log)
        async with aclosing(read):
            async for event in read:
                if event.seq <= to:
                    yield event
                    to = event.seq - 1 if (back := rewound_to(event)) is None else back
                    if event.seq - to > SKIPPED:
                        break
            else:
                return
        last = to


async def messages_of(store: Store, key: Key, limit: int | None = None) -> list[Message]:
    """Return the newest `limit` messages of a thread, oldest first. Without `limit`, returns all
    messages."""
    row = await existing_row(store, key)
    if limit is None:
        return transcript([event async for event in store.read(key, log=row.log)])
    check_count("limit", limit, least=1)
    found: list[Event] = []
    messages, removed = 0, set[int]()
    # A tool result may be far from its call, but it always comes after the message with the call.
    async with aclosing(newest_first(store, key, log=row.log, last=row.head)) as read:
        async for event in read:
            found.append(event)
            change = typed(event) if event.kind == "queue.changed" else None
            if isinstance(change, ev.QueueChanged):
                removed.update(change.remove)
            messages += event.kind in ROLES and event.seq not in removed
            if messages == limit:
                break
    return transcript(reversed(found))[-limit:]
