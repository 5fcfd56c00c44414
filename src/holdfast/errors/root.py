"""What all errors are, and the two that anything may raise."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(eq=False, kw_only=True)
class HoldfastError(Exception):
    """The root of all our errors."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    @property
    def fields(self) -> dict[str, Any]:
        """The error's facts by name, as a server sends them."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.fields)


def _rebuild(cls: type[HoldfastError], fields: dict[str, Any]) -> HoldfastError:
    return cls(**fields)


@dataclass(eq=False, kw_only=True)
class InvalidValue(HoldfastError):
    """The one refusal of what cannot be stored or asked for; nothing was written."""

    code = "invalid_value"

    field: str
    problem: str
    remedy: str
    limit: int | float | None = None

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}; {self.remedy}"


@dataclass(eq=False, kw_only=True)
class MissingExtra(HoldfastError, ImportError):
    """An optional package is needed for this."""

    code = "missing_extra"

    extra: str
    needed_for: str

    def __str__(self) -> str:
        return f"{self.needed_for} needs an optional package: pip install 'holdfast[{self.extra}]'"


@dataclass(eq=False, kw_only=True)
class WrongLoop(HoldfastError, RuntimeError):
    """Something was used on another event loop than the one that it was opened on, as in a second
    `asyncio.run` or in another thread; nothing was done."""

    code = "wrong_loop"

    what: str

    def __str__(self) -> str:
        return (
            f"{self.what} was opened on another event loop: use it on that loop, open one for each "
            "loop, or use holdfast.sync, which any thread may call"
        )


def instead(name: str, available: list[str]) -> str:
    """What there is in place of a name that is unknown, and which of it was perhaps meant."""
    from difflib import get_close_matches  # noqa: PLC0415 - only where something is wrong

    near = get_close_matches(name, available, n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    return f"{meant}there are: {', '.join(available) or 'none'}"
