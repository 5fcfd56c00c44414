"""The token usage of models, with uniform names. Pure.

Vendors use different names for the same counts. Input tokens include cache reads and writes, and
output tokens include reasoning, if the vendor counts them that way.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

from msgspec import Struct

from ..log import events as ev
from ..log.codec import typed
from ..log.events import Event
from ..log.state import State

K = TypeVar("K", bound=Hashable)

NAMES = {
    "input_tokens": ("prompt_tokens", "inputTokens", "promptTokens"),
    "output_tokens": ("completion_tokens", "outputTokens", "completionTokens"),
    "total_tokens": ("totalTokens",),
    "reasoning_tokens": ("reasoningTokens",),
    "cache_read_tokens": ("cached_tokens", "cache_read_input_tokens", "cachedInputTokens"),
    "cache_write_tokens": ("cache_creation_input_tokens", "cacheCreationInputTokens"),
}
OURS = {name: ours for ours, names in NAMES.items() for name in (ours, *names)}


class Usage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Token counts, and the cost in dollars if the price is known. `total_tokens` is the vendor's
    total, or else the sum of input and output."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    reasoning_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: float | None = None

    def __add__(self, other: Usage) -> Usage:
        sums = {name: getattr(self, name) + getattr(other, name) for name in NAMES}
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Usage(**sums, cost=sum(costs) if costs else None)


class Spent(Struct, frozen=True):
    """The token usage of one model in one run of one thread."""

    thread: str
    run: str
    model: str
    usage: Usage


def normalised(counts: Mapping[str, Any]) -> dict[str, int]:
    """Return the token counts of a vendor under Holdfast's names. Numbers given as text are
    converted, other values are skipped, and unknown names are kept."""
    found: dict[str, int] = {}
    for name in sorted(counts, key=lambda name: name in NAMES):  # our names take precedence
        if (number := _number(counts[name])) is not None:
            found[OURS.get(name, name)] = number
    return found


def _number(value: Any) -> int | None:
    try:
        return None if isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def usage_of(counts: Mapping[str, Any], cost: float | None = None) -> Usage:
    """Return the token usage of one model call."""
    known = normalised(counts)
    together = known.get("input_tokens", 0) + known.get("output_tokens", 0)
    known.setdefault("total_tokens", together)
    return Usage(**{name: known.get(name, 0) for name in NAMES}, cost=cost)


def spent(state: State) -> Usage:
    """Return the total token usage of a thread."""
    sums = {**normalised(state.usage), "total_tokens": state.total}
    return Usage(**{name: sums.get(name, 0) for name in NAMES}, cost=state.cost)


def by_run(events: Iterable[Event]) -> dict[str, Usage]:
    """Return the token usage of each run, oldest first."""
    return _summed(events, lambda event, p: event.run or "")


def by_model(events: Iterable[Event]) -> dict[str, Usage]:
    """Return the token usage of each model."""
    return _summed(events, lambda event, p: p.model or "")


def table(thread: str, events: Iterable[Event]) -> list[Spent]:
    """Return the token usage of a thread for each run and model, oldest first."""
    sums = _summed(events, lambda event, p: (event.run or "", p.model or ""))
    return [Spent(thread, run, model, usage) for (run, model), usage in sums.items()]


def last(events: Iterable[Event]) -> dict[str, int]:
    """Return the token counts of the latest message that has counts, under the vendor's names."""
    found: dict[str, int] = {}
    for _, payload in _said(events):
        found = payload.usage or found
    return dict(found)


def _said(events: Iterable[Event]) -> Iterable[tuple[Event, ev.MessageCompleted]]:
    for event in events:
        if isinstance(payload := typed(event), ev.MessageCompleted):
            yield event, payload


def _summed(
    events: Iterable[Event], group: Callable[[Event, ev.MessageCompleted], K]
) -> dict[K, Usage]:
    """Return the total token usage of each group of messages."""
    sums: dict[K, Usage] = {}
    for event, p in _said(events):
        at = group(event, p)
        sums[at] = sums.get(at, Usage()) + usage_of(p.usage, p.cost)
    return sums
