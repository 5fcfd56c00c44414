"""Corners of a delete: a thread that takes exactly one step to remove, and a receipt that tells
one tenant nothing of another."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast import Key, NewEvent, Scope, key
from holdfast.stores.sqlite.remove import STEP_EVENTS

from ..outcome import Outcome
from ..places import holding, open_at


def long_threads(kind: str, folder: Path) -> Outcome:
    """A deleted thread of exactly so many events as one step of the removal takes, the last of
    them large: nothing of it stays behind the fork."""
    outcome = Outcome()
    asyncio.run(_long_threads(kind, folder, outcome))
    return outcome


async def _long_threads(kind: str, folder: Path, outcome: Outcome) -> None:
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
    """What a fork of another tenant keeps of a deleted thread is in that tenant's receipt only."""
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
        outcome.counts["receipts"] += 1
    await store.aclose()
