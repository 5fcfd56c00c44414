"""The base class of all errors, and errors that any module of Holdfast may raise."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, ClassVar


@dataclass(eq=False, kw_only=True)
class HoldfastError(Exception):
    """Base class of all errors that Holdfast raises on purpose.

    All codes and remedies: [errors](../errors.md).
    """

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    template: ClassVar[str] = ""  # of the message, with field names in braces

    def __str__(self) -> str:
        return self.template.format(**self.fields)

    @property
    def fields(self) -> dict[str, Any]:
        """The error's fields by name, as a server sends them."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    @property
    def docs(self) -> str:
        """The section of the documentation about this error: `docs/errors#not_pending`."""
        return f"docs/errors#{self.code}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.fields)


def _rebuild(cls: type[HoldfastError], fields: dict[str, Any]) -> HoldfastError:
    return cls(**fields)


# If a problem begins with one of these verbs, the field's name is its subject: "limit is 0: pass at
# least 1". Other problems are complete sentences: "url: file 'x' does not exist; create it".
PREDICATES = """
accepts already appears applies are begins belongs cannot contain contains does ends exceeds has
have hold holds is lacks matches must need needs occurs refers requires returned takes uses was
were would
"""
_PARENTHESES = re.compile(r"\(.*\)", re.DOTALL)


@dataclass(eq=False, kw_only=True)
class InvalidValue(HoldfastError):
    """An argument is invalid. Nothing was written.

    What to do: [`invalid_value`](../errors.md#invalid_value).
    """

    code = "invalid_value"

    field: str
    problem: str
    remedy: str
    limit: int | float | None = None

    def __str__(self) -> str:
        continues = self.problem.partition(" ")[0] in PREDICATES.split()
        said = f"{self.field}{' ' if continues else ': '}{self.problem}"
        mark = "; " if ": " in _PARENTHESES.sub("", said) else ": "  # one colon in a message
        return f"{said}{mark}{self.remedy}"


@dataclass(eq=False, kw_only=True)
class MissingExtra(HoldfastError, ImportError):
    """A feature needs an optional package that is not installed.

    What to do: [`missing_extra`](../errors.md#missing_extra).
    """

    code = "missing_extra"
    template = "{needed_for} needs an optional package: pip install 'holdfast[{extra}]'"

    extra: str
    needed_for: str


@dataclass(eq=False, kw_only=True)
class WrongLoop(HoldfastError, RuntimeError):
    """An object was used on a different event loop than the one it was opened on, such as in a
    second `asyncio.run` or in another thread. The operation was not performed.

    What to do: [`wrong_loop`](../errors.md#wrong_loop).
    """

    code = "wrong_loop"
    template = (
        "{what} was opened on another event loop: use it on that loop, open one for each loop, "
        "or use holdfast.sync, which works from any thread; a store works on any loop if you open "
        "it with shared_store(url) or connect(url, portal=True)"
    )

    what: str


def listed(faults: Iterable[object]) -> str:
    """Format faults as a bulleted list, for the end of an error message."""
    return "".join(f"\n- {fault}" for fault in faults)


def instead(name: str, available: list[str]) -> str:
    """Return the remedy for an unknown name: the closest match, if any, and all available names."""
    if not available:
        return "none is available"
    meant = closest(name, available)
    return f"{meant} {'Available:' if meant else 'use one of'} {', '.join(available)}".lstrip()


def closest(name: str, available: list[str]) -> str:
    """Return a question that suggests the closest match for an unknown name. Returns an empty
    string if there is no close match."""
    near = get_close_matches(name, available, n=1)
    return f"did you mean {near[0]!r}?" if near else ""
