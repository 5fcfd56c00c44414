"""The logs of a webhook endpoint, and what they add up to.

An endpoint is a session of the tenant `~webhooks:TENANT`. Its thread `main` has its settings,
`secrets` its secrets, `cursor` how far the sessions were checked, and `dead` its dead letters; for
each log that it follows, a thread has the position up to which it was delivered.
"""

from __future__ import annotations

from collections.abc import AsyncIterable
from contextlib import aclosing
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..environment import wall_clock
from ..errors import HeadMoved, InvalidValue
from ..log import events as ev
from ..log.catalog import Row
from ..log.codec import typed
from ..log.events import Event, Key, NewEvent
from ..stores.port import Store
from ..values.webhooks import WebhookEndpoint

TENANT = "~webhooks:"  # + the tenant of the sessions
AGENT = "~webhooks"  # the agent of every endpoint, by which deliverers find them
INBOX = "~webhooks."  # + the endpoint: the session in which an operator is asked
MAIN, SECRETS, CURSOR, DEAD = "main", "secrets", "cursor", "dead"
OWN = (MAIN, SECRETS, CURSOR, DEAD)  # the other threads are positions

KIND_OF = {payload: kind for kind, payload in ev.KINDS.items()}


class EndpointRecord(Struct, frozen=True, kw_only=True):
    """An endpoint as its log has it. `why` is set if it takes no deliveries, and `why_seq` is the
    event that says so. `replay` is the time from which everything is delivered again, as event
    `replay_seq` asked for."""

    endpoint: WebhookEndpoint
    head: int = 0
    why: str | None = None
    why_seq: int = 0
    replay: int | None = None
    replay_seq: int = 0


def key_of(tenant: str, endpoint: str, thread: str = MAIN) -> Key:
    """Return the key of one of an endpoint's logs."""
    return Key(TENANT + tenant, endpoint, thread)


def inbox_of(tenant: str, endpoint: str) -> Key:
    """Return the log in which an operator is asked about an endpoint."""
    return Key(tenant, INBOX + endpoint, MAIN)


def event_of(payload: ev.Payload, actor: str | None = None, **more: Any) -> NewEvent:
    """Return a new event with this payload."""
    return NewEvent.of(KIND_OF[type(payload)], payload, actor=actor, **more)


async def record_of(store: Store, key: Key) -> EndpointRecord:
    """Read an endpoint from its log. Raises `SessionNotFound` or `InvalidValue`."""
    record: EndpointRecord | None = None
    async for event in store.read(key):
        record = _fold(key.session, record, event)
    if record is None:
        raise no_endpoint(key.session)
    return record


def no_endpoint(id: str) -> InvalidValue:
    """Return the error for an endpoint that does not exist."""
    return InvalidValue(
        field="endpoint",
        problem=f"{id!r} does not exist",
        remedy="list the endpoints with `holdfast webhooks list`",
    )


def _fold(id: str, record: EndpointRecord | None, event: Event) -> EndpointRecord | None:
    payload = typed(event)
    if isinstance(payload, ev.SurfaceHooked):
        if record is None:
            record = EndpointRecord(endpoint=WebhookEndpoint(id=id, url="", created=event.at))
        given = {
            name: value
            for name in ("url", "kinds", "agents", "labels", "give_up", "since")
            if (value := getattr(payload, name)) is not None
        }
        record = replace(record, endpoint=replace(record.endpoint, **given), why=None)
        if payload.replay is not None:
            record = replace(record, replay=payload.replay, replay_seq=event.seq)
    elif isinstance(payload, ev.SurfaceUnhooked) and record is not None:
        record = replace(record, why=payload.why, why_seq=event.seq)
    return None if record is None else replace(record, head=event.seq)


async def secrets_of(store: Store, key: Key) -> list[tuple[str, int | None]]:
    """Return the secrets of an endpoint, the newest first, with the time until which each is
    valid."""
    found: list[tuple[str, int | None]] = []
    async for event in store.read(Key(key.tenant, key.session, SECRETS)):
        payload = typed(event)
        if isinstance(payload, ev.SurfaceHooked) and payload.secret is not None:
            until = [(one, _sooner(end, payload.until)) for one, end in found]
            found = [(payload.secret, None), *until]
    return found


def _sooner(one: int | None, other: int | None) -> int | None:
    times = [time for time in (one, other) if time is not None]
    return min(times) if times else None


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A dead letter, and when it became one (ms)."""

    failed: ev.SurfaceFailed
    at: int

    @property
    def key(self) -> tuple[str | None, int]:
        return self.failed.log, self.failed.seq


class DeadLetters:
    """The dead letters of an endpoint, read from its log as it grows."""

    def __init__(self) -> None:
        self.open: dict[tuple[str | None, int], DeadLetter] = {}
        self.head = 0

    async def catch_up(self, events: AsyncIterable[Event]) -> None:
        """Add the next events of the log."""
        async for event in events:
            payload = typed(event)
            if isinstance(payload, ev.SurfaceFailed):
                letter = DeadLetter(failed=payload, at=event.at)
                self.open[letter.key] = letter
            elif isinstance(payload, ev.SurfaceDelivered):
                self.open.pop((payload.log, payload.seq), None)
            self.head = event.seq


def position(row: Row | None) -> int | None:
    """Return the number of the event up to which a log was delivered; None if it has no
    position."""
    return None if row is None else row.counts.get("delivered")


async def last(store: Store, row: Row) -> ev.Payload | None:
    """Return the payload of the last event of a log."""
    async for event in store.read(row.key, after=row.head - 1, log=row.log):
        return typed(event)
    return None


async def first_event(store: Store, row: Row, since: int) -> int:
    """Return the number of the last event of a log that is older than `since` (ms), or that it
    shares with its parent."""
    floor = 0 if row.parent is None else row.parent.at
    async with aclosing(store.read(row.key, reverse=True, log=row.log, inline=False)) as events:
        async for event in events:
            if event.at < since or event.seq <= floor:
                return event.seq
    return floor


async def move_back(
    store: Store, tenant: str, endpoint: WebhookEndpoint, about: Row, after: int, actor: str | None
) -> None:
    """Set the position of an endpoint in the log `about` back to event `after`, and mark the log as
    due. A position that is before this event stays, since the events after it were not
    delivered."""
    key = key_of(tenant, endpoint.id, about.log)
    while True:
        row = await store.row(key)
        if (known := position(row)) is None:
            known = await first_event(store, about, endpoint.since)
        moved = ev.SurfaceDelivered(
            session=about.session,
            thread=about.thread,
            log=about.log,
            seq=min(after, known),
            due=wall_clock(),
        )
        events = [event_of(moved, actor)]
        if row is None:
            events.insert(0, event_of(ev.ThreadCreated(agent=endpoint.id), actor))
        try:
            head = 0 if row is None else row.head
            await store.append(key, events, expected=head, create=row is None)
            return
        except HeadMoved:  # a delivery, or another call, was faster
            continue
