"""A request or a reply gets lost on the way: at each one that a call makes, in turn.

The call is carried out once, whether the server got it or not. Either it rides the loss out, or
it says `StoreUnavailable`, and the same call sent again does what the first should have done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from msgspec import Raw

from holdfast import Key, Query, Scope, Snapshot, Store, StoreUnavailable
from holdfast.events import key
from holdfast.testing.samples import begin, given, ids, note, notes, past, read_all, seqs
from tests import servers
from tests.servers.wire import Lost, Wire

T = TypeVar("T")
NEVER = 1_000_000


class Loss:
    """The loss of one request or reply during one call."""

    def __init__(self, store: Store, at: Key, wire: Wire, what: Lost, nth: int) -> None:
        self.store, self.at = store, at
        self._wire, self._what, self._nth = wire, what, nth
        self.met = False
        self.count = 0

    async def during(self, call: Callable[[], Awaitable[T]]) -> T:
        self._wire.lose(self._what, self._nth)
        try:
            return await call()
        except StoreUnavailable:
            pass
        finally:
            self.met = self._wire.lost
            self.count = self._wire.disarm()
        return await call()


async def append_to_nothing(loss: Loss) -> None:
    events = [note(1), note(2)]
    done = await loss.during(lambda: loss.store.append(loss.at, events, create=True))
    assert (done.seqs, done.head) == ((1, 2), 2)
    assert await ids(loss.store, loss.at) == notes(1, 2)


async def append(loss: Loss) -> None:
    log = await begin(loss.store, loss.at, 2)
    done = await loss.during(lambda: loss.store.append(loss.at, [note(2), note(3)], log=log))
    assert (done.seqs, done.head) == ((2, 3), 3)
    assert await ids(loss.store, loss.at) == notes(1, 2, 3)


async def append_as_the_driver(loss: Loss) -> None:
    await begin(loss.store, loss.at)
    lease = await loss.store.acquire(loss.at, "driver", ttl=600)
    done = await loss.during(lambda: loss.store.append(loss.at, [note(2)], expected=1, fence=lease))
    assert (done.seqs, done.head) == ((2,), 2)
    assert await ids(loss.store, loss.at) == notes(1, 2)


async def append_of_many(loss: Loss) -> None:
    await begin(loss.store, loss.at)
    events = [note(n) for n in range(2, 302)]
    done = await loss.during(lambda: loss.store.append(loss.at, events))
    assert done.seqs == tuple(range(2, 302))
    assert await ids(loss.store, loss.at) == notes(*range(1, 302))


async def acquire(loss: Loss) -> None:
    await begin(loss.store, loss.at)
    lease = await loss.during(lambda: loss.store.acquire(loss.at, "driver", ttl=600))
    await loss.store.append(loss.at, [note(2)], fence=lease)


async def steal(loss: Loss) -> None:
    await begin(loss.store, loss.at)
    old = await loss.store.acquire(loss.at, "other", ttl=600)
    new = await loss.during(
        lambda: loss.store.acquire(loss.at, "driver", ttl=600, steal="it hangs")
    )
    assert new.token > old.token
    await loss.store.append(loss.at, [note(2)], fence=new)


async def renew(loss: Loss) -> None:
    await begin(loss.store, loss.at)
    lease = await loss.store.acquire(loss.at, "driver", ttl=600)
    again = await loss.during(lambda: loss.store.renew(lease))
    assert again.token == lease.token
    await loss.store.append(loss.at, [note(2)], fence=again)


async def release(loss: Loss) -> None:
    await begin(loss.store, loss.at)
    lease = await loss.store.acquire(loss.at, "driver", ttl=600)
    await loss.during(lambda: loss.store.release(lease, head=1))
    assert (await loss.store.acquire(loss.at, "next", ttl=600)).token > lease.token


async def claim(loss: Loss) -> None:
    name = f"name of {loss.at.session}"
    mine, other = loss.at.scope, Scope(loss.at.tenant, "other")
    assert await loss.during(lambda: loss.store.claim(loss.at.tenant, name, mine)) == mine
    assert await loss.store.claim(loss.at.tenant, name, other) == mine


async def take_over_a_claim(loss: Loss) -> None:
    name = f"name of {loss.at.session}"
    mine, other = loss.at.scope, Scope(loss.at.tenant, "other")
    await loss.store.claim(loss.at.tenant, name, other)
    took = loss.during(lambda: loss.store.claim(loss.at.tenant, name, mine, instead_of=other))
    assert await took == mine


async def unclaim(loss: Loss) -> None:
    name = f"name of {loss.at.session}"
    mine, other = loss.at.scope, Scope(loss.at.tenant, "other")
    await loss.store.claim(loss.at.tenant, name, mine)
    await loss.during(lambda: loss.store.unclaim(loss.at.tenant, name, mine))
    assert await loss.store.claim(loss.at.tenant, name, other) == other


async def fork(loss: Loss) -> None:
    await begin(loss.store, loss.at, 3)
    await loss.during(lambda: loss.store.fork(loss.at, "side", at=2, first=note("x")))
    side = key(loss.at.session, "side")
    assert await ids(loss.store, side) == notes(1, 2, "x")


async def restore(loss: Loss) -> None:
    events = [past(n) for n in range(1, 4)]
    await loss.during(lambda: loss.store.restore(loss.at, given(events)))
    assert await read_all(loss.store, loss.at) == events


async def erase(loss: Loss) -> None:
    await begin(loss.store, loss.at, 3)
    await loss.during(lambda: loss.store.erase(loss.at, [2], reason="asked"))
    kept = [event.json() for event in await read_all(loss.store, loss.at)]
    assert kept == [{"n": 1}, {"erased": "asked"}, {"n": 3}]


async def delete(loss: Loss) -> None:
    await begin(loss.store, loss.at, 3)
    await loss.during(lambda: loss.store.delete(loss.at.scope))
    assert await loss.store.row(loss.at) is None
    again = await loss.store.append(loss.at, [note(1)], create=True)
    assert again.seqs == (1,)


async def put_draft(loss: Loss) -> None:
    await begin(loss.store, loss.at)
    lease = await loss.store.acquire(loss.at, "driver", ttl=600)
    await loss.store.put_draft(loss.at, "m", 0, "Hel", fence=lease)
    await loss.during(lambda: loss.store.put_draft(loss.at, "m", 3, "lo", fence=lease))
    assert [draft.text for draft in await loss.store.drafts(loss.at)] == ["Hello"]


async def put_blob(loss: Loss) -> None:
    await begin(loss.store, loss.at)
    data = loss.at.session.encode() * 1000
    ref = await loss.during(lambda: loss.store.put_blob(loss.at.scope, data))
    assert await loss.store.get_blob(loss.at.scope, ref) == data


async def save_snapshot(loss: Loss) -> None:
    log = await begin(loss.store, loss.at)
    lease = await loss.store.acquire(loss.at, "driver", ttl=600)
    state = Snapshot(log=log, seq=1, version="v1", state=Raw(b'{"x":1}'))
    await loss.during(lambda: loss.store.save_snapshot(loss.at, state, fence=lease))
    assert await loss.store.load_snapshot(loss.at, "v1") == state


async def read(loss: Loss) -> None:
    await begin(loss.store, loss.at, 3)
    assert await loss.during(lambda: seqs(loss.store, loss.at)) == [1, 2, 3]


async def row_and_find(loss: Loss) -> None:
    await begin(loss.store, loss.at)

    async def look() -> tuple[Any, Any]:
        query = Query(tenant=loss.at.tenant, session=loss.at.session)
        return await loss.store.row(loss.at), await loss.store.find(query)

    row, page = await loss.during(look)
    assert list(page.items) == [row]


async def verify(loss: Loss) -> None:
    await begin(loss.store, loss.at, 3)

    async def look() -> list[Any]:
        return [damage async for damage in loss.store.verify(loss.at)]

    assert await loss.during(look) == []


CALLS = [
    append_to_nothing,
    append,
    append_as_the_driver,
    append_of_many,
    acquire,
    steal,
    renew,
    release,
    claim,
    take_over_a_claim,
    unclaim,
    fork,
    restore,
    erase,
    delete,
    put_draft,
    put_blob,
    save_snapshot,
    read,
    row_and_find,
    verify,
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
async def test_a_call_is_carried_out_once(
    call: Callable[[Loss], Awaitable[None]], place: servers.Faulty, store: Store
) -> None:
    place.wire.cut()
    counted = Loss(store, key("counted"), place.wire, "reply", NEVER)
    await call(counted)
    # A request that is lost leaves what the loss of the reply before it leaves: one will do.
    losses: list[tuple[Lost, int]] = [("request", 1)]
    losses += [("reply", nth) for nth in some_of(counted.count)]
    met = 0
    for what, nth in losses:
        loss = Loss(store, key(f"{what} {nth}"), place.wire, what, nth)
        await call(loss)
        met += loss.met
    assert met > 1  # else nothing was shown


def some_of(count: int) -> list[int]:
    """All of a few; of many the first, the last, and every third between."""
    ends = {*range(1, 5), *range(count - 3, count + 1), *range(1, count, 3)}
    return sorted(nth for nth in ends if 1 <= nth <= count)
