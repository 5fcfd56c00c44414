"""Accepting what people send: checked, made durable, and only then acknowledged."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from .. import events as ev
from ..codec import check_name
from ..errors import HeadMoved, InvalidValue, QueueFull, SessionBusy
from ..events import NewEvent, new_id
from ..models.port import Media, split_ref
from ..store import Store
from .live import Live
from .steps import RunLimits

MOST = 100  # messages that may wait
KEY = 480  # bytes of a caller's idempotency key
How: TypeAlias = Literal["queue", "steer", "interrupt", "reject"]
Content: TypeAlias = str | Sequence[str | Media | bytes | os.PathLike[str]]


async def accept(
    store: Store,
    live: Live,
    content: Content,
    *,
    busy: How = "queue",
    key: str | None = None,
    actor: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    model: str | None = None,
    limits: RunLimits | Mapping[str, float] | None = None,
    output: dict[str, Any] | None = None,
) -> tuple[int, bool]:
    """Put a message into the log; its number, and whether it is new. The same `key` again is the
    same message. `reject` refuses it while anything is going on."""
    if busy not in ("queue", "steer", "interrupt", "reject"):
        remedy = "use queue, steer, interrupt or reject"
        raise InvalidValue(field="busy", problem=f"is {busy!r}", remedy=remedy)
    if model is not None:
        split_ref(model)
    text, parts = await _content(store, live, content)
    payload = ev.MessageReceived(
        text=text,
        parts=parts,
        metadata=dict(metadata or {}),
        how="queue" if busy == "reject" else busy,
        model=model,
        limits=_limits(limits),
        output=output,
    )
    event = NewEvent.of("message.received", payload, id=input_id(key), actor=actor)
    return await _put(store, live, event, busy)


async def _put(store: Store, live: Live, event: NewEvent, busy: How) -> tuple[int, bool]:
    while True:
        state = live.state
        waiting = len(state.queue) + live.posting
        if waiting >= MOST:
            raise QueueFull(session=live.key.session, limit=MOST)
        if busy == "reject" and (state.active is not None or state.queue):
            run = state.run.id if state.run is not None else None
            raise SessionBusy(session=live.key.session, run=run)
        # Where many wait, other processes may be filling the queue as well.
        sure = busy == "reject" or waiting >= MOST // 2
        live.posting += 1
        try:
            done = await store.append(
                live.key, [event], expected=state.head if sure else None, log=live.log
            )
            await live.reach(done.seqs[0])
        except HeadMoved as moved:
            await live.reach(moved.head)
            continue
        finally:
            live.posting -= 1
        if not done.fresh:
            await _same(live, event, done.seqs[0])
        return done.seqs[0], bool(done.fresh)


async def _same(live: Live, event: NewEvent, seq: int) -> None:
    """Refuse a key that stands for another message already."""
    known = await live.payload(seq, ev.MessageReceived)
    given = msgspec.json.decode(event.data, type=ev.MessageReceived)
    if known is not None and (known.text, known.parts) != (given.text, given.parts):
        raise InvalidValue(
            field="key",
            problem=f"{event.id.removeprefix('in:')!r} was used for another message",
            remedy="use a new key for a new message",
        )


def input_id(key: str | None) -> str:
    """The id of an input: the same for the same key, or new."""
    if key is None:
        return new_id()
    check_name("key", key, limit=KEY)
    return f"in:{key}"


async def _content(store: Store, live: Live, content: Content) -> tuple[str, list[Any]]:
    if isinstance(content, str):
        return content, []
    texts: list[str] = []
    parts: list[Any] = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Media):
            ref = await store.put_blob(live.key.scope, part.data)
            about = {"type": "blob", "sha256": ref.sha256, "size": ref.size}
            parts.append({**about, "media_type": part.media_type, "name": part.name})
        else:
            raise InvalidValue(
                field="content",
                problem=f"holds {type(part).__name__}",
                remedy="give text, or Media(data, media_type)",
            )
    return "\n\n".join(texts), parts


def _limits(limits: RunLimits | Mapping[str, float] | None) -> dict[str, float]:
    if limits is None:
        return {}
    try:
        given = limits if isinstance(limits, RunLimits) else msgspec.convert(dict(limits), _Given)
    except msgspec.ValidationError as error:
        raise InvalidValue(
            field="limits", problem=str(error), remedy="give steps, tokens, cost or seconds"
        ) from error
    names = ("steps", "tokens", "cost", "seconds")
    return {name: getattr(given, name) for name in names if getattr(given, name) is not None}


class _Given(RunLimits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """RunLimits as a caller gives them: what is not given is left to the harness."""

    steps: int | None = None
