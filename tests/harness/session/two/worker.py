"""A process that serves the scene's agent. Told by lines `{"do": …}`; answers each with a line."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import msgspec

from holdfast import Harness, HoldfastError
from holdfast.harness.session.session import Session, core_of

from ....crash.workers.talk import hear, say
from ..crash.witness import view
from .scene import VERBS, harness

Answer = dict[str, Any]


class Hand:
    """What it can do."""

    serving: Harness
    session: Session
    gate: Path

    async def open(self, url: str, folder: str, session: str) -> Answer:
        """Serve this session from now on, and no other."""
        self.gate = Path(folder) / "gate"
        self.serving = await harness(url, self.gate).start()
        self.session = await self.serving.get_or_create(session)
        return {}

    async def close(self) -> Answer:
        await self.serving.aclose(grace=0.0)
        return {}

    async def verb(self, name: str, n: int) -> Answer:
        """Do one thing; what is refused is told by its code."""
        try:
            return await VERBS[name](self.session, n)
        except HoldfastError as error:
            return {"refused": error.code}

    async def many(self, seed: int, verbs: int) -> Answer:
        """Do so many things by chance, as they come."""
        chance, told = random.Random(seed), []
        for _ in range(verbs):
            told.append(await self.verb(chance.choice([*VERBS, "post"]), chance.randrange(1 << 40)))
            for _ in range(chance.randrange(8)):
                await asyncio.sleep(0)
        return {"told": told}

    async def look(self, head: int) -> Answer:
        """What it shows, once event `head` is here."""
        await core_of(self.session).live.reach(head)
        return {"view": await view(self.session), "head": core_of(self.session).live.state.head}

    async def log(self) -> Answer:
        """The whole log, read from the store."""
        live = core_of(self.session).live
        events = [event async for event in live.store.read(live.key)]
        return {"events": msgspec.json.encode(events).decode()}

    async def shared(self, fork: str) -> Answer:
        """The ids of what a fork has in common with this thread."""
        other = await self.session.thread.switch(fork)
        return {"ids": [event.id for event in await other.events()]}

    async def waits(self) -> Answer:
        """Come to rest, or to something that a person must answer."""
        await core_of(self.session).catch_up()
        return {"status": (await self.session.wait()).status}


async def main() -> None:
    hand = Hand()
    say(ready=True)
    while True:
        told = await asyncio.to_thread(hear)
        try:
            said = await getattr(hand, told.pop("do"))(**told)
        except Exception as error:
            say(error=repr(error))
        else:
            say(**said)


if __name__ == "__main__":
    asyncio.run(main())
