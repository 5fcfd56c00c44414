"""Accepts messages: validates them, writes them to the log, and only then acknowledges them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from ...errors import HeadMoved, InvalidValue, QueueFull, SessionBusy
from ...log import events as ev
from ...log.codec import check_name
from ...log.events import NewEvent, ids, new_id
from ...models.port import split_ref
from ...stores.port import Store
from ...values.media import Media
from ...values.options import Content, How, RunLimits
from ..agents.settings import LIMITS, wrong_limits
from .log import Live

StartRun: TypeAlias = Callable[[NewEvent], Awaitable[tuple[int, bool] | None]]

MOST = 100  # messages that may be queued
KEY = 480  # bytes of a caller's idempotency key


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
    start: StartRun | None = None,
) -> tuple[int, bool]:
    """Write a message to the log. Returns its number, and whether it is new: a message with a
    repeated `key` is not written again. `busy="reject"` rejects the message while the session is
    busy. `start` is tried first: it writes the message and starts its run in one step, or returns
    None."""
    event = await message_event(
        store,
        live,
        content,
        busy=busy,
        key=key,
        actor=actor,
        metadata=metadata,
        model=model,
        limits=limits,
        output=output,
    )
    done = None
    if start is not None and _refused(live, busy) is None:
        done = await _started(live, event, start)
    if done is not None:
        if not done[1]:
            await _same(live, event, done[0])
        return done
    return await _put(store, live, event, busy)


async def message_event(
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
) -> NewEvent:
    """Return the event of a message, after its attachments were stored."""
    if busy not in ("queue", "steer", "interrupt", "reject"):
        remedy = "use 'queue', 'steer', 'interrupt' or 'reject'"
        raise InvalidValue(field="busy", problem=f"is {busy!r}", remedy=remedy)
    if model is not None:
        split_ref(model)
    if actor is not None:
        check_name("actor", actor)
    check_entries("metadata", metadata)
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
    return NewEvent.of("message.received", payload, id=message_id(key), actor=actor)


async def _started(live: Live, event: NewEvent, start: StartRun) -> tuple[int, bool] | None:
    """Write a message and start its run in one step. If other messages are doing the same, wait for
    them first."""
    live.senders += 1
    try:
        while live.starting is not None:
            await asyncio.wait([live.starting])
        live.starting = asyncio.get_running_loop().create_future()
        try:
            return await start(event)
        finally:
            live.starting.set_result(None)
            live.starting = None
    finally:
        live.senders -= 1


async def _put(store: Store, live: Live, event: NewEvent, busy: How) -> tuple[int, bool]:
    while True:
        state, refused = live.state, _refused(live, busy)
        # If the queue is long, other processes may be filling it too, so check the head. A message
        # that is already in the log is found again, and not rejected.
        sure = busy == "reject" or len(state.queue) >= MOST // 2
        expected = 0 if refused else state.head if sure else None
        try:
            with live.posts():
                done = await store.append(live.key, [event], expected=expected, log=live.log)
                await live.reach(done.seqs[0])
        except HeadMoved as moved:
            if refused is not None:
                raise refused from None
            await live.reach(moved.head)
            continue
        if not done.fresh:
            await _same(live, event, done.seqs[0])
        return done.seqs[0], bool(done.fresh)


def _refused(live: Live, busy: How) -> QueueFull | SessionBusy | None:
    state = live.state
    if len(state.queue) + len(live.posting) + live.senders >= MOST:
        return QueueFull(session=live.key.session, limit=MOST)
    if busy == "reject" and (state.active is not None or state.queue):
        run = state.run.id if state.run is not None else None
        since = state.active.at if state.active is not None else None
        return SessionBusy(session=live.key.session, run=run, since=since)
    return None


async def _same(live: Live, event: NewEvent, seq: int) -> None:
    """Raise `InvalidValue` if the idempotency key was already used for a different message."""
    known = await live.payload(seq, ev.MessageReceived)
    given = msgspec.json.decode(event.data, type=ev.MessageReceived)
    if known is not None and (known.text, known.parts) != (given.text, given.parts):
        raise InvalidValue(
            field="key",
            problem=f"{ids.input_key(event.id)!r} was used for another message",
            remedy="use a new key for a new message",
        )


def message_id(key: str | None) -> str:
    """Return the event id of a message. It is derived from the idempotency key, so that the same
    key yields the same id; without a key, it is a new id."""
    if key is None:
        return new_id()
    check_name("key", key, limit=KEY)
    return ids.input_id(key)


async def _content(store: Store, live: Live, content: Content) -> tuple[str, list[Any]]:
    if isinstance(content, str):
        return content, []
    if isinstance(content, Media):
        content = [content]
    if not isinstance(content, (list, tuple)):
        raise InvalidValue(
            field="content",
            problem=f"is {type(content).__name__}",
            remedy="pass text, Media(data, media_type), or a list of them",
        )
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
                problem=f"contains {type(part).__name__}",
                remedy="pass text or Media(data, media_type)",
            )
    return "\n\n".join(texts), parts


def check_text(field: str, value: Any) -> None:
    """Raise `InvalidValue` if `value` is not a str."""
    if not isinstance(value, str):
        raise InvalidValue(field=field, problem=f"is {type(value).__name__}", remedy="pass a str")


def check_seconds(field: str, value: Any) -> None:
    """Raise `InvalidValue` if `value` is not a finite number of seconds."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value):
        raise InvalidValue(field=field, problem=f"is {value!r}", remedy="pass a number of seconds")


def check_entries(field: str, value: Any) -> None:
    """Raise `InvalidValue` if `value` is neither None nor a mapping with str keys."""
    if value is not None and not isinstance(value, Mapping):
        problem, remedy = f"is {type(value).__name__}", "pass a mapping with str keys"
        raise InvalidValue(field=field, problem=problem, remedy=remedy)
    if value is not None and not all(isinstance(name, str) for name in value):
        raise InvalidValue(
            field=field, problem="has a key that is not a str", remedy="use str keys"
        )


def _limits(limits: RunLimits | Mapping[str, float] | None) -> dict[str, float]:
    """Return the limits that were passed as a dict. Limits that are missing are set by the mode and
    the harness."""
    if limits is None:
        return {}
    if not isinstance(limits, RunLimits):
        check_entries("limits", limits)
        if unknown := [name for name in limits if name not in LIMITS]:
            problem, remedy = f"has the unknown key {unknown[0]!r}", f"use {', '.join(LIMITS)}"
            raise InvalidValue(field="limits", problem=problem, remedy=remedy)
        limits = RunLimits(**limits)  # type: ignore[arg-type]  # checked next
    if wrong := [*wrong_limits(limits)]:
        problem, remedy = "; ".join(wrong), "pass steps, tokens, cost or seconds"
        raise InvalidValue(field="limits", problem=problem, remedy=remedy)
    given = {name: getattr(limits, name) for name in LIMITS}
    return {n: v for n, v in given.items() if v is not None and v is not msgspec.UNSET}
