"""Dicts of limited size, which adapters use as caches."""

from __future__ import annotations

from typing import Any


def keep(known: dict[Any, Any], name: Any, value: Any, most: int) -> None:
    """Add an entry to a dict as its newest. If the dict then has more than `most` entries, the
    oldest is removed."""
    known.pop(name, None)
    known[name] = value
    if len(known) > most:
        del known[next(iter(known))]
