"""Dicts of limited size, for what an adapter keeps in memory."""

from __future__ import annotations

from typing import Any


def keep(known: dict[Any, Any], name: Any, value: Any, most: int) -> None:
    """Add to a dict as its newest entry; the oldest one is dropped if there are too many."""
    known.pop(name, None)
    known[name] = value
    if len(known) > most:
        del known[next(iter(known))]
