"""What the tables of a settings file may hold: the settings there are and what each takes. Of a
value that does not fit only its sort is told, since it may be a secret."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ..errors.root import instead
from .auth.limits import ServerLimits

LARGEST = 1e15  # more is no number of anything here


class Shape(NamedTuple):
    """What a setting takes, in words and as a test."""

    words: str
    fits: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and -LARGEST < value < LARGEST


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _is_environment(value: Any) -> bool:
    texts = isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
    return texts or isinstance(value, str)


TEXT = Shape("a text", lambda value: isinstance(value, str))
TEXTS = Shape('a list of texts, as in ["one", "two"]', _are_texts)
FLAG = Shape("true or false", lambda value: isinstance(value, bool))
NUMBER = Shape("a number", _is_number)
SECONDS = Shape("a number of seconds, as in 10.0", _is_number)
WHOLE = Shape("a whole number", lambda value: type(value) is int)
TABLE = Shape("a table", lambda value: isinstance(value, dict))

AUTH = {
    "keys": {"kind": TEXT},
    "local": {"kind": TEXT, "tenant": TEXT, "principal": TEXT},
    "none": {"kind": TEXT, "tenant": TEXT, "principal": TEXT},
    "secret": {"kind": TEXT, "secret": TEXT, "tenant": TEXT, "principal": TEXT, "scopes": TEXTS},
}
AUDIT = {"sink": TEXT, "path": TEXT}
SERVER = {
    "default_store": TEXT,
    "docs": FLAG,
    "envs": TEXTS,
    "grace": SECONDS,
    "models": TEXTS,
    "origins": TEXTS,
    "tenants": TEXTS,
    "tools": TEXTS,
    "two_person": FLAG,
}
RUN_LIMITS = {"steps": WHOLE, "tokens": WHOLE, "cost": NUMBER, "seconds": SECONDS}
HARNESS = {
    "crashes": WHOLE,
    "default_model": TEXT,
    "fallback_models": TEXTS,
    "parallel_recovery": WHOLE,
    "parallel_tools": WHOLE,
    "recovery": TEXT,
    "summarise": TEXT,
    "trace": FLAG,
    "ttl": SECONDS,
    "window_tokens": WHOLE,
    "window_turns": WHOLE,
}
SANDBOX = {
    "dir": TEXT,
    "env": Shape('"minimal", "inherit" or a table of texts', _is_environment),
    "kill_grace": SECONDS,
    "output_limit": WHOLE,
    "shared": FLAG,
    "shell": TEXT,
    "timeout": SECONDS,
}
STORE = {"url": TEXT, "allow": TABLE}
ENGINE = {"make": TEXT, "agents": TABLE}
HOMES = {  # the tables that have settings of fixed names
    "server": {*SERVER},
    "limits": {*ServerLimits.__struct_fields__},
    "run_limits": {*RUN_LIMITS},
    "harness": {*HARNESS},
    "auth": {name for known in AUTH.values() for name in known},
    "audit": {*AUDIT},
    "sandbox": {*SANDBOX},
}
LOADERS: dict[str, dict[str, Shape]] = {
    "inline": {},
    "local": {"root": TEXT},
    "git": {"allowed": TEXTS},
}


def fitting(
    path: str, table: Mapping[str, Any], known: Mapping[str, Shape], faults: list[str]
) -> dict[str, Any]:
    """The settings of a table that are known and fit; all others are faults."""
    for name in table:
        if name not in known:
            faults.append(f"{path}.{name} is no setting: {instead(name, sorted(known))}")
    there = {name: value for name, value in table.items() if name in known}
    faults += misfits(path, there, known)
    return {name: value for name, value in there.items() if known[name].fits(value)}


def misfits(path: str, table: Mapping[str, Any], known: Mapping[str, Shape]) -> Iterator[str]:
    """What is wrong with those settings of a table that are known."""
    for name, value in table.items():
        if name in known and not known[name].fits(value):
            yield f"{path}.{name} is {sort(value)}: give {known[name].words}"


def sort(value: Any) -> str:
    """What a value of a file is, in words."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, list):
        return "a list" if _are_texts(value) else "a list of other things"
    words = {"str": "a text", "dict": "a table"}
    return words.get(type(value).__name__, f"a {type(value).__name__}")
