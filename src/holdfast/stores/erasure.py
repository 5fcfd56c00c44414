"""Checks of the events that a caller wants to erase, shared by all stores. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import InvalidValue
from ..log.catalog import Row
from ..log.codec import check_count
from ..log.conversation import REWOUND
from .hash_chain import is_erased
from .port import Lease
from .rules import LeaseState, check_fence


def check_erase(row: Row, lease: LeaseState, seqs: Sequence[int], fence: Lease | None) -> list[int]:
    """Check the arguments of an erase. Returns the event numbers in order, without duplicates.
    Raises `InvalidValue` for a number that the log does not have."""
    for seq in seqs:
        check_count("seqs", seq, least=1, most=row.head)
    if fence is not None:
        check_fence(row, lease, fence)
    return sorted(set(seqs))


def check_erasable(events: Iterable[tuple[int, str, bytes | None]]) -> None:
    """Raise `InvalidValue` if one of the events (number, kind, stored link) is a rewind: if it were
    erased, the messages that it removed would reappear. A rewind whose data was already erased by a
    repair is accepted."""
    for seq, kind, kept in events:
        if kind == REWOUND and not is_erased(kept):
            raise InvalidValue(
                field="seqs",
                problem=f"event {seq} is a rewind, which cannot be erased",
                remedy="erase the messages instead; a rewind does not contain their text",
            )
