"""One of several processes on a store. Told by lines `{"do": METHOD, …}`; answers each with a
line: what the method of `Hand` returned, or the error that it raised."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

from msgspec import Raw

from holdfast import CaughtUp, HeadMoved, HoldfastError, Lease, NewEvent, Snapshot, Store, connect
from holdfast.events import key

from ..crash.workers.talk import hear, say

Answer = dict[str, Any]


class Hand:
    """What a worker can do. It has one store open, and holds one lease at most."""

    store: Store
    lease: Lease
    head = 0  # the number of the last event that `drive` has read

    async def open(self, url: str) -> Answer:
        self.store = await connect(url)
        return {}

    async def close(self) -> Answer:
        await self.store.aclose()
        return {}

    async def arrive(self, url: str, name: str) -> Answer:
        """Open a store that may not be there yet; append to a log of its own and a shared one."""
        async with connect(url) as self.store:
            own = await self.append(name, f"{name}-own", create=True)
            shared = await self.append("shared", f"{name}-shared", create=True)
        return {"own": own["seq"], "shared": shared["seq"]}

    async def append(self, session: str, id: str, **rest: Any) -> Answer:
        event = NewEvent.of("note.made", {"by": id}, id=id)
        done = await self.store.append(key(session), [event], **rest)
        return {"seq": done.seqs[0], "fresh": done.fresh}

    async def fill(self, session: str, name: str, appends: int | None, seconds: float) -> Answer:
        """Append so often, or for so long; an error does not end it."""
        done: dict[str, int] = {}
        times: list[float] = []
        errors: list[str] = []
        end = time.monotonic() + seconds
        number = 0
        while time.monotonic() < end if appends is None else number < appends:
            number += 1
            began = time.perf_counter()
            try:
                answer = await self.append(session, f"{name}-{number}", create=True)
            except Exception as error:
                errors.append(f"{name}-{number}: {error!r}")
            else:
                done[f"{name}-{number}"] = answer["seq"]
            times.append(time.perf_counter() - began)
        return {"done": done, "times": times, "errors": errors}

    async def overlap(self, session: str, ids: list[str]) -> Answer:
        """Append events whose ids others append too, by ones and by threes."""
        done: dict[str, int] = {}
        fresh = 0
        while ids:
            batch, ids = ids[: 1 + 2 * (len(done) % 2)], ids[1 + 2 * (len(done) % 2) :]
            events = [NewEvent.of("note.made", {"by": id}, id=id) for id in batch]
            answer = await self.store.append(key(session), events, create=True)
            done.update(zip(batch, answer.seqs, strict=True))
            fresh += answer.fresh
        return {"done": done, "fresh": fresh}

    async def hold(self, session: str, owner: str, ttl: float) -> Answer:
        self.lease = await self.store.acquire(key(session), owner, ttl=ttl)
        return {"token": self.lease.token}

    async def write(self, what: str) -> Answer:
        """One write under the lease."""
        await self._writes()[what]()
        return {}

    def _writes(self) -> dict[str, Callable[[], Awaitable[object]]]:
        store, lease, at = self.store, self.lease, self.lease.key
        event = NewEvent.of("message.completed", {"text": "late"})
        message = NewEvent.of("message.received", {"text": "late"})
        settled = NewEvent.of("pending.settled", {"id": "p", "outcome": "approved"})
        state = Snapshot(log=lease.log, seq=1, version="v1", state=Raw(b'"late"'))
        return {
            "append": lambda: store.append(at, [event], fence=lease),
            "append a message": lambda: store.append(at, [message], fence=lease),
            "append an approval": lambda: store.append(at, [settled], fence=lease),
            "put_draft": lambda: store.put_draft(at, "m", 0, "late", fence=lease),
            "save_snapshot": lambda: store.save_snapshot(at, state, fence=lease),
            "erase": lambda: store.erase(at, [1], reason="late", fence=lease),
            "renew": lambda: store.renew(lease),
            "release": lambda: store.release(lease),
            "delete": lambda: store.delete(at, fence=lease),
        }

    async def send(self, session: str, id: str, delay: float) -> Answer:
        """A message from the side, at a moment of the leader's choice."""
        time.sleep(delay)  # noqa: ASYNC251 - exact, and nothing else runs here
        message = NewEvent.of("message.received", {"text": id}, id=id)
        done = await self.store.append(key(session), [message])
        return {"seq": done.seqs[0]}

    async def drive(self, session: str) -> Answer:
        """Handle every message that is there, and let go only when nothing came after it."""
        began = time.perf_counter()
        at = key(session)
        handled: list[str] = []
        moved: Counter[str] = Counter()
        lease = await self.store.acquire(at, "driver", ttl=600)
        await self.store.append(at, [NewEvent.of("run.started")], fence=lease)
        while True:
            async for event in self.store.read(at, after=self.head):
                self.head = event.seq
                if event.kind == "message.received":
                    handled.append(event.id)
            finish = NewEvent.of("run.finished", {"status": "done"})
            step = "finish"
            try:
                done = await self.store.append(at, [finish], expected=self.head, fence=lease)
                self.head = done.head
                step = "release"
                await self.store.release(lease, head=self.head)
            except HeadMoved as error:
                right = error.head > error.expected == self.head
                moved[step if right else f"{step} with {error!r}"] += 1
            else:
                took = time.perf_counter() - began
                return {"handled": handled, "moved": moved, "took": took}

    async def follow(self, session: str, after: int, until: int) -> Answer:
        """What a follower is given up to the event `until`, and how often it had caught up. Says
        so when it first has."""
        seen: list[tuple[int, str]] = []
        caught_up = 0
        async with aclosing(self.store.follow(key(session), after=after)) as following:
            async for item in following:
                if isinstance(item, CaughtUp):
                    caught_up += 1
                    say(head=item.head)
                    continue
                seen.append((item.seq, item.id))
                if item.seq >= until and caught_up:
                    break
        return {"seen": seen, "caught_up": caught_up}


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
