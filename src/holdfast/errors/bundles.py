"""What is wrong with a bundle."""

from __future__ import annotations

from dataclasses import dataclass

from .root import HoldfastError


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that is wrong with a bundle: a stable `code`, where it is, and what it is; never a
    value of the bundle."""

    code: str
    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


@dataclass(eq=False, kw_only=True)
class InvalidBundle(HoldfastError):
    """A bundle cannot be taken as it is; nothing was written. Every fault is listed, or as many as
    the limits say, and `more` counts the rest."""

    code = "invalid_bundle"

    faults: list[Fault]
    more: int = 0

    def __str__(self) -> str:
        listed = "".join(f"\n- {fault}" for fault in self.faults)
        return f"the bundle is refused:{listed}" + (f"\n- and {self.more} more" * bool(self.more))


@dataclass(eq=False, kw_only=True)
class NotContinuable(HoldfastError):
    """A bundle can be read, but its session cannot go on from it."""

    code = "not_continuable"

    bundle: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"bundle {self.bundle} {self.problem}; {self.remedy}"
