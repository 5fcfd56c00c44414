"""The settings that each table of a settings file may contain, and their types. Error messages
contain only the type of an invalid value, because the value may be a secret."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec

from ..errors.root import instead
from .auth.limits import ServerLimits

LARGEST = 1e15  # a larger number is a mistake


class SettingType(NamedTuple):
    """The type of a setting: its description, and a function that checks a value."""

    words: str
    fits: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and -LARGEST < value < LARGEST


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _converts(type: Any, value: Any) -> bool:
    try:
        msgspec.convert(value, type)
    except msgspec.ValidationError:
        return False
    return True


def _is_environment(value: Any) -> bool:
    texts = isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
    return texts or isinstance(value, str)


TEXT = SettingType("a string", lambda value: isinstance(value, str))
TEXTS = SettingType('a list of strings, as in ["one", "two"]', _are_texts)
FLAG = SettingType("true or false", lambda value: isinstance(value, bool))
NUMBER = SettingType("a number", _is_number)
SECONDS = SettingType("a number of seconds, as in 10.0", _is_number)
WHOLE = SettingType("a whole number", lambda value: type(value) is int)
TABLES = SettingType(
    "a list of tables",
    lambda values: isinstance(values, list) and all(isinstance(one, dict) for one in values),
)
TABLE = SettingType("a table", lambda value: isinstance(value, dict))

AUTH = {
    "keys": {"kind": TEXT},
    "local": {"kind": TEXT, "tenant": TEXT, "principal": TEXT},
    "none": {"kind": TEXT, "tenant": TEXT, "principal": TEXT},
    "secret": {"kind": TEXT, "secret": TEXT, "tenant": TEXT, "principal": TEXT, "scopes": TEXTS},
}
AUDIT = {"sink": TEXT, "path": TEXT}
SERVER = {
    "console": FLAG,
    "default_store": TEXT,
    "docs": FLAG,
    "envs": TEXTS,
    "grace": SECONDS,
    "models": TEXTS,
    "origins": TEXTS,
    "tenants": TEXTS,
    "tools": TEXTS,
    "two_person": FLAG,
    "webhook_networks": TEXTS,
    "webhooks": FLAG,
}
RUN_LIMITS = {"steps": WHOLE, "tokens": WHOLE, "cost": NUMBER, "seconds": SECONDS}
HARNESS = {
    "budgets": TABLES,
    "crashes": WHOLE,
    "default_model": TEXT,
    "fallback_models": TEXTS,
    "parallel_recovery": WHOLE,
    "parallel_tools": WHOLE,
    "result_limit": WHOLE,
    "recovery": TEXT,
    "summarise": TEXT,
    "trace": FLAG,
    "ttl": SECONDS,
    "versions": TEXT,
    "window_tokens": WHOLE,
    "window_turns": WHOLE,
}
BUDGET = {
    "scope": TEXT,
    "tokens": WHOLE,
    "cost": NUMBER,
    "runs": WHOLE,
    "per": TEXT,
    "who": TEXT,
}
SANDBOX = {
    "dir": TEXT,
    "env": SettingType('"minimal", "inherit" or a table of strings', _is_environment),
    "kill_grace": SECONDS,
    "output_limit": WHOLE,
    "shared": FLAG,
    "shell": TEXT,
    "timeout": SECONDS,
}
LIMITS = {
    field.name: SettingType("a number", partial(_converts, field.type))
    for field in msgspec.structs.fields(ServerLimits)
}
STORE = {"url": TEXT, "allow": TABLE}
ENGINE = {"make": TEXT, "agents": TABLE}
HOMES = {  # the tables with fixed settings
    "server": {*SERVER},
    "limits": {*LIMITS},
    "run_limits": {*RUN_LIMITS},
    "harness": {*HARNESS},
    "auth": {name for known in AUTH.values() for name in known},
    "audit": {*AUDIT},
    "sandbox": {*SANDBOX},
}
LOADERS: dict[str, dict[str, SettingType]] = {
    "inline": {},
    "local": {"root": TEXT},
    "git": {"allowed": TEXTS},
}


def fitting(
    path: str, table: Mapping[str, Any], known: Mapping[str, SettingType], faults: list[str]
) -> dict[str, Any]:
    """Return the valid settings of a table. Error messages for all others are added to `faults`."""
    for name in table:
        if name not in known:
            faults.append(f"{path}.{name} is not a setting: {instead(name, sorted(known))}")
    there = {name: value for name, value in table.items() if name in known}
    faults += misfits(path, there, known)
    return {name: value for name, value in there.items() if known[name].fits(value)}


def misfits(path: str, table: Mapping[str, Any], known: Mapping[str, SettingType]) -> Iterator[str]:
    """Yield an error message for each setting of a table that has the wrong type."""
    for name, value in table.items():
        if name in known and not known[name].fits(value):
            yield f"{path}.{name} must be {known[name].words}, got {sort(value)}"


def sort(value: Any) -> str:
    """Describe the type of a value in words."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, list):
        return "a list" if _are_texts(value) else "a list of other values"
    words = {"str": "a string", "dict": "a table"}
    return words.get(type(value).__name__, f"a {type(value).__name__}")
