"""The cost of a model call, from the price lists of the package `genai-prices`. That package comes
with the extra `models` and is imported with the first model of a vendor."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from ..models.port import split_ref

KNOWN = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def price(ref: str, usage: Mapping[str, int]) -> float | None:
    """Return the price of one call in dollars, or None if the model has no listed price."""
    lists = sys.modules.get("genai_prices")
    if lists is None or not usage:
        return None
    namespace, name = split_ref(ref)
    counts = lists.Usage(**{count: usage[count] for count in KNOWN if count in usage})
    try:
        found = lists.calc_price(counts, name, provider_id=namespace)
    except (LookupError, ValueError):
        return None
    return float(found.total_price)
