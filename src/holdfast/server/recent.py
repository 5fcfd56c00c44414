"""A dictionary of limited size."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class RecentMap(OrderedDict[K, V]):
    """A dictionary of at most `room` entries. The entry that was set longest ago is removed
    first."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._limit = room

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._limit:
            self.popitem(last=False)
