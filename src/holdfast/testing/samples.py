"""Helpers for the tests of `StoreContract`: sample events, prepared logs, and short forms of common
calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

import pytest
from msgspec import Raw
from msgspec.structs import replace

from ..errors import LeaseHeld
from ..log.catalog import Row
from ..log.events import Event, Key, NewEvent, Scope, key, to_json
from ..stores.port import Damage, Lease, Snapshot, Store
from ..values.stream_items import CaughtUp

E = TypeVar("E", bound=Exception)
KEY = key("s")
SIDE = key("s", "side")
PATIENCE = 30.0  # seconds after which waiting for a state fails


class Numbering(NewEvent, frozen=True, kw_only=True):
    """An event whose data is the number that the store assigns to it."""

    def numbered(self, seq: int, at: int) -> Event:
        return replace(NewEvent.numbered(self, seq, at), data=to_json({"n": seq}))


def note(n: object, **rest: Any) -> NewEvent:
    """Return a small event with the content `n` and the id `note-{n}`. `rest` sets other fields."""
    return NewEvent.of("note.made", {"n": n}, **{"id": f"note-{n}", **rest})


def notes(*contents: object) -> list[str]:
    """Return the ids of the events that `note` creates for these contents."""
    return [f"note-{n}" for n in contents]


def past(seq: int, kind: str = "note.made", payload: Any = None, *, at: int = 1_000) -> Event:
    """Return an event with number `seq` and time `at`, as input of `restore`."""
    new = NewEvent.of(kind, payload, id=f"past-{seq}")
    return Event(kind=kind, data=new.data, id=new.id, seq=seq, at=at)


async def given(events: Sequence[Event]) -> AsyncGenerator[Event, None]:
    """Convert events to the async generator that `restore` expects."""
    for event in events:
        yield event


async def plant(store: Store, key: Key, *facts: tuple[str, Any], at: int = 1_000) -> None:
    """Restore a log with these events (kind and payload), which all have the time `at` (ms)."""
    events = [past(n, kind, payload, at=at) for n, (kind, payload) in enumerate(facts, 1)]
    await store.restore(key, given(events))


async def begin(store: Store, key: Key = KEY, count: int = 1) -> str:
    """Create a log of `count` notes and return its incarnation."""
    await store.append(key, [note(n) for n in range(1, count + 1)], create=True)
    return (await row_of(store, key)).log


async def begin_driven(store: Store, owner: str = "driver") -> Lease:
    """Create a log of one note and return a lease on it."""
    await begin(store)
    return await store.acquire(KEY, owner)


async def fork_side(store: Store, *, at: int) -> None:
    """Fork the log at this event, as the thread `side` with one event of its own."""
    await store.fork(KEY, "side", at=at, first=note("fork"))


async def seal(store: Store, key: Key = KEY, to: str = "elsewhere") -> Lease:
    """Seal the session as moved, and return the lease that was used."""
    lease = await store.acquire(key, "mover")
    await store.append(key, [NewEvent.of("session.moved", {"to": to}, id="move")], fence=lease)
    return lease


async def row_of(store: Store, key: Key = KEY) -> Row:
    """Return the row of an existing log."""
    row = await store.row(key)
    assert row is not None
    return row


async def damage_in(
    store: Store, target: Scope | Key | None = None, *, repair: bool = False
) -> list[Damage]:
    """Return the findings of `verify` for `target`."""
    return [damage async for damage in store.verify(target, repair=repair)]


async def rejected(error: type[E], call: Awaitable[object]) -> E:
    """Await a call that must raise an error of this type, and return the error."""
    with pytest.raises(error) as raised:
        await call
    return raised.value


async def read_all(store: Store, key: Key = KEY, **bounds: Any) -> list[Event]:
    return [event async for event in store.read(key, **bounds)]


async def contents(store: Store, key: Key = KEY, **bounds: Any) -> list[Any]:
    return [event.json() for event in await read_all(store, key, **bounds)]


async def ids(store: Store, key: Key = KEY, **bounds: Any) -> list[str]:
    return [event.id for event in await read_all(store, key, **bounds)]


async def seqs(store: Store, key: Key = KEY, **bounds: Any) -> list[int]:
    return [event.seq for event in await read_all(store, key, **bounds)]


async def take(
    following: AsyncGenerator[Event | CaughtUp, None], count: int
) -> list[Event | CaughtUp]:
    """Return the next `count` items of a `follow`."""
    async with asyncio.timeout(PATIENCE):
        return [await anext(following) for _ in range(count)]


async def lapse(store: Store, key: Key, agent: str) -> None:
    """Wait until this log is runnable for `agent`, which happens when its lease expires."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if key in await store.runnable(key.tenant, agents=[agent]):
                return
            await asyncio.sleep(0.005)


async def after_the_lapse(store: Store, key: Key, owner: str) -> Lease:
    """Wait until the current lease has expired, then acquire the lease and return it."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await store.acquire(key, owner)
            except LeaseHeld:
                await asyncio.sleep(0.005)


def snapshot(log: str, seq: int, state: str = "{}", version: str = "v1") -> Snapshot:
    return Snapshot(log=log, seq=seq, version=version, state=Raw(state))


def uses(store: Store, key: Key, lease: Lease) -> dict[str, Callable[[], Awaitable[object]]]:
    """Return a call of every method that needs the log of `key`. The calls would succeed if the log
    existed.
    """
    return {
        "append": lambda: store.append(key, [note("late")]),
        "append, fenced": lambda: store.append(key, [note("late")], fence=lease),
        "read": lambda: read_all(store, key),
        "follow": lambda: take(store.follow(key), 1),
        "fork": lambda: store.fork(key, "late", at=1, first=note("late")),
        "erase": lambda: store.erase(key, [1], reason="late"),
        "delete, fenced": lambda: store.delete(key, fence=lease),
        "acquire": lambda: store.acquire(key, "late"),
        "renew": lambda: store.renew(lease),
        "release": lambda: store.release(lease),
        "put_draft": lambda: store.put_draft(key, "late", 0, "text", fence=lease),
        "drafts": lambda: store.drafts(key),
        "put_blob": lambda: store.put_blob(key.scope, b"late"),
        "save_snapshot": lambda: store.save_snapshot(key, snapshot(lease.log, 1), fence=lease),
        "load_snapshot": lambda: store.load_snapshot(key, "v1"),
    }


async def accepted(
    calls: dict[str, Callable[[], Awaitable[object]]], error: type[Exception]
) -> list[str]:
    """Return the names of the calls that did not raise `error`."""
    answers = {}
    for name, call in calls.items():
        try:
            answers[name] = repr(await call())
        except error:
            continue
        except Exception as other:
            answers[name] = repr(other)
    return [f"{name}: {answer}" for name, answer in answers.items()]
