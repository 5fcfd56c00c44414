"""Encodes lists that grow: as the items that follow those of an earlier version. Pure.

The code of a list is either `items`, the codes of all items, or `tail`, the codes of the new items.
The code of a message is the number of its native event. A tail also has `base`, the number of the
event with the earlier version, and `keep`, the number of items that it shares with that version;
`since`, the number of the event with the newest version that has all items; and `weight`, the size
in bytes of that version and of the tails after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

import msgspec
from msgspec import Struct

from .values import Code, Codec

RECENT = 16  # items at the end of a list that are compared by content, not only by identity
LIGHT = 256  # bytes of tails that are allowed even for a shorter list

ItemCode = Code | int
Encode = Callable[[Any, Code], ItemCode]


class Listed(Struct):
    """A version of a list, in memory. `seq` is the number of the event that has it; `recent` has
    the codes of the newest items, with messages in full. `since`, `whole` and `tails` are the
    fields `since` and `weight` of its tail."""

    seq: int
    items: list[Any]
    codes: list[ItemCode]
    recent: list[Code]
    since: int
    whole: int
    tails: int

    def written(self, seq: int) -> None:
        """Set the number of the event in which this version was stored."""
        self.seq = seq
        self.since = self.since or seq


def common(last: Listed, value: Sequence[Any], codec: Codec) -> int:
    """Return the number of items, counted from the beginning, that a list shares with its last
    version."""
    most = min(len(last.items), len(value))
    checked = max(0, len(last.items) - len(last.recent))
    if not all(map(is_, value[:checked], last.items)):
        for index, (item, old) in enumerate(zip(value[:checked], last.items, strict=False)):
            if item is not old and codec.encode(item) != codec.encode(old):
                return index
    for index in range(min(most, checked), most):
        if not codec.is_code_of(last.recent[index - checked], value[index]):
            return index
    return most


def encode_list(
    value: list[Any], last: Listed | None, codec: Codec, encode: Encode
) -> tuple[Code, Listed]:
    """Return the code of a list, and the list as its new version. `encode` takes an item and its
    code in which messages are not shortened, and returns the code to store."""
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
