"""A process that is killed with SIGKILL while it writes loses nothing that was acknowledged and
leaves nothing half done."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import msgspec

from holdfast import Query, SessionNotFound, Store, connect, key

from .. import facts
from ..children import Child
from ..outcome import Outcome, Tick, quiet
from ..places import url
from ..world import Op, World, after, carry_on, settle, verified

TASKS = 3  # appends of several tasks share a transaction


def kills(kind: str, folder: Path, *, count: int, tick: Tick = quiet) -> Outcome:
    """Kill `count` writers at random moments, on one store.

    Every other time the watching process has the store open all along and reads on before it
    opens it once more; otherwise it opens the store afterwards.
    """
    return asyncio.run(_kills(url(kind, folder), count, tick))


async def _kills(place: str, count: int, tick: Tick) -> Outcome:
    outcome = Outcome()
    worlds: list[World] = [{} for _ in range(TASKS)]
    for number in range(count):
        tick(number, count)
        survivor = await connect(place) if number % 2 else None
        tokens: dict[str, int] = {}
        unsure = await asyncio.to_thread(_one, place, number, worlds, tokens, outcome)
        when = f"after kill {number}"
        if survivor is not None:
            await _read_on(survivor, outcome, when)
        async with connect(place) as store:
            await _judge(store, worlds, unsure, tokens, outcome, when)
        if survivor is not None:
            await survivor.aclose()
        outcome.counts["kills"] += 1
        if outcome.problems:
            break  # what follows would only repeat it
    outcome.expect(outcome.counts["acknowledged"], "no writer came to acknowledge anything")
    return outcome


def _one(
    place: str, number: int, worlds: list[World], tokens: dict[str, int], outcome: Outcome
) -> list[Op | None]:
    """Run a writer and kill it; returns what each task was about to do."""
    rng = random.Random()
    unsure: list[Op | None] = [None] * TASKS
    at_opening = rng.random() < 0.15
    wanted = rng.randrange(0, 40)
    with Child("writer", place, str(number), str(rng.random())) as child:
        child.tell({"worlds": msgspec.to_builtins(worlds, order="sorted")})
        if at_opening:
            time.sleep(rng.uniform(0.05, 0.3))
            child.kill()
        for line in child.lines():
            if "task" in line:
                _note(line, worlds, unsure, tokens, outcome)
            wanted -= "done" in line or "open" in line
            if wanted < 0 and not at_opening:
                at_opening = True
                time.sleep(rng.uniform(0, 0.01))
                child.kill()
        outcome.equal(child.process.wait(), -9, f"how writer {number} ended: {child.last_words()}")
    return unsure


def _note(
    line: dict[str, object],
    worlds: list[World],
    unsure: list[Op | None],
    tokens: dict[str, int],
    outcome: Outcome,
) -> None:
    task = int(str(line["task"]).partition(".")[2])
    if "op" in line:
        unsure[task] = msgspec.convert(line["op"], Op)
        return
    op = unsure[task]
    assert op is not None
    world = worlds[task]
    world[op.session] = after(world, op)
    unsure[task] = None
    outcome.counts["acknowledged"] += 1
    outcome.counts["events acknowledged"] += len(op.ids) if op.do != "erase" else 0
    if token := int(str(line["token"])):
        tokens[f"{op.session}/{op.thread}"] = token


async def _read_on(store: Store, outcome: Outcome, when: str) -> None:
    """Who had the store open reads on; what the dead one began may be finished meanwhile."""
    for row in (await store.find(Query(), limit=1_000)).items:
        try:
            events = [event async for event in store.read(row.key)]
        except SessionNotFound:
            continue
        broken = [event.seq for event in events if not facts.whole(event)]
        outcome.expect(not broken, f"{when}: a survivor reads {broken} of {row.key} not whole")


async def _judge(
    store: Store,
    worlds: list[World],
    unsure: list[Op | None],
    tokens: dict[str, int],
    outcome: Outcome,
    when: str,
) -> None:
    whole: World = {}
    for world in worlds:
        whole.update(world)
    open_ops = [op for op in unsure if op]
    # What the dead one had begun is finished, or taken back, by the next who writes: `verify`.
    await verified(store, outcome, when)
    await settle(store, whole, open_ops, outcome, when)
    if outcome.problems:
        return
    for name, session in whole.items():
        for thread in session.threads:
            lease = await store.acquire(key(name, thread), "watcher", steal="its driver is dead")
            known = tokens.get(f"{name}/{thread}", 0)
            outcome.expect(lease.token > known, f"{when}: lease {lease.token} after {known}")
            await store.release(lease)
    await carry_on(store, whole, when.replace(" ", "-"), outcome)
    for world, op in zip(worlds, unsure, strict=True):
        mine = set(world) | ({op.session} if op else set())
        world.clear()
        world.update({name: whole[name] for name in mine if name in whole})
