"""What a follower makes of what it is told, whatever the order: each event once, none left out."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from holdfast.events import Event
from holdfast.stores.notify import MOST_BYTES, MOST_EVENTS, Follower
from holdfast.testing.samples import past

LOG = "log"


def events(first: int, last: int) -> list[Event]:
    return [past(seq) for seq in range(first, last + 1)]


async def step(follower: Follower, truth: list[Event]) -> list[int]:
    """What a wake comes to, where `truth` is what the store has."""
    told = await asyncio.wait_for(follower.woken(), 10)
    if told is None:
        told = [event for event in truth if event.seq > follower.after]
    for event in told:
        follower.after = event.seq
    return [event.seq for event in told]


async def test_what_is_told_in_order_is_not_looked_up() -> None:
    follower = Follower(LOG, 2)
    assert await follower.woken() is None
    follower.tell(LOG, events(3, 4))
    follower.tell(LOG, events(5, 5))
    assert [event.seq for event in await follower.woken() or ()] == [3, 4, 5]


async def test_a_gap_another_incarnation_and_too_much_are_looked_up() -> None:
    for log, told in (
        (LOG, events(4, 5)),
        ("another", events(3, 3)),
        (LOG, events(3, MOST_EVENTS + 3)),
        (LOG, [past(3, payload="x" * MOST_BYTES)]),
    ):
        follower = Follower(LOG, 2)
        await follower.woken()
        follower.tell(log, told)
        assert await follower.woken() is None


async def test_news_of_what_is_known_wakes_nobody() -> None:
    follower = Follower(LOG, 2)
    await follower.woken()
    follower.tell(LOG, events(3, 4))
    follower.wake(4)
    assert [event.seq for event in await follower.woken() or ()] == [3, 4]
    follower.after = 4
    follower.wake(4)
    follower.tell(LOG, events(5, 5))
    assert [event.seq for event in await follower.woken() or ()] == [5]
    follower.wake(6)
    assert await follower.woken() is None


@given(data=st.data())
async def test_each_event_comes_once_and_in_order(data: st.DataObject) -> None:
    truth = events(1, data.draw(st.integers(1, 12), "appended"))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(truth)), max_size=5), "cuts"))
    batches = [truth[a:b] for a, b in zip([0, *cuts], [*cuts, len(truth)], strict=True) if a < b]
    told = data.draw(st.permutations(batches), "order")
    follower, seen = Follower(LOG, 0), []
    seen += await step(follower, [])
    there: list[Event] = []
    for batch in told:
        there = sorted([*there, *batch], key=lambda event: event.seq)
        dense = [event for n, event in enumerate(there, 1) if event.seq == n]
        ours = data.draw(st.booleans(), "ours")
        follower.tell(LOG, batch) if ours else follower.wake(batch[-1].seq)
        if data.draw(st.booleans(), "taken"):
            seen += await step(follower, dense)
    follower.wake()
    seen += await step(follower, truth)
    assert seen == [event.seq for event in truth]
