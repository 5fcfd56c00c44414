"""One of several processes that use a store while the ways to it break. Told and heard by lines,
like the workers of `tests.processes`; a call that fails is sent again, as a user would."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import aclosing

from holdfast import CaughtUp, NewEvent, Store, StoreUnavailable, connect
from holdfast.events import key

from ..crash.workers.talk import hear, say
from ..processes.worker import Answer

LAST = "the last event"  # its id
PATIENCE = 120.0  # seconds until a write that is sent again and again counts as lost


class Hand:
    """What a worker can do."""

    store: Store

    async def open(self, url: str) -> Answer:
        self.store = await connect(url)
        return {}

    async def close(self) -> Answer:
        await self.store.aclose()
        return {}

    async def storm(self, name: str, sessions: list[str], seconds: float) -> Answer:
        """Append to all these sessions at once, for so long, each event until it is told."""
        end = time.monotonic() + seconds
        counts: Counter[str] = Counter()
        fills = [self._fill(session, name, end, counts) for session in sessions]
        done = dict(zip(sessions, await asyncio.gather(*fills), strict=True))
        return {"done": done, "counts": counts}

    async def _fill(
        self, session: str, name: str, end: float, counts: Counter[str]
    ) -> dict[str, int]:
        done: dict[str, int] = {}
        while time.monotonic() < end:
            id = f"{name}-{session}-{len(done)}"
            done[id] = await self._append(session, id, counts)
        return done

    async def _append(self, session: str, id: str, counts: Counter[str]) -> int:
        end = time.monotonic() + PATIENCE
        event = NewEvent.of("note.made", {"by": id}, id=id)
        while True:
            counts["calls"] += 1
            try:
                answer = await self.store.append(key(session), [event], create=True)
            except StoreUnavailable:
                counts["calls that said unavailable"] += 1
                if time.monotonic() > end:
                    raise
            else:
                return answer.seqs[0]

    async def follow(self, session: str) -> Answer:
        """What a follower is given up to the last event; says when it has caught up first."""
        seen: list[tuple[int, str]] = []
        caught_up = 0
        async with aclosing(self.store.follow(key(session))) as following:
            async for item in following:
                if isinstance(item, CaughtUp):
                    caught_up += 1
                    say(head=item.head)
                    continue
                seen.append((item.seq, item.id))
                if item.id == LAST:
                    break
        return {"seen": seen, "caught_up": caught_up}


async def main() -> None:
    hand = Hand()
    say(ready=True)
    while True:
        order = hear()
        try:
            answer = await getattr(hand, order.pop("do"))(**order)
        except Exception as error:
            say(error=type(error).__name__, text=f"{error!r} from {error.__cause__!r}")
        else:
            say(**answer)


if __name__ == "__main__":
    asyncio.run(main())
