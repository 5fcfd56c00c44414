"""Reading the conversation of a log backwards: events that a rewind removed are skipped, so that
the cost depends on what is read and not on the length of the log."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from ..log.conversation import rewound_to
from ..log.events import Event, Key
from ..stores.port import Store

SKIPPED = 256  # events to read and drop at most; to skip more, a new read is started


async def newest_first(
    store: Store, key: Key, *, log: str, last: int, after: int = 0
) -> AsyncGenerator[Event, None]:
    """Yield the events of the conversation as it was right after event `last`, newest first, back
    to event `after` (exclusive). Rewind events that are part of this history are included."""
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
