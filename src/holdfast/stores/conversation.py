"""Functions that read the newest messages of a log, or its events in reverse order. Events that a
rewind removed are skipped, so that the cost depends on the number of events returned and not on the
length of the log."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from ..log import events as ev
from ..log.codec import check_count, typed
from ..log.conversation import rewound_to
from ..log.events import Event, Key, ids
from ..log.transcript import ROLES, Message, transcript
from .pages import existing_row
from .port import Store

OUTCOMES = 4_096  # events that are searched for the outcomes of the calls of an earlier page
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


async def messages_of(
    store: Store,
    key: Key,
    limit: int | None = None,
    *,
    at: int | None = None,
    before: int | None = None,
) -> list[Message]:
    """Return the newest `limit` messages of a thread, oldest first. Without `limit`, returns all
    messages. With `at`, returns the conversation as it was right after this event; with `before`,
    only messages before this event, with the outcomes that their calls have had since."""
    row = await existing_row(store, key)
    last = row.head if at is None else min(at, row.head)
    if limit is None:
        events = [event async for event in store.read(key, before=last + 1, log=row.log)]
        return [one for one in transcript(events) if before is None or one.seq < before]
    check_count("limit", limit, least=1)
    found: list[Event] = []
    messages, removed = 0, set[int]()
    start = last if before is None else min(last, before - 1)
    # A tool result may be far from its call, but it always comes after the message with the call.
    async with aclosing(newest_first(store, key, log=row.log, last=start)) as read:
        async for event in read:
            found.append(event)
            change = typed(event) if event.kind == "queue.changed" else None
            if isinstance(change, ev.QueueChanged):
                removed.update(change.remove)
            messages += event.kind in ROLES and event.seq not in removed
            if messages == limit:
                break
    found.reverse()
    found += await _outcomes(store, key, row.log, found, start, last)
    return [one for one in transcript(found) if one.seq <= start][-limit:]


async def _outcomes(
    store: Store, key: Key, log: str, found: list[Event], after: int, last: int
) -> list[Event]:
    """Return the events after number `after` that start or end the calls that are open there. Reads
    at most `OUTCOMES` events."""
    open = {call.id for one in transcript(found) for call in one.calls if call.outcome is None}
    more: list[Event] = []
    if not open or after >= last:
        return more
    upto = min(last, after + OUTCOMES)
    async with aclosing(store.read(key, after=after, before=upto + 1, log=log)) as read:
        async for event in read:
            if event.kind in ("tool.started", "tool.probed", "tool.finished"):
                more.append(event)
                if event.kind == "tool.finished":
                    open.discard(getattr(typed(event), "call", ids.done_call(event.id)))
            if not open:
                break
    return more
