"""Full-text search in the conversations of a session, including text that a model no longer reads.
Text that a rewind removed is not found."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from msgspec import Struct

from ..log import events as ev
from ..log.codec import check_name, typed
from ..log.events import Event, to_json
from .changes import Changes
from .conversation import newest_first
from .queries import threads

AROUND = 80  # characters shown on each side
# The fields that are searched: the texts of people, models and tools. Other kinds of events hold
# names, settings and bookkeeping, or text that another event also holds.
SEARCHED = {
    "message.received": ("text",),
    "message.completed": ("text", "calls"),
    "message.interrupted": ("text",),
    "tool.finished": ("result", "content", "error"),
    "compaction.made": ("summary",),
}


class Found(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A match: event `seq` of a thread, its author, and the text around the words. `call` is set if
    a tool produced the text."""

    thread: str
    seq: int
    at: int
    kind: str
    excerpt: str
    by: str | None = None
    call: str | None = None


async def search(changes: Changes, id: str, words: str) -> AsyncGenerator[Found, None]:
    check_name("words", words)
    await changes.row(id)
    wanted = re.compile(re.escape(words), re.IGNORECASE)
    seen: set[str] = set()  # shared events are found once
    async for row in threads(changes, id):
        read = newest_first(changes.store, row.key, log=row.log, last=row.head)
        async with aclosing(read):
            hits = [hit async for event in read if (hit := _found(event, row.thread, wanted))]
        for event_id, found in reversed(hits):
            if event_id not in seen:
                seen.add(event_id)
                yield found


def _found(event: Event, thread: str, wanted: re.Pattern[str]) -> tuple[str, Found] | None:
    """Return the id of the event that contains the words, and the location of the words."""
    payload = typed(event)
    for text in _texts(event.kind, payload):
        if (hit := wanted.search(text)) is not None:
            found = Found(
                thread=thread,
                seq=event.seq,
                at=event.at,
                kind=event.kind,
                excerpt=text[max(0, hit.start() - AROUND) : hit.end() + AROUND],
                by=event.actor,
                call=payload.call if isinstance(payload, ev.ToolFinished) else None,
            )
            return event.id, found
    return None


def _texts(kind: str, payload: ev.Payload | None) -> Iterator[str]:
    for name in SEARCHED.get(kind, ()):
        value = getattr(payload, name, None)
        for one in [call.arguments for call in value or ()] if name == "calls" else [value]:
            if one is not None:
                yield one if isinstance(one, str) else bytes(to_json(one)).decode()
