"""Lists that grow: a version of a list as its tail over an earlier version. Pure.

The code of a list has the codes of its items. An item that is a number is a message: the number of
its native event. A tail also has `base`, the event with the earlier version, and `keep`, the number
of items that it shares with that; `since` is the event with the newest version that is whole, and
`weight` the bytes of that version and of the tails after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

import msgspec
from msgspec import Struct

from .values import Code, Codec

RECENT = 16  # items at the end of a list that are compared by content, not only by identity
LIGHT = 256  # bytes of tails that do not yet outweigh a list

ItemCode = Code | int
Encode = Callable[[Any, Code], ItemCode]


class Listed(Struct):
    """A version of a list: the event that has it, its items, their codes, and the inline codes of
    the newest ones."""

    seq: int
    items: list[Any]
    codes: list[ItemCode]
    recent: list[Code]
    since: int
    whole: int
    tails: int

    def written(self, seq: int) -> None:
        """Take note of the event that has this version."""
        self.seq = seq
        self.since = self.since or seq


def common(last: Listed, value: Sequence[Any], codec: Codec) -> int:
    """Return how many items at the beginning of a list are those of its last version."""
    most = min(len(last.items), len(value))
    checked = max(0, len(last.items) - len(last.recent))
    same = list(map(is_, value[:checked], last.items))
    index = 0
    while not all(same[index:]):
        index = same.index(False, index)
        if codec.encode(value[index]) != codec.encode(last.items[index]):
            return index
        index += 1
    for index in range(min(most, checked), most):
        if codec.encode(value[index]) != last.recent[index - checked]:
            return index
    return most


def encode_list(
    value: list[Any], last: Listed | None, codec: Codec, encode: Encode
) -> tuple[Code, Listed]:
    """Return the code of a list, and the version that it makes. `encode` returns the code of an
    item from its inline code."""
    keep = 0 if last is None else common(last, value, codec)
    inline = [codec.encode(item) for item in value[keep:]]
    tail = [encode(item, code) for item, code in zip(value[keep:], inline, strict=True)]
    codes = [*(last.codes[:keep] if last else ()), *tail]
    recent = [*_recent(last, keep), *inline][-RECENT:]
    added = len(msgspec.json.encode(tail)) + LIGHT // 4
    if last is not None and keep and last.tails + added <= max(last.whole, LIGHT):
        made = Listed(0, [*value], codes, recent, last.since, last.whole, last.tails + added)
        weight = [made.whole, made.tails]
        code = {"base": last.seq, "keep": keep, "since": last.since, "weight": weight}
        return {"tail": {**code, "items": tail}}, made
    size = len(msgspec.json.encode(codes))
    return {"items": codes}, Listed(0, [*value], codes, recent, 0, size, 0)


def _recent(last: Listed | None, keep: int) -> list[Code]:
    if last is None:
        return []
    first = len(last.items) - len(last.recent)
    return last.recent[: max(0, keep - first)]
