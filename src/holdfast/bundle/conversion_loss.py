"""Reports the values that could not be converted between two formats, and where the result keeps
these values, if it does. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

_PLACES = re.compile(r"\[\d+\]")


class Loss(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value in the source that has no counterpart in the result.

    `path` is its path in the source, with `[*]` if it occurs in several items; `count` is the
    number of occurrences. `kept` says where the result keeps the value; None if it is lost.
    """

    path: str
    what: str
    why: str
    count: int = 1
    kept: str | None = None

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        kept = f"; kept in {self.kept}" if self.kept else ""
        return f"{self.path}{times}: {self.what}: {self.why}{kept}"


class LossReport(Struct, frozen=True, kw_only=True):
    """All losses of a conversion, in the order in which they were found."""

    source: str
    target: str
    losses: tuple[Loss, ...] = ()

    def __bool__(self) -> bool:
        """Return whether the report contains any loss, including losses that are kept elsewhere."""
        return bool(self.losses)

    def __iter__(self) -> Iterator[Loss]:
        return iter(self.losses)

    @property
    def gone(self) -> tuple[Loss, ...]:
        """The losses that are not kept anywhere in the result."""
        return tuple(loss for loss in self.losses if loss.kept is None)

    def __str__(self) -> str:
        if not self.losses:
            return f"{self.source} to {self.target}: nothing was lost"
        listed = "".join(f"\n- {loss}" for loss in self.losses)
        return f"{self.source} to {self.target}:{listed}"


class Losses:
    """Collects losses. The same loss in several items of a list is reported once, with a count."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str, str | None], tuple[str, int]] = {}

    def add(self, path: str, what: str, why: str, *, kept: str | None = None) -> None:
        known = (_PLACES.sub("[*]", path), what, why, kept)
        first, before = self._found.get(known, (path, 0))
        self._found[known] = first if before == 0 else known[0], before + 1

    def report(self, source: str, target: str) -> LossReport:
        losses = tuple(
            Loss(path=path, what=what, why=why, count=count, kept=kept)
            for (_, what, why, kept), (path, count) in self._found.items()
        )
        return LossReport(source=source, target=target, losses=losses)
