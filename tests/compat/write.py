"""Writes a corpus: a SQLite store and a file store that hold something of every sort, and
`expected.json`, which says what must be read from them for ever after.

Run as `python -m tests.compat.write tests/compat/NNNN`.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from holdfast import BlobRef, Key, NewEvent, PendingQuery, Query, Scope, Snapshot, Store, key
from holdfast.log.catalog import SURFACE_CLAIM, surface_name
from holdfast.store import Acquire, Lease
from holdfast.stores.file import FileStore
from holdfast.stores.sqlite import SqliteStore

STORES = {"sqlite": "store.db", "file": "store"}  # the kinds, and what each is called in a corpus
START = 1_700_000_000_000
HOUR = 3_600

# A log with an event of each kind that can stand behind others; the ids are `e1`, `e2`, ….
FACTS: list[tuple[str, Any]] = [
    (
        "session.created",
        {
            "agent": "helper",
            "title": "A session",
            "user": "ann",
            "workspace": "w1",
            "ttl": 600,
            "labels": ["vip", "beta"],
            "metadata": {"plan": "pro", "n": 9_007_199_254_740_993, "deep": {"list": [1, None]}},
        },
    ),
    ("session.touched", {"surface": "web"}),
    ("thread.renamed", {"title": "Ünïcode \u0000 🦊"}),
    ("label.added", {"label": "urgent"}),
    ("label.removed", {"label": "beta"}),
    ("metadata.changed", {"set": {"region": "eu"}, "drop": ["plan"]}),
    ("surface.attached", {"surface": "slack", "address": "D1", "detail": {"team": "T"}}),
    ("surface.attached", {"surface": "mail", "address": "ann@example.org"}),
    ("surface.detached", {"surface": "mail", "address": "ann@example.org"}),
    ("message.received", {"text": "What is the weather?", "parts": [{"image": "x"}]}),
    ("run.started", {"driver": "worker-1", "inputs": [10]}),
    (
        "message.completed",
        {
            "text": "Let me look.",
            "calls": [{"id": "c1", "name": "weather", "arguments": {"city": "Bern"}}],
            "model": "m-1",
            "usage": {"input": 12, "output": 3},
        },
    ),
    ("tool.started", {"call": "c1", "name": "weather", "key": "idem-1"}),
    ("tool.finished", {"call": "c1", "outcome": "ok", "result": {"celsius": 21.5}}),
    ("pending.opened", {"id": "p1", "what": "approval", "title": "May I?", "assignee": "ann"}),
    ("pending.settled", {"id": "p1", "outcome": "approved", "answer": True}),
    ("pending.opened", {"id": "p2", "what": "question", "call": "c1", "expires": START + 1}),
    ("message.interrupted", {"text": "It is", "reason": "stopped"}),
    ("run.waiting", {"due": START + 60_000}),
    ("run.finished", {"status": "failed", "error": "timeout", "due": START + 90_000}),
    ("weather.noted", {"unknown": ["kind"], "big": -9_223_372_036_854_775_808, "f": 1e-7}),
    ("message.received", {"text": "hi", "a field of later": {"k": [True, False, None]}}),
    ("tool.finished", {"call": "c0", "outcome": "unknown", "result": "x" * 65_600}),
    ("message.received", {"text": "to be erased"}),
]

MAIN, OTHER, MOVED, BACK = key("full"), key("full", tenant="t2"), key("moved"), key("back")
FORK, DEEP, LATER, SIDE = (key("full", name) for name in ("fork", "deep", "later", "side"))
AGED, DRIVEN = key("aged"), key("driven")
LOGS = [MAIN, FORK, LATER, SIDE, OTHER, MOVED, BACK, AGED, DRIVEN]
LIFE: list[tuple[str, Any]] = [
    ("session.created", {"user": "ann", "ttl": 60, "expiry": 90}),
    ("surface.attached", {"surface": "web", "address": "t1", "touch": False}),
    ("session.touched", {"surface": "web"}),
    ("session.timed", {"ttl": 30, "expiry": 45, "reason": "shorter"}),
    ("session.suspended", {"reason": "stale"}),
    ("session.resumed", {}),
    ("session.expired", {"reason": "done"}),
    ("session.touched", {}),
    ("session.pinned", {"pinned": True}),
    ("session.held", {"hold": "lawsuit"}),
    ("session.adopted", {"agent": "shop", "reason": "taken over"}),
]
# What a harness writes.
RUN: list[tuple[str, Any]] = [
    ("session.created", {"agent": "helper"}),
    ("state.changed", {"set": {"plan": "pro"}, "replace": True}),
    ("mode.changed", {"mode": "plan"}),
    ("model.changed", {"model": "a/b"}),
    ("message.received", {"text": "go", "how": "steer", "limits": {"steps": 3}, "model": "a/c"}),
    ("run.started", {"driver": "w", "inputs": [5], "limits": {"steps": 3}, "model": "a/c"}),
    ("model.called", {"model": "a/c", "step": 1}),
    ("permission.changed", {"tools": {"t": "deny", "u": None}, "categories": {"c": "ask"}}),
    ("grant.given", {"driver": "w", "tool": "t"}),
    ("grant.revoked", {"tool": "u"}),
    ("task.changed", {"tasks": [{"id": "k", "content": "do", "status": "in_progress"}]}),
    ("context.built", {"hash": "h", "mode": "plan", "system": "Help.", "messages": ["now"]}),
    (
        "message.completed",
        {
            "text": "Look.",
            "parts": [{"signature": "s"}],
            "calls": [{"id": "c1", "name": "t", "arguments": {"a": 1}, "fingerprint": "f"}],
            "model": "a/c",
            "usage": {"input_tokens": 9, "output_tokens": 1},
            "thought": "hm",
            "cost": 0.25,
        },
    ),
    ("tool.started", {"call": "c1", "name": "t", "key": "c1", "by": "policy", "repeat": True}),
    ("tool.nested", {"call": {"id": "c1.1", "name": "u", "arguments": {}}, "parent": "c1"}),
    ("progress.reported", {"call": "c1", "data": 0.5}),
    ("context.added", {"id": "x", "content": "note", "scope": "session", "on": "tool.finished"}),
    ("context.added", {"id": "y", "content": "gone"}),
    ("context.removed", {"ids": ["y"]}),
    ("run.resumed", {"driver": "v", "reason": "driver_lost"}),
    ("pending.opened", {"id": "p", "what": "approval", "call": "c1.1", "expires": START + 9}),
    ("pending.warned", {"id": "p"}),
    ("pending.voted", {"id": "p", "reason": "fine"}),
    ("pending.extended", {"id": "p", "expires": START + 99}),
    ("timer.set", {"id": "t1", "at": START + 999, "text": "later"}),
    ("timer.set", {"id": "t2", "at": START + 5, "text": "now"}),
    ("timer.set", {"id": "t3", "at": START + 7, "text": "never"}),
    ("timer.fired", {"id": "t2"}),
    ("timer.cleared", {"id": "t3"}),
    ("message.received", {"text": "and then"}),
    ("message.received", {"text": "or not"}),
    ("queue.changed", {"order": [26, 25], "texts": {"25": "after that"}}),
    ("checkpoint.made", {"id": "k1", "label": "before"}),
    ("thread.rewound", {"to": 31, "window": {"tokens": 9, "turns": 1}, "messages": 3}),
    ("checkpoint.made", {"id": "k2"}),
    ("checkpoint.dropped", {"id": "k2"}),
    ("compaction.made", {"upto": 4, "summary": "so far", "tokens": 40, "turns": 1}),
    ("abort.requested", {"reason": "enough"}),
    ("surface.hooked", {"url": "https://example.com/hook", "kinds": ["run.*"], "since": START}),
    ("surface.delivered", {"session": "s", "thread": "main", "log": "l", "seq": 4}),
    ("surface.failed", {"session": "s", "thread": "main", "log": "l", "seq": 5, "since": START}),
    ("surface.unhooked", {"why": "gone"}),
    ("timer.planned", {"due": START + 999}),
    ("thread.reported", {"item": "c!sub"}),
    ("tool.probed", {"call": "c1", "outcome": "unknown", "reason": "the bank is closed"}),
    (
        "timer.scheduled",
        {"name": "s", "text": "again", "next": START + 99_999, "cron": "0 9 * * *"},
    ),
    ("timer.scheduled", {"name": "u", "text": "never", "next": START + 1, "every": 60_000}),
    ("timer.paused", {"name": "s", "paused": False, "next": START + 999_999}),
    ("timer.unscheduled", {"name": "u"}),
    ("timer.ticked", {"name": "s", "due": START + 999_999, "next": None, "skipped": 1}),
    ("run.warned", {"budget": "user/day", "measure": "tokens", "share": 0.9}),
    ("run.charged", {"usage": {"tokens": 7, "calls": 1}}),
]
SURFACE = SURFACE_CLAIM + surface_name("slack", "D1")
MARK = "first try"
BLOBS = (b"an attachment \x00\xff", b"")

Names = dict[str, Any]  # what to ask a store for; kept in `expected.json`, under "names"


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now


def fact(n: int, kind: str, payload: Any, **rest: Any) -> NewEvent:
    return NewEvent.of(kind, payload, id=f"e{n}", **rest)


async def open_store(kind: str, folder: Path, clock: Callable[[], int]) -> Store:
    cls = FileStore if kind == "file" else SqliteStore
    return await cls.open(folder / STORES[kind], durability="process", clock=clock)


async def fill(store: Store, clock: Clock) -> Names:
    """Write everything; what to ask for later."""
    for n, (kind, payload) in enumerate(FACTS, 1):
        clock.now += 1_500
        event = fact(n, kind, payload, v=2 if n == 21 else 1, run="r1" if n > 10 else None)
        if n % 5 == 0:
            event = msgspec.structs.replace(event, actor="ann", cause=f"e{n - 1}")
        await store.append(MAIN, [event], create=n == 1)
    await store.erase(MAIN, [len(FACTS)], reason="asked to")

    # A fork, a fork of a fork whose parent is deleted, a thread, another tenant's log.
    forked = {"parent": "main", "at": 12, "agent": "helper", "title": "What if"}
    await store.fork(MAIN, "fork", at=12, first=fact(101, "thread.forked", forked))
    await store.append(FORK, [fact(102, "message.received", {"text": "instead"})])
    await store.fork(MAIN, "deep", at=14, first=fact(103, "thread.forked", {**forked, "at": 14}))
    await store.append(DEEP, [fact(n, "note.made", {"n": n}) for n in (104, 105)])
    later = {"parent": "deep", "at": 16}
    await store.fork(DEEP, "later", at=16, first=fact(106, "thread.forked", later))
    await store.delete(DEEP)
    begun = {"agent": "other", "title": "Beside", "parent": "main"}
    await store.append(SIDE, [fact(107, "thread.created", begun)], create=True)
    await store.append(OTHER, [fact(1, "session.created", {"agent": "helper"})], create=True)

    # What a harness left in the middle of a run.
    lease = None
    for n, (kind, payload) in enumerate(RUN, 1):
        clock.now += 10
        done = await store.append(
            DRIVEN,
            [fact(200 + n, kind, payload, run="r9" if n > 5 else None)],
            create=n == 1,
            acquire=Acquire("w", HOUR) if n == 1 else None,
            release=lease if n == len(RUN) else None,
        )
        lease = done.lease or lease

    # A log that moved away, and one that came back.
    for one in (MOVED, BACK):
        await store.append(one, [fact(1, "session.created", {"agent": "mover"})], create=True)
        lease = await store.acquire(one, "mover")
        moved = fact(2, "session.moved", {"to": "https://example.org"})
        await store.append(one, [moved], fence=lease)
        if one == BACK:
            back = fact(3, "session.reopened", {"reason": "failed"})
            await store.append(one, [back], fence=lease)
            await store.release(lease)

    await _age(store, clock)
    await store.claim("main", SURFACE, MAIN.scope)
    await store.claim("main", "a name", MAIN.scope)
    await store.claim("t2", "a name", OTHER.scope)
    await store.claim("main", "given up", MAIN.scope)
    await store.unclaim("main", "given up", MAIN.scope)
    blobs = [await store.put_blob(MAIN.scope, data) for data in BLOBS]
    lease = await _drive(store, MAIN)
    return {
        "tenants": ["main", "t2"],
        "logs": LOGS,
        "gone": [DEEP],
        "claims": [("main", SURFACE), ("main", "a name"), ("t2", "a name"), ("main", "given up")],
        "blobs": [(MAIN.scope, blob) for blob in blobs],
        "versions": ["v1", "v2"],
        "lease": lease,
        "mark": MARK,
        "now": clock.now,
    }


async def _age(store: Store, clock: Clock) -> None:
    """A session that went through its life cycle."""
    for n, (kind, payload) in enumerate(LIFE, 1):
        clock.now += 1_500
        await store.append(AGED, [fact(n, kind, payload)], create=n == 1)
    await store.claim("main", SURFACE_CLAIM + surface_name("web", "t1"), AGED.scope)


async def _drive(store: Store, key: Key) -> Lease:
    """An earlier lease, the one that still holds, and what is written under it."""
    await store.release(await store.acquire(key, "worker-1"))
    lease = await store.acquire(key, "worker-2", ttl=HOUR, mark=MARK)
    await store.put_draft(key, "draft-1", 0, "It will ", fence=lease)
    await store.put_draft(key, "draft-1", 8, "rain 🌧", fence=lease)
    row = await store.row(key)
    assert row is not None
    for version, seq in (("v1", 20), ("v2", 22)):
        state = Raw(b'{"messages":[1,2]}')
        taken = Snapshot(log=row.log, seq=seq, version=version, state=state)
        await store.save_snapshot(key, taken, fence=lease)
    return lease


async def describe(store: Store, names: Names, *, whole: bool = True) -> Any:
    """All that a store says about the names, as JSON values. Of a file store whose index was
    rebuilt, not the `whole`: drafts and snapshots are in the index alone."""
    logs = []
    for name in msgspec.convert(names["logs"], list[Key]):
        events = [
            {field: getattr(event, field) for field in ENVELOPE} | {"data": _short(event.data)}
            async for event in store.read(name)
        ]
        log: dict[str, Any] = {"key": name, "row": await store.row(name), "events": events}
        if whole:
            log["drafts"] = await store.drafts(name)
            log["snapshots"] = [await store.load_snapshot(name, v) for v in names["versions"]]
        logs.append(log)
    nobody = [Scope(tenant, "nobody") for tenant, _ in names["claims"]]
    blobs = msgspec.convert(names["blobs"], list[tuple[Scope, BlobRef]])
    found = {
        "logs": logs,
        "gone": [await store.row(name) for name in msgspec.convert(names["gone"], list[Key])],
        "found": [(await store.find(Query(tenant=name))).items for name in names["tenants"]],
        "labelled": (await store.find(Query(label="vip", metadata={"region": "eu"}))).items,
        "on_surface": (await store.find(Query(surface=("slack", "D1")))).items,
        "threads": (await store.find(Query(session="full", order="created"))).items,
        "inbox": [(await store.pending(PendingQuery(tenant=n))).items for n in names["tenants"]],
        "claims": [
            await store.claim(tenant, name, owner)
            for (tenant, name), owner in zip(names["claims"], nobody, strict=True)
        ],
        "blobs": [
            hashlib.sha256(await store.get_blob(scope, ref)).hexdigest() for scope, ref in blobs
        ],
    }
    return msgspec.json.decode(msgspec.json.encode(found))


def _short(data: Raw) -> Any:
    if len(data) < 1_000:
        return data
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


ENVELOPE = ("seq", "id", "kind", "v", "run", "actor", "cause", "at")


async def write(folder: Path) -> None:
    """A new corpus. What it must say is read from a copy, since asking for claims takes them."""
    _make(folder)
    expected: dict[str, Any] = {}
    for kind, name in STORES.items():
        clock = Clock()
        store = await open_store(kind, folder, clock)
        names = await fill(store, clock)
        assert [damage async for damage in store.verify()] == []
        await store.purge()
        await store.aclose()
        _tidy(folder)
        with tempfile.TemporaryDirectory() as scratch:
            copy(folder / name, Path(scratch) / name)
            store = await open_store(kind, Path(scratch), clock)
            expected[kind] = {"names": names, "says": await describe(store, names)}
            await store.aclose()
    text = msgspec.json.format(msgspec.json.encode(expected), indent=1)
    (folder / "expected.json").write_bytes(text + b"\n")


def _make(folder: Path) -> None:
    folder.mkdir(parents=True)


def _tidy(folder: Path) -> None:
    """Leave what a clone of the repository has: no locks, no empty folders."""
    for left in (*folder.rglob("*.lock"), *folder.rglob("open")):
        left.rmdir() if left.is_dir() else left.unlink()
    strays = [path.name for path in folder.rglob("*.db-*")]
    assert not strays, strays


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1])))
