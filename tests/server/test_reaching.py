"""How long a store has that may be away, and since when it is."""

from __future__ import annotations

import pytest

from holdfast import StoreUnavailable
from holdfast.server.placement.circuit_breaker import AGAIN, BRIEFLY, GAP, CircuitBreaker


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Noted(CircuitBreaker):
    """Notes how many seconds each question had."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        super().__init__(seconds, clock)
        self.had: list[float] = []

    async def within(self, seconds, work):  # type: ignore[no-untyped-def]
        self.had.append(seconds)
        return await super().within(seconds, work)


async def fails() -> None:
    raise StoreUnavailable(problem="away")


async def test_an_absence_counts_from_anew_when_nobody_asked_for_long() -> None:
    clock = Clock()
    reaching = Noted(5.0, clock)
    for after in (0.0, AGAIN, GAP - 1):
        clock.now += after
        with pytest.raises(StoreUnavailable):
            await reaching.ask("kind", fails)
    assert reaching.away("kind") == AGAIN + GAP - 1
    clock.now += 3_600
    with pytest.raises(StoreUnavailable):
        await reaching.ask("kind", fails)
    assert reaching.away("kind") == 0.0, "what it did meanwhile is not known"


async def test_after_a_failure_it_has_little_time_and_more_each_time() -> None:
    clock = Clock()
    reaching = Noted(5.0, clock)
    for _ in range(5):
        with pytest.raises(StoreUnavailable):
            await reaching.ask("kind", fails)
        clock.now += AGAIN

    async def answers() -> str:
        return "here"

    assert await reaching.ask("kind", answers) == "here"
    assert reaching.had == [5.0, BRIEFLY, 2 * BRIEFLY, 4 * BRIEFLY, 5.0, 5.0]
    assert reaching.away("kind") == 0.0
