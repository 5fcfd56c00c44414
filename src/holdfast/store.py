"""The `Store` protocol that every store implements, and the types of its arguments and results."""

from .environment import wall_clock
from .stores.port import (
    Acquire,
    BlobRef,
    Damage,
    Draft,
    Durability,
    Lease,
    Snapshot,
    Store,
    StoreInfo,
)

__all__ = [
    "Acquire",
    "BlobRef",
    "Damage",
    "Draft",
    "Durability",
    "Lease",
    "Snapshot",
    "Store",
    "StoreInfo",
    "wall_clock",
]


def __dir__() -> list[str]:
    return sorted(__all__)
