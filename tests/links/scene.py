"""Sessions worth tampering with, and what `verify` says of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast import Key, NewEvent, Row, Scope, Store
from holdfast.events import Event
from holdfast.stores.mongodb import MongoStore

from .places import Place
from .tampering import Log

Told = tuple[str, str, int | None]  # problem, thread, number
Tamper = Callable[[Log], Log]

APPROVAL = 4  # the number of the event that says who approved


def note(n: object, **rest: Any) -> NewEvent:
    return NewEvent.of("note.made", {"n": n}, **rest)


def appends() -> list[list[NewEvent]]:
    """Seven events: somebody asks, and ann approves."""
    item = {"id": "p1", "what": "approval"}
    answer = {"id": "p1", "outcome": "approved"}
    return [
        [NewEvent.of("session.created", {"agent": "shop"}), note(2, run="r1", cause="c")],
        [NewEvent.of("pending.opened", item, run="r1")],
        [NewEvent.of("pending.settled", answer, run="r1", actor="ann")],
        [note(5), note(6)],
        [note(7)],
    ]


async def begin(store: Store, name: Key, *, more: int = 0) -> str:
    """A session with one thread, and `more` events that are appended one by one; its log."""
    for some in [*appends(), *([note(8 + n)] for n in range(more))]:
        await store.append(name, some, create=True)
    return (await row_of(store, name)).log


async def fork(store: Store, name: Key, thread: str, at: int, *, count: int = 3) -> str:
    """A thread that leaves another at a number and goes on by itself; its log."""
    target = Key(name.tenant, name.session, thread)
    first = NewEvent.of("thread.forked", {"parent": name.thread, "at": at})
    await store.fork(name, thread, at=at, first=first)
    for n in range(at + 2, at + count + 1):
        await store.append(target, [note(n, actor="ann")])
    return (await row_of(store, target)).log


async def settle(store: Store) -> None:
    """Until what is on its way in the background is there."""
    if isinstance(store, MongoStore):
        await store._heads.aclose()


async def row_of(store: Store, name: Key) -> Row:
    row = await store.row(name)
    assert row is not None
    return row


async def events_of(store: Store, name: Key) -> list[Event]:
    return [event async for event in store.read(name)]


async def told(
    store: Store, target: Scope | Key | None = None, **how: Any
) -> dict[str, list[Told]]:
    """What is wrong, by session."""
    found: dict[str, list[Told]] = {}
    async for damage in store.verify(target, **how):
        assert damage.key is not None
        said = (damage.problem, damage.key.thread, damage.seq)
        found.setdefault(damage.key.session, []).append(said)
    return found


async def tamper(place: Place, log: str, how: Tamper) -> None:
    await place.put(how(await place.taken(log)))
