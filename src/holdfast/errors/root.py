"""The base class of all errors, and errors that any part may raise."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, ClassVar


@dataclass(eq=False, kw_only=True)
class HoldfastError(Exception):
    """Base class of all errors that Holdfast raises on purpose."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    template: ClassVar[str] = ""  # of the message; its names are those of the fields

    def __str__(self) -> str:
        return self.template.format(**self.fields)

    @property
    def fields(self) -> dict[str, Any]:
        """The error's fields by name, as a server sends them."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.fields)


def _rebuild(cls: type[HoldfastError], fields: dict[str, Any]) -> HoldfastError:
    return cls(**fields)


# A problem that begins with one of these continues the name of its field: "limit is 0: pass at
# least 1".
PREDICATES = """
accepts appears are begins belongs cannot contains does exceeds has have hold holds is lacks must
name names needs occurs refers requires takes was were would
"""


@dataclass(eq=False, kw_only=True)
class InvalidValue(HoldfastError):
    """An argument is invalid; nothing was written."""

    code = "invalid_value"

    field: str
    problem: str
    remedy: str
    limit: int | float | None = None

    def __str__(self) -> str:
        if self.problem.partition(" ")[0] in PREDICATES.split():
            return f"{self.field} {self.problem}: {self.remedy}"
        return f"{self.field}: {self.problem}; {self.remedy}"


@dataclass(eq=False, kw_only=True)
class MissingExtra(HoldfastError, ImportError):
    """This needs an optional package that is not installed."""

    code = "missing_extra"
    template = "{needed_for} needs an optional package: pip install 'holdfast[{extra}]'"

    extra: str
    needed_for: str


@dataclass(eq=False, kw_only=True)
class WrongLoop(HoldfastError, RuntimeError):
    """An object was used on a different event loop than it was opened on, such as in a second
    `asyncio.run` or in another thread; nothing was done."""

    code = "wrong_loop"
    template = (
        "{what} was opened on another event loop: use it on that loop, open one for each loop, "
        "or use holdfast.sync, which works from any thread; a store works on any loop if you open "
        "it with shared_store(url) or connect(url, portal=True)"
    )

    what: str


def listed(faults: Iterable[object]) -> str:
    """A list of faults, for the end of a message."""
    return "".join(f"\n- {fault}" for fault in faults)


def instead(name: str, available: list[str]) -> str:
    """List the available names after an unknown one, with the closest match first."""
    near = get_close_matches(name, available, n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    return f"{meant}there are: {', '.join(available) or 'none'}"
