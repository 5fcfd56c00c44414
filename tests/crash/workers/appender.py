"""Appends to sessions that others append to as well, and says what was acknowledged, until its
input ends. `appender URL NAME SEED`. It opens the store again and again, and what may be sent
again, as its refusal says, is."""

from __future__ import annotations

import asyncio
import random
import sys
import threading

from holdfast import NewEvent, Store, StoreUnavailable, connect, key

from .talk import say

TASKS = 3
SHARED = 4  # sessions that all processes append to


async def append(store: Store, name: str, rng: random.Random) -> None:
    session = f"shared-{rng.randrange(SHARED)}" if rng.random() < 0.95 else f"own-{name}"
    ids = [f"{name}-{n}" for n in range(rng.choice([1, 1, 3, 10]))]
    text = "x" * rng.choice([20, 2_000])
    events = [NewEvent.of("note.made", {"text": text}, id=id) for id in ids]
    while True:
        try:
            await store.append(key(session), events, create=True)
            break
        except StoreUnavailable as error:
            say(refused=str(error))
    say(session=session, ids=ids)


def wait_for_the_end(ended: threading.Event) -> None:
    sys.stdin.readline()
    ended.set()


async def main(url: str, name: str, seed: str) -> None:
    ended = threading.Event()
    threading.Thread(target=wait_for_the_end, args=(ended,), daemon=True).start()
    rng = random.Random(seed)
    opens = 0
    while not ended.is_set():
        opens += 1
        async with connect(url) as store:
            for number in range(rng.choice([3, 30, 100])):
                if ended.is_set():
                    break
                names = [f"{name}.{opens}.{number}.{task}" for task in range(TASKS)]
                await asyncio.gather(*(append(store, one, rng) for one in names))


asyncio.run(main(*sys.argv[1:]))
