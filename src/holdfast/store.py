"""The port that every store implements, and its values."""

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
