"""The stream of the changes of lists, over as many connections as needed."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from ..cancellation import cancellable
from ..errors import HoldfastError, RateLimited, ServerUnavailable
from ..log.catalog import Row
from ..wire import CAUGHT_UP, END, PENDING, RESYNC, ROW, InboxChanged, ListChange, ListResync
from .reconnecting_feed import frames, passes
from .transport import Query, Transport, Waits, decoded

BEGUN = ListResync(reason="the stream has begun")


async def list_changes(transport: Transport, query: Query) -> AsyncGenerator[ListChange, None]:
    """Yield the changes of lists. Each connection begins with a `ListResync`, because changes
    before it were not seen."""
    waits = Waits(transport.total)
    while True:
        problem: HoldfastError = ServerUnavailable(problem="the stream ended unexpectedly")
        least = 0.0
        try:
            with cancellable():
                async with transport.lines("/v1/changes", query) as lines:
                    async for frame in frames(lines):
                        waits.again()
                        if frame.name == END:
                            break
                        if (change := _change(frame.name, frame.data)) is not None:
                            yield change
        except HoldfastError as error:
            if not passes(error):
                raise
            problem = error
            least = error.retry_after if isinstance(error, RateLimited) else 0.0
        await waits.wait(problem, least)
        transport.next()


def _change(name: str, data: bytes) -> ListChange | None:
    if name == ROW:
        return decoded(data, Row)
    if name == PENDING:
        return decoded(data, InboxChanged)
    if name == RESYNC:
        return decoded(data, ListResync)
    return BEGUN if name == CAUGHT_UP else None  # None: an event of a newer server
