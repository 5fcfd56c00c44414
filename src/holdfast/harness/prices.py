"""What a model call costs, by the price lists of `genai-prices` (extra `models`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from ..models.port import split_ref


def price(ref: str, usage: Mapping[str, int]) -> float | None:
    """Dollars for one call, or None where no list knows the model or no list is installed."""
    lists = _lists()
    if lists is None or not usage:
        return None
    namespace, name = split_ref(ref)
    known = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    counts = lists.Usage(**{n: usage[n] for n in known if n in usage})
    try:
        found = lists.calc_price(counts, name, provider_id=namespace)
    except (LookupError, ValueError):
        return None
    return float(found.total_price)


@cache
def _lists() -> Any:
    try:
        return import_module("genai_prices")
    except ImportError:
        return None
