"""Who holds the newest lease writes; who held an older one does not, and nobody's message is
left undriven when a lease is given back."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast import Event, Lease, LeaseHeld, NewEvent, Store, key

from ..children import Child
from ..outcome import Outcome, Tick, quiet
from ..places import open_at
from ..world import verified

KEY = key("s")
AGENT = "shop"


def frozen(kind: str, folder: Path, *, rounds: int, tick: Tick = quiet) -> Outcome:
    """A holder is stopped with SIGSTOP until its lease lapsed and another took over; when it
    goes on, every fenced write of it is refused: while the new holder drives, and after the new
    holder gave its lease back."""
    outcome = Outcome()
    for number in range(rounds):
        tick(number, rounds)
        place = folder / f"round {number}"
        place.mkdir()
        asyncio.run(_frozen(kind, place, outcome))
        outcome.counts["rounds"] += 1
    return outcome


async def _frozen(kind: str, folder: Path, outcome: Outcome) -> None:
    store = await open_at(kind, folder)
    created = NewEvent.of("session.created", {"agent": AGENT}, id="first")
    others = [NewEvent.of("note.made", {"n": n}, id=f"n{n}") for n in (2, 3)]
    await store.append(KEY, [created, *others], create=True)
    before = [event async for event in store.read(KEY)]
    with Child("holder", kind, str(folder), "0.2") as child:
        old = (await asyncio.to_thread(child.hear))["token"]
        child.freeze()
        lease = await _take_over(store)
        outcome.expect(lease.token > old, f"token {lease.token} is not above {old}")
        child.thaw()
        await _refused(child, outcome, "another holds the lease")
        await _untouched(store, before, outcome)
        done = await store.append(KEY, [NewEvent.of("note.made", id="mine")], fence=lease)
        outcome.equal(done.seqs, (4,), "the append of the new holder")
        await store.release(lease, head=4)
        await _refused(child, outcome, "the new lease was given back")
        before.append([event async for event in store.read(KEY)][-1])
        await _untouched(store, before, outcome)
        child.process.kill()
    await verified(store, outcome, "afterwards")
    await store.aclose()


async def _take_over(store: Store) -> Lease:
    async with asyncio.timeout(60):
        while True:
            try:
                return await store.acquire(KEY, "the next one", ttl=60)
            except LeaseHeld as held:
                assert held.owner == "the frozen one"
                await asyncio.sleep(0.01)


async def _refused(child: Child, outcome: Outcome, when: str) -> None:
    child.tell({})
    attempts = (await asyncio.to_thread(child.hear))["attempts"]
    for name, became in attempts.items():
        outcome.equal(became, "LeaseLost", f"{name} when {when}")
        outcome.counts["writes refused"] += 1


async def _untouched(store: Store, before: list[Event], outcome: Outcome) -> None:
    outcome.equal([event async for event in store.read(KEY)], before, "the log")
    outcome.equal(await store.drafts(KEY), [], "the drafts")
    outcome.equal(await store.load_snapshot(KEY, "late"), None, "the snapshot")


def releases(kind: str, folder: Path, *, rounds: int, tick: Tick = quiet) -> Outcome:
    """A message is accepted while the driver gives its lease back: either the driver saw it, or
    the log is listed as runnable."""
    outcome = Outcome()

    async def prepare() -> Store:
        store = await open_at(kind, folder)
        await store.append(KEY, [NewEvent.of("session.created", {"agent": AGENT})], create=True)
        return store

    async def judge(store: Store, id: str, seen: list[str]) -> None:
        waiting = KEY in await store.runnable(KEY.tenant, agents=[AGENT])
        outcome.counts["driven"] += id in seen
        outcome.counts["left to the next"] += id not in seen
        outcome.expect((id in seen) != waiting, f"{id}: seen {id in seen}, runnable {waiting}")

    with (
        asyncio.Runner() as runner,
        Child("driver", kind, str(folder), patience=1_800) as driver,
        Child("sender", kind, str(folder), patience=1_800) as sender,
    ):
        store = runner.run(prepare())
        for number in range(rounds):
            tick(number, rounds)
            id = f"message {number}"
            driver.tell({})
            earlier = driver.hear()
            assert earlier == {"driving": True}, earlier
            sender.tell({"id": id})
            sender.hear()
            done = driver.hear()
            outcome.counts["releases refused"] += done["refused"]
            outcome.counts["rounds"] += 1
            # What was left by the round before is driven in this one.
            runner.run(judge(store, id, done["seen"]))
        runner.run(store.aclose())
    return outcome
