"""Sessions worth copying, the stores they are copied between, and what a copy must keep."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from holdfast import Event, Key, NewEvent, Row, Scope, Store, key
from holdfast.log.catalog import Query, surface_name
from tests import servers

# Where a store of each kind is, given a folder of its own.
URLS: dict[str, Callable[[Path], str]] = {
    "memory": lambda place: "memory:",
    "file": lambda place: f"file:{place}/store",
    "sqlite": lambda place: f"sqlite:{place}/store.db",
}
SERVERS: dict[str, Callable[[Path], str]] = {
    "postgres": partial(servers.url, "postgres"),
    "mongodb": partial(servers.url, "mongodb"),
}
# A copy knows the port alone: each kind is a source and a target, and two have both of a kind.
PAIRS = [
    *pairwise([*URLS, *SERVERS, "memory"]),
    ("file", "file"),
    ("sqlite", "sqlite"),
]

SHOP = Scope("main", "customer-42")
SURFACE = f"surface:{surface_name('slack', 'C1')}"


def new(kind: str, **payload: Any) -> NewEvent:
    return NewEvent.of(kind, payload)


def said(text: str) -> NewEvent:
    return new("message.received", text=text)


def answered(text: str) -> NewEvent:
    return new("message.completed", text=text, usage={"tokens": 3})


def forked(parent: str, at: int, **rest: Any) -> NewEvent:
    return new("thread.forked", parent=parent, at=at, **rest)


async def shop(store: Store) -> None:
    """A session at rest: large and odd payloads, two forks, one of them of the other, a thread
    of its own, an erased event, a blob, names."""
    main = key(SHOP.session)
    await store.claim("main", SURFACE, SHOP)
    await store.claim("main", "order:42", SHOP)
    first = [
        new("session.created", agent="shop", user="ann", title="Refund", ttl=60, labels=["vip"]),
        new("surface.attached", surface="slack", address="C1"),
        said("Where is order 42?"),
        NewEvent.of("message.completed", {"text": "x" * 200_000}, actor="shop", cause="in:1"),
        new("foreign.kind", odd=["\u2028", "\U0001f469", 1e300, None, {"erased": 1}]),
    ]
    await store.append(main, first, create=True)
    await store.fork(main, "what-if", at=4, first=forked("main", 4, agent="shop"))
    what_if = Key("main", SHOP.session, "what-if")
    await store.append(what_if, [said("And if not?"), answered("Then not.")])
    await store.fork(what_if, "deeper", at=6, first=forked("what-if", 6))
    await store.fork(what_if, "early", at=2, first=forked("what-if", 2))
    side = Key("main", SHOP.session, "side")
    await store.append(side, [new("thread.created", parent="main"), answered("hm")], create=True)
    await store.append(main, [said("secret"), answered("It is on its way.")])
    await store.erase(main, [3, 6], reason="asked to")
    for data in (b"", b"\x00\xff" * 50_000, b"a picture"):
        await store.put_blob(SHOP, data)


async def waiting(store: Store, session: str = "waits") -> None:
    """A session in the middle of everything: a run that waits for an approval, with one call
    that was begun and one that was not."""
    calls = [
        {"id": "c1", "name": "refund"},
        {"id": "c2", "name": "mail"},
        {"id": "c3", "name": "x"},
    ]
    run = {"run": "r1"}
    events = [
        new("session.created", agent="shop", ttl=60),
        said("Refund it."),
        NewEvent.of("run.started", **run),
        NewEvent.of("message.completed", {"calls": calls}, **run),
        NewEvent.of("tool.started", {"call": "c2", "name": "mail"}, **run),
        NewEvent.of("pending.opened", {"id": "p1", "what": "approval", "call": "c1"}, **run),
        NewEvent.of("run.waiting", **run),
    ]
    await store.append(key(session), events, create=True)


async def events_of(store: Store, key: Key) -> list[Event]:
    return [event async for event in store.read(key)]


async def rows_of(store: Store, scope: Scope = SHOP) -> dict[str, Row]:
    page = await store.find(Query(tenant=scope.tenant, session=scope.session), limit=1_000)
    return {row.thread: row for row in page.items}


async def content(store: Store, scope: Scope = SHOP) -> dict[str, Any]:
    """All that a session is, but for what a copy makes anew."""
    rows = await rows_of(store, scope)
    return {
        "rows": {name: replace(row, log="", tenant="", link=None) for name, row in rows.items()},
        "events": {name: await events_of(store, row.key) for name, row in rows.items()},
        "blobs": {ref: await store.get_blob(scope, ref) for ref in await store.blobs(scope)},
        "claims": await store.claims(scope),
    }


async def sound(store: Store) -> bool:
    return [damage async for damage in store.verify()] == []
