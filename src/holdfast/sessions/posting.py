"""Posts messages to sessions without a harness: a worker that serves the agent answers them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..errors import HeadMoved, InvalidValue
from ..log import events as ev
from ..log.catalog import Row
from ..log.codec import check_name
from ..log.events import NewEvent, ids, new_id
from .changes import Changes, check_live

KEY = 480  # bytes of a caller's idempotency key


async def post(
    changes: Changes,
    id: str,
    text: str,
    created: ev.SessionCreated,
    *,
    key: str | None,
    actor: str | None,
    metadata: Mapping[str, Any] | None,
) -> int:
    """Store a message, and create its session if necessary. Returns the number of the message. A
    message with a repeated `key` is not stored again."""
    event = _message(text, key, actor or changes.actor, metadata)
    row = await changes.store.row(changes.key(id))
    if row is None:
        try:
            begin = changes.event(created, actor)
            done = await changes.store.append(
                changes.key(id), [begin, event], expected=0, create=True
            )
            return done.seqs[-1]
        except HeadMoved:  # another process created it first
            row = await changes.row(id)
    if row.agent != created.agent:
        raise InvalidValue(
            field="agent",
            problem=f"is {created.agent!r}, but session {id!r} belongs to {row.agent!r}",
            remedy="pass the agent of the session, or use another id",
        )
    check_live(row, "posting to")
    done = await changes.store.append(row.key, [event], log=row.log)
    if not done.fresh:
        await _check_same(changes, row, done.seqs[0], text, key)
    return done.seqs[0]


def _message(
    text: str, key: str | None, actor: str | None, metadata: Mapping[str, Any] | None
) -> NewEvent:
    if not isinstance(text, str):
        raise InvalidValue(field="text", problem=f"is {type(text).__name__}", remedy="pass a str")
    if key is not None:
        check_name("key", key, limit=KEY)
    payload = ev.MessageReceived(text=text, metadata=dict(metadata or {}))
    id = new_id() if key is None else ids.input_id(key)
    return NewEvent.of("message.received", payload, id=id, actor=actor)


async def _check_same(changes: Changes, row: Row, seq: int, text: str, key: str | None) -> None:
    """Raise `InvalidValue` if the idempotency key was already used for a different message."""
    read = changes.store.read(row.key, after=seq - 1, before=seq + 1, log=row.log)
    async for known in read:
        if msgspec.json.decode(known.data, type=ev.MessageReceived).text != text:
            raise InvalidValue(
                field="key",
                problem=f"{key!r} was used for another message",
                remedy="use a new key for a new message",
            )
