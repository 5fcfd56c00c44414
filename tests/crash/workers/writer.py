"""Changes a store at random until it is killed, and says each operation before it begins and
once it is done. `writer URL PREFIX SEED`, then one line: a world per task."""

from __future__ import annotations

import asyncio
import random
import sys

import msgspec

from holdfast import Store, connect

from ..world import World, after, invent, perform
from .talk import hear, say


async def work(store: Store, world: World, prefix: str, rng: random.Random) -> None:
    number = 0
    while True:
        number += 1
        op = invent(rng, world, f"{prefix}.{number}")
        say(task=prefix, op=msgspec.to_builtins(op))
        token = await perform(store, world, op)
        say(task=prefix, done=number, token=token)
        world[op.session] = after(world, op)


async def main(url: str, prefix: str, seed: str) -> None:
    worlds = msgspec.convert(hear()["worlds"], list[World])
    rng = random.Random(seed)
    async with connect(url) as store:
        say(open=True)
        await asyncio.gather(
            *(work(store, world, f"{prefix}.{n}", rng) for n, world in enumerate(worlds))
        )


asyncio.run(main(*sys.argv[1:]))
