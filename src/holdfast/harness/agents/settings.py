"""Validation of a harness's settings, before anything is opened."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from ...errors import InvalidValue
from ...log.codec import check_name
from ...models.port import split_ref
from ...values.budgets import Budget
from ...values.options import RunLimits
from ..faults import ErrorPolicy
from ..telemetry.logs import LogConfig
from ..tools.values import LEAST

SHORTEST, LONGEST = 0.001, 86_400  # seconds that a store allows for a lease
LIMITS = ("steps", "tokens", "cost", "seconds")
WHOLE = ("steps", "tokens")


def faults(settings: Mapping[str, Any]) -> list[str]:
    """Return every problem with these settings as text; empty if they are valid."""
    return [f"{name} {wrong}" for name, test in _TESTS.items() for wrong in test(settings[name])]


def settings_for(made: Callable[..., Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings as keyword arguments for `made`, a function that creates a harness. If
    the function still has the parameter `storage`, the former name of `store`, it gets the store
    under that name, and a deprecation warning is issued."""
    given = dict(settings)
    try:
        taken = inspect.signature(made).parameters
    except (TypeError, ValueError):  # not every callable has a signature
        return given
    if "storage" in taken and "store" not in taken:
        name = getattr(made, "__name__", "the function")
        warnings.warn(
            f"{name}(storage, …) is now {name}(store, …)", DeprecationWarning, stacklevel=2
        )
        given["storage"] = given.pop("store")
    return given


def wrong_limits(limits: Any) -> Iterator[str]:
    """Return every problem with the limits of a run."""
    if not isinstance(limits, RunLimits):
        yield f"is {_kind(limits)}: pass RunLimits(...)"
        return
    for name in LIMITS:
        value = getattr(limits, name)
        if value is None or value is msgspec.UNSET:
            continue
        right = _is_whole(value) if name in WHOLE else _is_number(value)
        if not right or value <= 0:
            what = "a whole number" if name in WHOLE else "a number"
            yield f"{name} is {value!r}: pass {what} above 0, or None"


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_whole(value) or (isinstance(value, float) and math.isfinite(value))


def _kind(value: Any) -> str:
    return type(value).__name__


Test: TypeAlias = Callable[[Any], Iterator[str]]


def _rule(valid: Callable[[Any], bool], problem: str) -> Test:
    """Return a check that yields `problem` for an invalid value. `problem` may contain the
    placeholders `{value}` and `{kind}`, the type of the value."""

    def test(value: Any) -> Iterator[str]:
        if not valid(value):
            yield problem.format(value=repr(value), kind=_kind(value))

    return test


def _at_least(least: int) -> Test:
    problem = f"is {{value}}: pass a whole number of at least {least}"
    return _rule(lambda value: _is_whole(value) and value >= least, problem)


def _one_of(*known: Any) -> Test:
    def valid(value: Any) -> bool:
        return any(value is one or (isinstance(one, str) and value == one) for one in known)

    return _rule(valid, f"is {{value}}: use one of {', '.join(map(str, known))}")


def _is_a(kind: type[Any]) -> Test:
    return _rule(
        lambda value: value is None or isinstance(value, kind),
        f"is {{kind}}: pass {kind.__name__}(...)",
    )


def _has(*methods: str) -> Test:
    def test(value: Any) -> Iterator[str]:
        lacks = [name for name in methods if not callable(getattr(value, name, None))]
        if value is not None and not isinstance(value, str) and inspect.isclass(value):
            yield f"is the class {value.__name__}: pass an instance of it"
        elif value is not None and not isinstance(value, str) and lacks:
            yield f"is {_kind(value)}, which has no method {' or '.join(lacks)}"

    return test


def _limits(value: Any) -> Iterator[str]:
    return iter(()) if value is None else wrong_limits(value)


def _is_summariser(value: Any) -> bool:
    if value is None or callable(value) or value == "on":
        return True
    try:
        split_ref(value, "summarise")
    except InvalidValue:
        return False
    return True


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _sandbox(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield "is a str: pass a sandbox object, such as LocalSandbox(...)"
    yield from _has("open", "destroy")(value)


def _store(value: Any) -> Iterator[str]:
    if value is None:
        yield "is None: pass the URL of a store, or a store"
    yield from _has("append", "read", "acquire")(value)


def _tenant(value: Any) -> Iterator[str]:
    try:
        check_name("tenant", value)
    except InvalidValue as error:
        yield f"{error.problem}: {error.remedy}"


_TESTS: dict[str, Test] = {
    "window_tokens": _at_least(1),
    "window_turns": _at_least(1),
    "parallel_tools": _at_least(1),
    "parallel_recovery": _at_least(1),
    "crashes": _at_least(0),
    "ttl": _rule(
        lambda value: _is_number(value) and SHORTEST <= value <= LONGEST,
        f"is {{value}}: pass {SHORTEST} to {LONGEST:,} seconds",
    ),
    "recovery": _one_of("resume", "close", "leave"),
    "error_policy": _is_a(ErrorPolicy),
    "logging": _is_a(LogConfig),
    "limits": _limits,
    "summarise": _rule(_is_summariser, 'is {value}: pass a function, "on", or provider/model'),
    "tenant": _tenant,
    "store": _store,
    "sandbox": _sandbox,
    "price": _rule(
        lambda value: value is None or callable(value),
        "is {kind}: pass a function of the model and its usage",
    ),
    "trace": _one_of(None, True, False),
    "providers": _rule(_is_list, "is {kind}: pass a list"),
    "result_limit": _rule(
        lambda value: value is None or (_is_whole(value) and value >= LEAST),
        f"is {{value}}: pass a whole number of at least {LEAST}, or None",
    ),
    "budgets": _rule(
        lambda value: _is_list(value) and all(isinstance(one, Budget) for one in value),
        "is {value}: pass a list of Budget(...)",
    ),
    "versions": _one_of("float", "warn", "pin"),
    "fallback_models": _rule(
        lambda value: _is_list(value) and all(isinstance(ref, str) for ref in value),
        "is {value}: pass a list of provider/model",
    ),
}
