"""One of several processes that use the same sessions; what it is told, and how it answers, is as
in `tests.processes.worker`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from holdfast import HoldfastError, Inbound, Row, Sessions, Store
from holdfast.store import wall_clock

from ..crash.workers.talk import hear, say
from .places import OPEN

Answer = dict[str, Any]


class Hand:
    """What a worker can do. The clock that it and its store go by is `later` ms ahead of ours."""

    store: Store
    later = 0

    def clock(self) -> int:
        return wall_clock() + self.later

    def sessions(self, tenant: str) -> Sessions:
        return Sessions(self.store, tenant=tenant, clock=self.clock)

    async def open(self, kind: str, place: str) -> Answer:
        self.store = await OPEN[kind](place, self.clock)
        return {}

    async def shift(self, later: int) -> Answer:
        self.later = later
        return {}

    async def close(self) -> Answer:
        await self.store.aclose()
        return {}

    async def bind(
        self, tenant: str, session: str, name: str, attaches: int, updates: int
    ) -> Answer:
        """Attach surfaces and set metadata of a name of its own, all at once."""
        sessions = self.sessions(tenant)
        await asyncio.gather(
            *(sessions.attach_surface(session, name, f"{n}") for n in range(attaches)),
            *(sessions.update_metadata(session, {f"{name}-{n}": n}) for n in range(updates)),
        )
        return {}

    async def resolve(self, tenant: str, messages: list[Answer]) -> Answer:
        """The sessions of some messages, asked for all at once."""
        sessions = self.sessions(tenant)
        asked = (sessions.resolve_session(Inbound(**message)) for message in messages)
        return {"sessions": [row.session for row in await asyncio.gather(*asked)]}

    async def do_one(self, verb: str, tenant: str, arguments: list[Any], delay: float) -> Answer:
        """One call, at a moment of the leader's choice: the phase that it returned."""
        time.sleep(delay)  # noqa: ASYNC251 - exact, and nothing else runs here
        row: Row = await getattr(self.sessions(tenant), verb)(*arguments)
        return {"phase": row.phase}

    async def sweep(self, tenant: str) -> Answer:
        swept = await self.sessions(tenant).sweep_stale()
        return {"suspended": swept.suspended, "skipped": swept.skipped}


async def main() -> None:
    hand = Hand()
    say(ready=True)
    while True:
        order = hear()
        try:
            answer = await getattr(hand, order.pop("do"))(**order)
        except HoldfastError as error:
            say(error=error.code, text=f"{error!r} from {error.__cause__!r}", fields=error.fields)
        except Exception as error:
            say(error="other", text=repr(error), fields={})
        else:
            say(**answer)


if __name__ == "__main__":
    asyncio.run(main())
