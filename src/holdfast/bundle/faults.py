"""Collects the faults of a bundle into one error. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import Fault, InvalidBundle

LISTED = 100  # faults that an error lists by default


def invalid(code: str, path: str, problem: str) -> InvalidBundle:
    """Create the error for a single fault."""
    return InvalidBundle(faults=[Fault(code=code, path=path, problem=problem)])


def unreadable(error: Exception, code: str, path: str = "$") -> InvalidBundle:
    """Create the error for a file that cannot be opened or read."""
    reason = getattr(error, "strerror", None) or type(error).__name__
    return invalid(code, path, f"cannot be read ({reason})")


def invalid_all(faults: Sequence[Fault]) -> InvalidBundle:
    """Create one error for several faults, in the given order."""
    return InvalidBundle(faults=list(faults[:LISTED]), more=max(len(faults) - LISTED, 0))


class Faults:
    """Collects the faults of a bundle, up to a limit. `stop` adds a last fault and returns the
    `InvalidBundle` error to raise.
    """

    def __init__(self, limit: int) -> None:
        self.found: list[Fault] = []
        self.more = 0
        self._limit = limit

    def __bool__(self) -> bool:
        return bool(self.found)

    def add(self, code: str, path: str, problem: str) -> None:
        if len(self.found) >= self._limit:
            self.more += 1
        elif (fault := Fault(code=code, path=path, problem=problem)) not in self.found:
            self.found.append(fault)

    def stop(self, code: str, path: str, problem: str) -> InvalidBundle:
        self.add(code, path, problem)
        return self.error()

    def error(self) -> InvalidBundle:
        return InvalidBundle(faults=list(self.found), more=self.more)
