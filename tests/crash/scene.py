"""A store with one session that is everywhere, others beside it, and all that can be seen of them.

Every text of the doomed session holds one of its `Marks`, so that a scan of the raw files tells
what is left of it, and of which part.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from holdfast import (
    BlobNotFound,
    BlobRef,
    Event,
    Key,
    LeaseHeld,
    NewEvent,
    PendingQuery,
    Query,
    Row,
    Scope,
    SessionNotFound,
    Snapshot,
    Store,
)
from holdfast.log.catalog import SURFACE_CLAIM, surface_name
from holdfast.store import Acquire, Lease

from .world import NOBODY, TENANT, given

LARGE = 70_000
DURABLE = ("rows", "events", "blobs", "claims", "pending")  # not: drafts and snapshots of files


class Marks(Struct, frozen=True):
    """A random text for each part: what the fork shares of `main`, what is main's own, what will
    be erased, the thread `far`, what is restored, and all the rest of the session."""

    shared: str
    own: str
    erased: str
    far: str
    restored: str
    session: str


class Scene(Struct, frozen=True):
    """What was planted, and where."""

    marks: Marks
    doomed: Scope
    blobs: list[BlobRef]
    claims: list[str]
    snapshots: list[str]
    leases: list[Lease]

    @property
    def main(self) -> Key:
        return Key(self.doomed.tenant, self.doomed.session, "main")

    @property
    def side(self) -> Key:
        return Key(self.doomed.tenant, self.doomed.session, f"side {self.marks.session}")

    @property
    def far(self) -> Key:
        return Key(self.doomed.tenant, self.doomed.session, f"far {self.marks.far}")

    @property
    def child(self) -> Key:
        return Key(self.doomed.tenant, self.doomed.session, f"child {self.marks.session}")

    @property
    def restored(self) -> Key:
        return Key(self.doomed.tenant, f"restored {self.marks.restored}", "main")

    def save(self, folder: Path) -> None:
        (folder / "scene.json").write_bytes(msgspec.json.encode(self))

    @classmethod
    def load(cls, folder: Path) -> Scene:
        return msgspec.json.decode((folder / "scene.json").read_bytes(), type=cls)


def event(mark: str, n: int, kind: str = "note.made", payload: Any = None, **rest: Any) -> NewEvent:
    """An event with the mark in all that is text."""
    data = payload if payload is not None else {"text": f"{mark} {n}"}
    named = {"id": f"{mark}-{n}", "run": mark, "actor": mark, "cause": mark}
    return NewEvent.of(kind, data, **{**named, **rest})


def past(mark: str, count: int) -> list[Event]:
    """Events to restore, the second of them large."""
    events = []
    for seq in range(1, count + 1):
        text = f"{mark} {seq} " * (1 if seq != 2 else LARGE // 30)
        new = NewEvent.of("message.received", {"text": text}, id=f"{mark}-{seq}")
        events.append(Event(kind=new.kind, data=new.data, id=new.id, seq=seq, at=1_000 + seq))
    return events


async def plant(store: Store) -> Scene:
    """Fill an empty store."""
    marks = Marks(*(f"mark{secrets.token_hex(8)}" for _ in Marks.__struct_fields__))
    scene = Scene(marks, Scope(TENANT, f"doomed {marks.session}"), [], [], [], [])
    await _plant_main(store, scene)
    await _plant_threads(store, scene)
    for data in (marks.session.encode(), marks.session.encode() * (LARGE // 20)):
        scene.blobs.append(await store.put_blob(scene.doomed, data))
    name = SURFACE_CLAIM + surface_name("slack", marks.session)
    for claim in (name, f"claim {marks.session}"):
        scene.claims.append(claim)
        assert await store.claim(TENANT, claim, scene.doomed) == scene.doomed
    await _plant_bystanders(store)
    return scene


async def _plant_main(store: Store, scene: Scene) -> None:
    marks, key = scene.marks, scene.main
    shared, own = marks.shared, marks.own
    created = {"agent": shared, "title": shared, "user": shared, "workspace": shared}
    await store.append(
        key,
        [
            event(shared, 1, "session.created", {**created, "labels": [shared]}),
            event(shared, 2, "message.received", {"text": shared}),
            event(shared, 3, payload={"text": f"{shared} " * (LARGE // 20)}),
        ],
        create=True,
    )
    call = {"id": own, "name": own, "arguments": own}
    await store.append(
        key,
        [
            # Erasing takes the data and leaves the envelope.
            NewEvent.of("note.made", {"text": marks.erased}, id="4"),
            NewEvent.of("note.made", {"text": f"{marks.erased} " * (LARGE // 20)}, id="5"),
            event(own, 6, "label.added", {"label": own}),
            event(own, 7, "metadata.changed", {"set": {own: own}}),
            event(own, 8, "surface.attached", attached(own, marks.session)),
            event(own, 9, "message.completed", {"text": own, "calls": [call]}),
            event(own, 10, "pending.opened", pending(own, "approval")),
            event(own, 11, "tool.finished", {"call": own, "result": f"{own} " * (LARGE // 20)}),
            event(own, 12, "thread.renamed", {"title": own}),
            event(own, 13, "message.received", {"text": own}),
        ],
    )
    await _drive(store, scene, key, own)


def attached(mark: str, address: str) -> dict[str, Any]:
    return {"surface": "slack", "address": address, "detail": {"by": mark}}


def pending(mark: str, what: str) -> dict[str, str]:
    return {"id": mark, "what": what, "title": mark, "assignee": mark, "call": mark}


async def _drive(store: Store, scene: Scene, key: Key, mark: str) -> None:
    lease = await store.acquire(key, f"driver {mark}", ttl=3600)
    await store.put_draft(key, f"message {mark}", 0, f"draft {mark}", fence=lease)
    state = Raw(msgspec.json.encode({"state": mark}))
    saved = Snapshot(log=lease.log, seq=3, version=f"v {mark}", state=state)
    await store.save_snapshot(key, saved, fence=lease)
    scene.snapshots.append(saved.version)
    scene.leases.append(lease)


async def _plant_threads(store: Store, scene: Scene) -> None:
    mark, far = scene.marks.session, scene.marks.far
    forked = {"parent": "main", "at": 3, "title": mark}
    await store.fork(
        scene.main, scene.side.thread, at=3, first=event(mark, 1, "thread.forked", forked)
    )
    await store.append(
        scene.side,
        [
            event(mark, 2),
            event(mark, 3, "pending.opened", pending(mark, "question")),
            event(mark, 4, payload={"text": f"{mark} " * (LARGE // 20)}),
        ],
    )
    await _drive(store, scene, scene.side, mark)
    forked = {"parent": scene.side.thread, "at": 5, "title": far}
    await store.fork(
        scene.side, scene.far.thread, at=5, first=event(far, 1, "thread.forked", forked)
    )
    await store.append(scene.far, [event(far, 2), event(far, 3, "label.added", {"label": far})])
    await _drive(store, scene, scene.far, far)
    created = {"agent": mark, "title": mark, "parent": "main"}
    await store.append(
        scene.child, [event(mark, 1, "thread.created", created), event(mark, 2)], create=True
    )


BYSTANDERS = (Scope(TENANT, "other"), Scope("another tenant", "other"))


async def _plant_bystanders(store: Store) -> None:
    for scope in BYSTANDERS:
        key = Key(scope.tenant, scope.session, "main")
        created = {"agent": "shop", "title": "stays", "labels": ["kept"], "metadata": {"a": 1}}
        events = [
            NewEvent.of("session.created", created, id="b1"),
            NewEvent.of("message.received", {"text": "hello"}, id="b2"),
            NewEvent.of("note.made", {"text": "large " * (LARGE // 6)}, id="b3"),
            NewEvent.of("pending.opened", {"id": "p", "what": "plan"}, id="b4"),
        ]
        await store.append(key, events, create=True)
        first = NewEvent.of("thread.forked", {"parent": "main", "at": 3}, id="b5")
        await store.fork(key, "fork", at=3, first=first)
        await store.put_blob(scope, f"blob of {scope.tenant}".encode())
        await store.claim(scope.tenant, "a name of its own", scope)


# What can be seen


async def view(store: Store, scope: Scope, scene: Scene) -> dict[str, Any]:
    """Everything that the port shows of a session, but for times and incarnations."""
    seen: dict[str, Any] = {part: {} for part in (*DURABLE, "drafts", "snapshots", "leases")}
    page = await store.find(Query(tenant=scope.tenant, session=scope.session), limit=1_000)
    for row in page.items:
        seen["rows"][row.thread] = _timeless(row)
        seen["events"][row.thread] = [
            msgspec.structs.replace(event, at=0) async for event in store.read(row.key)
        ]
        drafts = await store.drafts(row.key)
        seen["drafts"][row.thread] = [(draft.message, draft.text) for draft in drafts]
        seen["leases"][row.thread] = await driver_of(store, row.key)
        for version in scene.snapshots:
            saved = await store.load_snapshot(row.key, version)
            if saved is not None:
                seen["snapshots"][row.thread, version] = (saved.seq, saved.state)
    items = (await store.pending(PendingQuery(tenant=scope.tenant, session=scope.session))).items
    seen["pending"] = {item.id: (item.thread, item.title, item.seq) for item in items}
    for ref in _blobs(scene, scope):
        try:
            seen["blobs"][ref.sha256] = await store.get_blob(scope, ref)
        except BlobNotFound:
            continue
    for name in [*scene.claims, "a name of its own", "a new name"]:
        holder = await store.claim(scope.tenant, name, Scope(scope.tenant, NOBODY.session))
        if holder == scope:
            seen["claims"][name] = holder
        await store.unclaim(scope.tenant, name, Scope(scope.tenant, NOBODY.session))
    return {part: found for part, found in seen.items() if found}


async def driver_of(store: Store, key: Key) -> str | None:
    """Who holds the lease of a log."""
    try:
        lease = await store.acquire(key, "nobody")
    except LeaseHeld as held:
        return held.owner
    await store.release(lease)
    return None


def durable(seen: dict[str, Any]) -> dict[str, Any]:
    """The part that a file store keeps when its index is lost."""
    return {part: found for part, found in seen.items() if part in DURABLE}


def _timeless(row: Row) -> Row:
    times = {"created": 0, "active": 0, "last": 0, "due": None, "wake": None}
    surfaces = dict.fromkeys(row.surfaces)
    waiting = {id: {**item, "at": 0} for id, item in row.pending.items()}
    return msgspec.structs.replace(
        row, log="", link=None, surfaces=surfaces, pending=waiting, **times
    )


def _blobs(scene: Scene, scope: Scope) -> list[BlobRef]:
    data = (f"blob of {scope.tenant}".encode(), b"a new blob" * LARGE)
    return [*scene.blobs, *(BlobRef(hashlib.sha256(some).hexdigest(), len(some)) for some in data)]


async def shown(store: Store, scene: Scene, keys: Sequence[Key]) -> list[str]:
    """Every method that still shows something of these logs, or of a mark that was in them
    alone."""
    found = []
    for key in keys:
        if await store.row(key) is not None:
            found.append(f"row {key}")
        for name, call in {
            "read": lambda key: _drain(store.read(key)),
            "follow": lambda key: _drain(store.follow(key)),
            "drafts": store.drafts,
            "load_snapshot": lambda key: store.load_snapshot(key, scene.snapshots[0]),
            "acquire": lambda key: store.acquire(key, "late"),
            "append": lambda key: store.append(key, [event("late", 1)]),
            "fork": lambda key: store.fork(key, "late", at=1, first=event("late", 1)),
            "erase": lambda key: store.erase(key, [1], reason="late"),
        }.items():
            try:
                answer = await call(key)  # type: ignore[no-untyped-call]  # a table of calls
            except SessionNotFound:
                continue
            found.append(f"{name} {key}: {answer}")
    return found


async def listed(store: Store, scene: Scene, mark: str) -> list[str]:
    """Every list of the tenant that still shows a mark."""
    found = []
    queries: dict[str, Query | PendingQuery] = {
        "find": Query(tenant=TENANT, total=True),
        "find by session": Query(tenant=TENANT, session=scene.doomed.session, total=True),
        "find by user": Query(tenant=TENANT, user=mark, total=True),
        "find by workspace": Query(tenant=TENANT, workspace=mark, total=True),
        "find by agent": Query(tenant=TENANT, agent=mark, total=True),
        "find by label": Query(tenant=TENANT, label=mark, total=True),
        "find by metadata": Query(tenant=TENANT, metadata={mark: mark}, total=True),
        "find by surface": Query(tenant=TENANT, surface=("slack", mark), total=True),
        "pending": PendingQuery(tenant=TENANT),
        "pending by assignee": PendingQuery(tenant=TENANT, assignee=mark),
    }
    for name, query in queries.items():
        if isinstance(query, Query):
            page = repr(await store.find(query, limit=1_000))
        else:
            page = repr(await store.pending(query, limit=1_000))
        if mark in page:
            found.append(name)
    if await store.runnable(TENANT, agents=[mark]):
        found.append("runnable")
    return found


async def _drain(stream: Any) -> int:
    count = 0
    async for _ in stream:
        count += 1
        if count > 1_000:
            break
    return count


# The operations that are cut


async def delete(store: Store, scene: Scene) -> None:
    await store.delete(scene.doomed)


async def delete_main(store: Store, scene: Scene) -> None:
    await store.delete(scene.main)


async def delete_far(store: Store, scene: Scene) -> None:
    await store.delete(scene.far)


async def erase(store: Store, scene: Scene) -> None:
    await store.erase(scene.main, [4, 5], reason="asked")


async def restore(store: Store, scene: Scene) -> None:
    await store.restore(scene.restored, given(past(scene.marks.restored, 5)))


async def purge(store: Store, scene: Scene) -> None:
    await store.purge()


async def append(store: Store, scene: Scene) -> None:
    events = [event("late", n, "message.received", {"text": "late " * 300}) for n in range(20)]
    large = event("late", 20, payload={"text": "late " * LARGE})
    await store.append(scene.main, [*events, large])


async def append_and_acquire(store: Store, scene: Scene) -> None:
    events = [event("late", n) for n in range(3)]
    await store.append(scene.child, events, acquire=Acquire("late driver", 3600))


async def append_and_release(store: Store, scene: Scene) -> None:
    events = [event("late", n) for n in range(3)]
    await store.append(scene.main, events, release=scene.leases[0])


async def create(store: Store, scene: Scene) -> None:
    key = Key(TENANT, scene.doomed.session, "new thread")
    events = [event("new", n) for n in range(20)]
    await store.append(key, events, create=True, acquire=Acquire("new driver", 3600))


async def fork(store: Store, scene: Scene) -> None:
    await store.fork(scene.far, "new fork", at=4, first=event("new", 1))


async def put_blob(store: Store, scene: Scene) -> None:
    await store.put_blob(scene.doomed, b"a new blob" * LARGE)


async def claim(store: Store, scene: Scene) -> None:
    await store.claim(TENANT, "a new name", scene.doomed)


OPS = {
    function.__name__: function
    for function in (
        delete,
        delete_main,
        delete_far,
        erase,
        restore,
        purge,
        append,
        append_and_acquire,
        append_and_release,
        create,
        fork,
        put_blob,
        claim,
    )
}
