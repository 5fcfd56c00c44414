"""Tests for the guarantees of an adapter, independent of the SDK that it supports."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ..errors import StoreUnavailable
from ..stores.port import Store
from .faults import Fail, FaultyStore


def nested(depth: int) -> Any:
    """Return a value with this many levels of nested lists and objects."""
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"in": value}
    return value


ODD: dict[str, Any] = {
    "lone surrogate": "cut \ud83d here",
    "NUL": "a\0b",
    "separators": "a\u2028b\x85c\r\n",
    "large integers": [2**53 + 1, 2**64, -(2**80)],
    "floats": [0.1, 1e300, -0.0, 5e-324],
    "deep": nested(300),
    "empty": {"": "", "none": None, "list": [], "object": {}},
    "erased": {"erased": "not really"},
    "text": "emoji 🙂, e\u0301, עברית",
}


class AdapterContract:
    """Tests for the guarantees of every adapter. Subclass this class with a name that begins with
    `Test`, implement the five methods below, and provide a fixture `store` with an open, empty
    store. Every test then runs against your adapter.

    See [writing a store](../writing-a-store.md) and [simulation](../simulation.md).
    """

    def open(self, store: Store, session: str) -> Any:
        """Return the adapter's object for a conversation."""
        raise NotImplementedError

    def item(self, value: Any) -> Any:
        """Return an item of the SDK that contains this JSON value."""
        raise NotImplementedError

    async def add(self, conversation: Any, items: list[Any]) -> None:
        raise NotImplementedError

    async def items(self, conversation: Any, limit: int | None = None) -> list[Any]:
        """Return all items, or the newest ones, oldest first."""
        raise NotImplementedError

    async def pop(self, conversation: Any) -> Any:
        """Remove the newest item and return it. Returns None if there is no item."""
        raise NotImplementedError

    async def clear(self, conversation: Any) -> None:
        raise NotImplementedError

    def some(self, count: int, name: str = "item") -> list[Any]:
        return [self.item(f"{name} {number}") for number in range(count)]

    async def test_unknown_conversation_is_empty(self, store: Store) -> None:
        unknown = self.open(store, "unknown")
        assert await self.items(unknown) == []
        assert await self.items(unknown, 3) == []
        assert await self.pop(unknown) is None
        await self.clear(unknown)
        await self.add(unknown, [])
        assert await self.items(unknown) == []

    @pytest.mark.parametrize("name", ODD)
    async def test_odd_values_come_back_equal(self, store: Store, name: str) -> None:
        given = [self.item("before"), self.item(ODD[name]), self.item("after")]
        await self.add(self.open(store, "odd"), given)
        assert await self.items(self.open(store, "odd")) == given
        assert await self.items(self.open(store, "odd"), 2) == given[1:]

    async def test_equal_items_are_all_kept(self, store: Store) -> None:
        one = self.open(store, "equal")
        await self.add(one, self.some(1) * 3)
        await self.add(one, self.some(1))
        assert await self.items(one) == self.some(1) * 4

    async def test_limit_returns_the_newest_in_order(self, store: Store) -> None:
        one, given = self.open(store, "limit"), self.some(7)
        for item in given:
            await self.add(one, [item])
        for limit in range(1, 9):
            assert await self.items(one, limit) == given[-limit:]

    async def test_pop_and_clear_work_at_every_point(self, store: Store) -> None:
        for size in range(5):
            one, given = self.open(store, f"pops {size}"), self.some(size)
            await self.add(one, given)
            for left in reversed(range(size)):
                assert await self.pop(one) == given[left]
                assert await self.items(one) == given[:left]
                assert await self.items(one, 2) == given[:left][-2:]
            assert await self.pop(one) is None
            await self.add(one, self.some(size, "again"))
            assert await self.items(one) == self.some(size, "again")
            await self.clear(one)
            assert await self.items(one) == [] == await self.items(one, 5)
            await self.add(one, self.some(2, "last"))
            assert await self.pop(one) == self.some(2, "last")[1]
            assert await self.items(self.open(store, f"pops {size}")) == self.some(1, "last")

    async def test_two_writers_lose_nothing_and_keep_batches_whole(self, store: Store) -> None:
        async def write(name: str) -> None:
            one = self.open(store, "two")
            for number in range(8):
                await self.add(one, self.some(3, f"{name} {number}"))

        await asyncio.gather(write("a"), write("b"))
        found = await self.items(self.open(store, "two"))
        batches = [found[start : start + 3] for start in range(0, len(found), 3)]
        for name in "ab":
            mine = [self.some(3, f"{name} {number}") for number in range(8)]
            assert [batch for batch in batches if batch in mine] == mine
        assert len(batches) == 16

    async def test_item_is_popped_once(self, store: Store) -> None:
        await self.add(self.open(store, "pop"), self.some(6))
        both = [self.open(store, "pop"), self.open(store, "pop")]
        popped = await asyncio.gather(*(self.pop(both[n % 2]) for n in range(6)))
        assert sorted(map(repr, popped)) == sorted(map(repr, self.some(6)))
        assert await self.pop(both[0]) is None

    async def test_sessions_do_not_mix(self, store: Store) -> None:
        async def turns(name: str) -> None:
            one = self.open(store, name)
            for number in range(4):
                await self.add(one, self.some(2, f"{name} {number}"))
            await self.pop(one)

        names = [f"{n}/x" for n in range(6)] + ["a:b", "a", "a%2Fb"]
        await asyncio.gather(*map(turns, names))
        for name in names:
            expected = [item for n in range(4) for item in self.some(2, f"{name} {n}")]
            assert await self.items(self.open(store, name)) == expected[:-1]

    @pytest.mark.parametrize("after", [True, False])
    async def test_lost_reply_changes_nothing(self, store: Store, after: bool) -> None:
        for call in (1, 2, 3):
            faulty = FaultyStore(store, [Fail(method="append", call=call, after=after)])
            one = self.open(faulty, f"lost {call} {after}")
            await self.add(one, self.some(2))
            await self.add(one, self.some(2, "second"))
            assert await self.pop(one) == self.some(2, "second")[1]
            assert await self.items(one) == [*self.some(2), self.some(1, "second")[0]]

    @pytest.mark.parametrize("after", [True, False])
    async def test_batch_that_the_caller_repeats_is_stored_once(
        self, store: Store, after: bool
    ) -> None:
        faulty = FaultyStore(store)
        one = self.open(faulty, "repeated")
        await self.add(one, self.some(1))
        start = faulty.calls["append"]
        faulty.plan[:] = [
            Fail(method="append", call=start + call, after=after) for call in range(1, 4)
        ]
        with pytest.raises(StoreUnavailable):
            await self.add(one, self.some(2, "again"))
        await self.add(one, self.some(2, "again"))
        assert await self.items(one) == [*self.some(1), *self.some(2, "again")]

    async def test_many_items_are_kept_in_order(self, store: Store) -> None:
        one, given = self.open(store, "many"), self.some(1_500)
        await self.add(one, given)
        assert await self.items(one) == given
        assert await self.items(one, 3) == given[-3:]
