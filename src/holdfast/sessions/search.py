"""Words in the log of a session, also where a model does not read them any more."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator
from typing import Any

from msgspec import Struct

from ..log import events as ev
from ..log.codec import check_name, typed
from ..log.events import Event, to_json
from .changes import Changes
from .queries import threads

AROUND = 80  # characters shown on each side


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
    seen: set[str] = set()  # what forks share is found once
    async for row in threads(changes, id):
        async for event in changes.store.read(row.key, log=row.log):
            found = _found(event, row.thread, wanted)
            if found is not None and event.id not in seen:
                seen.add(event.id)
                yield found


def _found(event: Event, thread: str, wanted: re.Pattern[str]) -> Found | None:
    payload = typed(event)
    for text in _texts(payload):
        if (hit := wanted.search(text)) is not None:
            return Found(
                thread=thread,
                seq=event.seq,
                at=event.at,
                kind=event.kind,
                excerpt=text[max(0, hit.start() - AROUND) : hit.end() + AROUND],
                by=event.actor,
                call=payload.call if isinstance(payload, ev.ToolFinished) else None,
            )
    return None


def _texts(payload: ev.Payload | None) -> Iterator[str]:
    if isinstance(payload, ev.MessageReceived | ev.MessageCompleted | ev.MessageInterrupted):
        yield payload.text
    if isinstance(payload, ev.MessageCompleted):
        for call in payload.calls:
            yield _text(call.arguments)
    elif isinstance(payload, ev.ToolFinished):
        yield _text(payload.result)
        yield payload.content or ""
        yield payload.error or ""
    elif isinstance(payload, ev.CompactionMade):
        yield payload.summary or ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else bytes(to_json(value)).decode()
