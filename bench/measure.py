"""Rounds, medians, quartiles and bars. Knows nothing of what is measured."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, TypeVar

from msgspec import Struct, field

T = TypeVar("T")
Way = Literal["most", "least"]
FAILED = "failed"  # begins what is told of a contestant that broke, other than one that is missing


class Spread(Struct, frozen=True):
    """The median of some values, and their quartiles."""

    q1: float
    median: float
    q3: float


def spread(values: Sequence[float]) -> Spread:
    """The quartiles, each a value or a point between two neighbours (as numpy's default)."""
    if not values:
        raise ValueError("no values")
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(q1, median, q3)


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ours over theirs, round by round, so that what slows a whole round cancels out."""
    return [a / b for a, b in zip(ours, theirs, strict=True)]


class Figure(Struct, frozen=True, kw_only=True):
    """What one contestant reached: a value per round."""

    name: str
    unit: str
    values: list[float] = []
    note: str = ""
    absent: str = ""

    @property
    def spread(self) -> Spread:
        return spread(self.values)


class Bar(Struct, frozen=True, kw_only=True):
    """A promise: the median of `values` is at least, or at most, `bar`."""

    name: str
    way: Way
    bar: float
    values: list[float] = []
    unit: str = "×"
    absent: str = ""

    @property
    def spread(self) -> Spread:
        return spread(self.values)

    @property
    def met(self) -> bool | None:
        """None when it could not be measured."""
        if not self.values:
            return None
        median = self.spread.median
        return median <= self.bar if self.way == "most" else median >= self.bar


class Result(Struct, kw_only=True):
    """What one workload came to."""

    name: str
    title: str
    figures: list[Figure] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def figure(self, name: str) -> Figure:
        return next(figure for figure in self.figures if figure.name == name)

    def compare(self, ours: str, theirs: str, way: Way, bar: float) -> None:
        """Add the bar that `ours` over `theirs` must reach."""
        a, b = self.figure(ours), self.figure(theirs)
        absent = a.absent or b.absent
        values = [] if absent else ratios(a.values, b.values)
        name = f"{ours} ÷ {theirs}"
        self.bars.append(Bar(name=name, way=way, bar=bar, values=values, absent=absent))


class Absent(Exception):
    """A contestant that cannot take part here, and why."""


Step = Callable[[str], None]


def race(
    contestants: Mapping[str, Callable[[], float]],
    *,
    rounds: int,
    step: Step = lambda name: None,
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Run all contestants in turn, round after round: a, b, c, a, b, c …

    Gives the values of each, and why one that failed or is missing has none. Each runs
    once before the first round, unmeasured.
    """
    values: dict[str, list[float]] = {}
    absent: dict[str, str] = {}
    for number in range(rounds + 1):
        for name, run in contestants.items():
            if name in absent:
                continue
            step(name)
            try:
                value = run()
            except Absent as reason:
                absent[name] = str(reason)
            except Exception as error:
                # One peer that breaks must not hide the figures of the others; the
                # report carries its error.
                absent[name] = f"{FAILED}: {type(error).__name__}: {error}"
            else:
                if number:
                    values.setdefault(name, []).append(value)
    return {name: list_ for name, list_ in values.items() if name not in absent}, absent


@contextmanager
def steady() -> Iterator[None]:
    """A section in which the collector has nothing old to walk through.

    It stays on, since it is on for users too; but what earlier contestants and their
    imports left alive is set aside for good, so that nobody pays for somebody else's objects.
    """
    gc.collect()
    gc.freeze()
    yield


def timed(run: Callable[[], T]) -> tuple[float, T]:
    """How long `run` takes, in seconds, and what it gives."""
    with steady():
        start = time.perf_counter()
        value = run()
        return time.perf_counter() - start, value
