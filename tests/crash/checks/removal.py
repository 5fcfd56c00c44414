"""What was deleted is seen by no method from that moment on, and after a purge is nowhere in the
raw files; the receipt names what is left until then, and nothing of anybody else."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast import BlobNotFound, Key, NewEvent, Query, Receipt, Scope, Store, key

from ..outcome import Outcome
from ..places import drop_index, holding, open_at
from ..scene import BYSTANDERS, Marks, Scene, listed, plant, shown, view
from ..world import NOBODY, TENANT, verified


def deletes(kind: str, folder: Path) -> Outcome:
    """A session is deleted while another connection has the store open."""
    outcome = Outcome()
    asyncio.run(_deletes(kind, folder, outcome))
    return outcome


async def _deletes(kind: str, folder: Path, outcome: Outcome) -> None:
    store = await open_at(kind, folder)
    other = await open_at(kind, folder)
    scene = await plant(store)
    beside = [await view(store, scope, scene) for scope in BYSTANDERS]
    everything = Query(tenant=TENANT, session=scene.doomed.session)
    keys = [row.key for row in (await store.find(everything)).items]
    outcome.equal(len(keys), 4, "threads that were planted")
    receipt = await store.delete(scene.doomed)
    for name, seer in (("who deleted", store), ("another", other)):
        await _unseen(seer, scene, keys, name, outcome)
    await _left(folder, kind, scene, receipt, list(Marks.__struct_fields__), outcome)
    outcome.expect(receipt.removed["logs"] == 4, f"the receipt counts {receipt.removed}")
    await other.aclose()
    after = await store.purge()
    outcome.equal(after.remains, (), "what a purge leaves")
    await store.aclose()
    _gone(folder, scene, list(Marks.__struct_fields__), outcome)
    if kind == "file":
        drop_index(folder)
    store = await open_at(kind, folder)
    await _unseen(store, scene, keys, "who opens it later", outcome)
    for scope, wanted in zip(BYSTANDERS, beside, strict=True):
        found = await view(store, scope, scene)
        same = all(found.get(part) == wanted.get(part) for part in ("rows", "events", "blobs"))
        outcome.expect(same, f"{scope} is not as it was")
    await verified(store, outcome, "afterwards")
    await store.aclose()


async def _unseen(
    store: Store, scene: Scene, keys: list[Key], who: str, outcome: Outcome
) -> None:
    found = await shown(store, scene, keys)
    for mark in Marks.__struct_fields__:
        found += await listed(store, scene, getattr(scene.marks, mark))
    for ref in scene.blobs:
        try:
            await store.get_blob(scene.doomed, ref)
            found.append(f"blob {ref}")
        except BlobNotFound:
            continue
    for name in scene.claims:
        if await store.claim(TENANT, name, NOBODY) != NOBODY:
            found.append(f"claim {name}")
        await store.unclaim(TENANT, name, NOBODY)
    outcome.expect(not found, f"{who} still sees {found}")
    outcome.counts["looks"] += 1


async def _left(
    folder: Path, kind: str, scene: Scene, receipt: Receipt, marks: list[str], outcome: Outcome
) -> None:
    """Every file that still holds something is named by the receipt."""
    named = [remains.where for remains in receipt.remains]
    for mark in marks:
        for name in holding(folder, getattr(scene.marks, mark)):
            place = str(folder / name)
            outcome.expect(place in named, f"{mark} is still in {name}; the receipt says {named}")
    for remains in receipt.remains:
        outcome.expect(remains.remedy, f"no remedy for {remains}")


def _gone(folder: Path, scene: Scene, marks: list[str], outcome: Outcome) -> None:
    for mark in marks:
        left = holding(folder, getattr(scene.marks, mark))
        outcome.expect(not left, f"{mark} is still in {left} after the purge")
        outcome.counts["scans"] += 1


def deletes_thread(kind: str, folder: Path) -> Outcome:
    """One thread is deleted: only what its forks share of it stays, and the receipt says so."""
    outcome = Outcome()
    asyncio.run(_deletes_thread(kind, folder, outcome))
    return outcome


async def _deletes_thread(kind: str, folder: Path, outcome: Outcome) -> None:
    store = await open_at(kind, folder)
    scene = await plant(store)
    side = [event async for event in store.read(scene.side)]
    receipt = await store.delete(scene.main)
    outcome.equal(await shown(store, scene, [scene.main]), [], "who still sees the thread")
    outcome.equal(await listed(store, scene, scene.marks.own), [], "lists that show it")
    what = [remains.what for remains in receipt.remains]
    shared = [text for text in what if scene.side.thread in text and "3" in text]
    outcome.expect(shared, f"the receipt does not say what the fork shares: {what}")
    await store.purge()
    outcome.equal([event async for event in store.read(scene.side)], side, "the fork")
    await store.delete(scene.far)
    await store.purge()
    await store.aclose()
    _gone(folder, scene, ["own", "erased", "far"], outcome)
    store = await open_at(kind, folder)
    outcome.equal([event async for event in store.read(scene.side)], side, "the fork, later")
    await verified(store, outcome, "afterwards")
    await store.delete(scene.doomed)
    await store.purge()
    await store.aclose()
    _gone(folder, scene, list(Marks.__struct_fields__), outcome)


def erases(kind: str, folder: Path) -> Outcome:
    """What was erased is nowhere, in no fork and in no snapshot."""
    outcome = Outcome()
    asyncio.run(_erases(kind, folder, outcome))
    return outcome


async def _erases(kind: str, folder: Path, outcome: Outcome) -> None:
    store = await open_at(kind, folder)
    scene = await plant(store)
    receipt = await store.erase(scene.main, [4, 5], reason="asked")
    seen = [event.json() async for event in store.read(scene.main)]
    outcome.equal(seen[3:5], [{"erased": "asked"}] * 2, "the erased events")
    await _left(folder, kind, scene, receipt, ["erased"], outcome)
    await store.purge()
    await store.aclose()
    _gone(folder, scene, ["erased"], outcome)


def long_threads(kind: str, folder: Path) -> Outcome:
    """A deleted thread of exactly so many events as one step of the removal takes, the last of
    them large: nothing of it stays behind the fork."""
    outcome = Outcome()
    asyncio.run(_long_threads(kind, folder, outcome))
    return outcome


async def _long_threads(kind: str, folder: Path, outcome: Outcome) -> None:
    from holdfast.stores.sqlite.remove import STEP_EVENTS

    store = await open_at(kind, folder, durability="process")
    log, mark = key("long"), "mark-of-a-large-payload"
    await store.append(log, [NewEvent.of("note.made", id="first")], create=True)
    large = NewEvent.of("note.made", {"text": mark * 5_000}, id="large")
    for start in range(0, STEP_EVENTS, 500):
        few = [NewEvent.of("note.made", id=f"n{start + n}") for n in range(499)]
        last = large if start + 500 == STEP_EVENTS else NewEvent.of("note.made")
        await store.append(log, [*few, last])
    await store.fork(log, "fork", at=1, first=NewEvent.of("note.made"))
    await store.delete(log)
    await store.purge()
    await store.aclose()
    left = holding(folder, mark)
    outcome.expect(not left, f"the large payload is still in {left}")
    outcome.counts["events"] = STEP_EVENTS + 1


def receipts(kind: str, folder: Path) -> Outcome:
    """A receipt tells one tenant nothing of another."""
    outcome = Outcome()
    asyncio.run(_receipts(kind, folder, outcome))
    return outcome


async def _receipts(kind: str, folder: Path, outcome: Outcome) -> None:
    store = await open_at(kind, folder, durability="process")
    hidden = Key("hidden tenant", "hidden session", "main")
    await store.append(hidden, [NewEvent.of("note.made") for _ in range(3)], create=True)
    await store.fork(hidden, "hidden thread", at=2, first=NewEvent.of("note.made"))
    own = await store.delete(hidden)
    outcome.expect("hidden thread" in repr(own), f"its own receipt says nothing: {own}")
    log = key("mine")
    await store.append(log, [NewEvent.of("note.made")], create=True)
    for target in (log, Scope(log.tenant, log.session)):
        receipt = repr(await store.delete(target))
        outcome.expect("hidden" not in receipt, f"the receipt tells: {receipt}")
    await store.aclose()

