"""A process that serves the stage's agent. Told by lines `{"do": …}`; answers each with a line."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from holdfast import Harness
from holdfast.harness.host import sessions_of

from ...crash.workers.talk import hear, say
from .stage import AT, harness


class Hand:
    """What it can do."""

    serving: Harness

    async def open(self, url: str, folder: str, ttl: float) -> dict[str, Any]:
        self.serving = await harness(url, Path(folder), ttl).start()
        return {"owner": sessions_of(self.serving).config.owner}

    async def post(self, text: str) -> dict[str, Any]:
        session = await self.serving.get_or_create(AT.session)
        return {"seq": await session.post(text)}

    async def approve(self, actor: str) -> dict[str, Any]:
        decision = await self.serving.approve(AT.session, actor=actor)
        session = await self.serving.get_or_create(AT.session)
        return {"by": decision.by, "text": (await session.wait()).text}

    async def close(self) -> dict[str, Any]:
        """Say that it closes, and then that it has."""
        closing = asyncio.create_task(self.serving.aclose())
        for _ in range(100):  # until the drivers know
            await asyncio.sleep(0.001)
        say(closing=True)
        await closing
        return {"closed": True}


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
