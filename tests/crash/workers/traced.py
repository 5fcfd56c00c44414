"""Changes a store, one operation after the other, and says each before it begins and once it is
done; for a trace. `traced URL SEED COUNT`."""

from __future__ import annotations

import asyncio
import random
import sys

import msgspec

from holdfast import connect

from ..world import World, after, invent, perform
from .talk import say


async def main(url: str, seed: str, count: str) -> None:
    world: World = {}
    rng = random.Random(seed)
    async with connect(url) as store:
        for number in range(int(count)):
            op = invent(rng, world, str(number), lasting=True)
            say(op=msgspec.to_builtins(op))
            await perform(store, world, op)
            say(done=number)
            world[op.session] = after(world, op)


asyncio.run(main(*sys.argv[1:]))
