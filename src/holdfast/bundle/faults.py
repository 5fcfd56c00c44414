"""The faults of a bundle, collected into one error. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import Fault, InvalidBundle

LISTED = 100  # faults that an error lists by default


def invalid(code: str, path: str, problem: str) -> InvalidBundle:
    """The error for a single fault."""
    return InvalidBundle(faults=[Fault(code=code, path=path, problem=problem)])


def invalid_all(faults: Sequence[Fault]) -> InvalidBundle:
    """The error for several faults, in their order."""
    return InvalidBundle(faults=list(faults[:LISTED]), more=max(len(faults) - LISTED, 0))


class Faults:
    """The faults so far. Raise `stop` to end with all of them at once."""

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
