"""Errors about bundles."""

from __future__ import annotations

from dataclasses import dataclass

from .root import HoldfastError, listed


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault of a bundle: a stable `code`, the location in the bundle (`path`) and a
    description. The description never contains values from the bundle.

    See [bundles](../bundles.md#checking).
    """

    code: str
    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


@dataclass(eq=False, kw_only=True)
class InvalidBundle(HoldfastError):
    """A bundle is invalid, and nothing was written. At most a limited number of faults is listed;
    `more` is the number of further faults.

    What to do: [`invalid_bundle`](../errors.md#invalid_bundle).
    """

    code = "invalid_bundle"

    faults: list[Fault]
    more: int = 0

    def __str__(self) -> str:
        more = [f"and {self.more} more"] if self.more else []
        return f"the bundle is invalid:{listed([*self.faults, *more])}"


@dataclass(eq=False, kw_only=True)
class NotContinuable(HoldfastError):
    """A bundle can be read, but its session cannot be continued from it.

    What to do: [`not_continuable`](../errors.md#not_continuable).
    """

    code = "not_continuable"
    template = "bundle {bundle} {problem}: {remedy}"

    bundle: str
    problem: str
    remedy: str
