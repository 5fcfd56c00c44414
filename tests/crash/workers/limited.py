"""Changes a store while no file may grow past a random size, so that writes fail in the middle
(EFBIG, as ENOSPC would), then without the limit. `limited KIND FOLDER SEED COUNT`."""

from __future__ import annotations

import asyncio
import copy
import random
import resource
import sys
from pathlib import Path

from holdfast import HoldfastError, Store, StoreUnavailable

from ..outcome import Outcome
from ..places import open_at
from ..world import Op, World, after, carry_on, invent, perform, settle, verified
from .talk import hear, say

FREE = resource.RLIM_INFINITY


def limit(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, FREE))


def largest(folder: Path) -> int:
    return max((path.stat().st_size for path in folder.rglob("*") if path.is_file()), default=0)


async def open_limited(kind: str, folder: Path, rng: random.Random, outcome: Outcome) -> Store:
    """Try to open a fresh store in ever less narrow limits; each refusal is a typed one."""
    size = 0
    while True:
        limit(size)
        try:
            store = await open_at(kind, folder)
        except StoreUnavailable:
            outcome.counts["openings refused"] += 1
        except Exception as error:
            outcome.problems.append(f"opening within {size} bytes: {error!r}")
        else:
            limit(FREE)
            return store
        limit(FREE)
        size += rng.choice([1, 10, 100, 1_000, 10_000, 100_000])
        if size > 10_000_000:
            outcome.problems.append("it does not open any more")
            return await open_at(kind, folder)


async def attempt(store: Store, world: World, op: Op, size: int, outcome: Outcome) -> bool:
    """Whether the operation went through within the limit."""
    limit(size)
    try:
        await perform(store, world, op)
        return True
    except StoreUnavailable as error:
        outcome.counts["refused"] += 1
        outcome.expect(error.retryable and error.__cause__, f"{op.do}: {error!r} has no cause")
    except HoldfastError as error:
        outcome.problems.append(f"{op.do} within {size} bytes: {error!r}")
    finally:
        limit(FREE)
    return False


async def main(kind: str, folder: str, seed: str, count: str) -> None:
    outcome = Outcome()
    rng = random.Random(seed)
    place = Path(folder)
    world: World = {}
    store = await open_limited(kind, place, rng, outcome)
    for number in range(int(count)):
        op = invent(rng, world, str(number))
        size = rng.randrange(0, largest(place) + 300_000)
        went = await attempt(store, world, op, size, outcome)
        when = f"{op.do} {number} {'through' if went else 'refused'} within {size} bytes"
        if went:
            world[op.session] = after(world, op)
        # A refused append, above all, has left nothing; a delete may have hidden what it was to
        # remove. Then the same call works.
        unsure = [] if went or op.do not in ("delete", "delete thread") else [op]
        was = copy.deepcopy(world)
        await settle(store, world, unsure, outcome, when)
        if not went and op.session in (world or was) and world == was:
            await perform(store, world, op)
            world[op.session] = after(world, op)
            await settle(store, world, [], outcome, f"{when}, then again")
        outcome.counts["operations"] += 1
        if outcome.problems:
            break
    await verified(store, outcome, "afterwards")
    if not outcome.problems:
        await carry_on(store, world, "on", outcome)
    await store.aclose()
    say(counts=dict(outcome.counts), problems=outcome.problems)
    hear()


asyncio.run(main(*sys.argv[1:]))
