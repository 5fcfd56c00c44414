"""What a check found: how much it did, what it measured, and every promise that was broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

BAD = ("lost", "doubled")  # counts that are shown also if they are zero
Tick = Callable[[int, int], None]  # how many rounds are done, of how many


def quiet(done: int, total: int) -> None:
    """Tells nobody about the progress of a check."""


class Figure(NamedTuple):
    """A time that was measured, and the one that it should stay under. No test fails by it."""

    what: str
    seconds: float
    limit: float | None = None

    @property
    def met(self) -> bool:
        return self.limit is None or self.seconds < self.limit

    def __str__(self) -> str:
        text = f"{self.what} {self.seconds * 1000:.1f} ms"
        if self.limit is None:
            return text
        return f"{text} ({'met' if self.met else 'NOT MET'}: under {self.limit:g} s)"


@dataclass
class Outcome:
    """The counts, figures and broken promises of one check."""

    counts: Counter[str] = field(default_factory=Counter)
    figures: list[Figure] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def expect(self, holds: object, problem: str) -> None:
        if not holds:
            self.problems.append(problem)

    def equal(self, found: object, wanted: object, what: str) -> None:
        if found != wanted:
            self.problems.append(f"{what}: {_short(found)} instead of {_short(wanted)}")

    def measured(self, what: str, times: Sequence[float], limit: float) -> None:
        """The distribution of some times; the slowest has a limit."""
        ordered = sorted(times)
        if not ordered:
            self.problems.append(f"{what}: nothing was measured")
            return
        for name, part in (("median", 0.5), ("99 %", 0.99)):
            place = min(int(len(ordered) * part), len(ordered) - 1)
            self.figures.append(Figure(f"{what}, {name}", ordered[place]))
        self.figures.append(Figure(f"{what}, slowest", ordered[-1], limit))

    def __str__(self) -> str:
        shown = [what for what, count in self.counts.items() if count or what in BAD]
        return ", ".join(f"{self.counts[what]:,} {what}" for what in shown)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 600 else f"{text[:400]} … {text[-150:]}"
