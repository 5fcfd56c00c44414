"""The options of store URLs (`sqlite:x.db?mode=0640`): one table and one parser for all stores.

To add an option, add its name, default and parser to `OPTIONS`. The parser raises `ValueError` for
invalid text, and `read_options` converts this error to an `InvalidValue` with the option, its value
and the allowed values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from ..errors import InvalidValue
from .retry import PATIENCE

POOL = 10  # connections of a store to PostgreSQL
_SCHEMA = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,47}")
_MODE = re.compile("0?[0-7]{3}")


class UrlOption(NamedTuple):
    """One option of a store URL: its default, the function that parses its text, and the remedy in
    the error for invalid text."""

    default: Any
    read: Callable[[str], Any]
    remedy: str


def _choice(*values: str) -> UrlOption:
    """Define an option with a fixed set of allowed values; the first is the default."""

    def read(text: str) -> str:
        if text not in values:
            raise ValueError(text)
        return text

    return UrlOption(values[0], read, f"use {' or '.join(values)}")


def _number(default: float, what: str, type: type[int] | type[float] = float) -> UrlOption:
    """Define an option whose value is a number from 1 to 3600."""

    def read(text: str) -> float:
        number = type(text)
        if not 1 <= number <= 3_600:
            raise ValueError(text)
        return number

    return UrlOption(default, read, f"use a number of {what} from 1 to 3600")


def _read_mode(text: str) -> int:
    """Parse the permissions of a file: the owner must be able to read and write it, and no one may
    execute it."""
    mode = int(text, 8) if _MODE.fullmatch(text) else 0
    if mode & 0o600 != 0o600 or mode & ~0o666:
        raise ValueError(text)
    return mode


def _read_schema(text: str) -> str:
    if not _SCHEMA.fullmatch(text):
        raise ValueError(text)
    return text


def _read_postgres_url(text: str) -> str:
    if not text.startswith(("postgresql://", "postgres://")):
        raise ValueError(text)
    return text


_DURABILITY = _choice("machine", "process")
_PATIENCE = _number(PATIENCE, "seconds")

OPTIONS: dict[str, dict[str, UrlOption]] = {
    "memory": {},
    "file": {"durability": _DURABILITY},
    "sqlite": {
        "durability": _DURABILITY,
        "mode": UrlOption(
            0o600, _read_mode, "use 0600, or other octal permissions for a file, such as 0640"
        ),
    },
    "postgres": {
        "schema": UrlOption(
            "holdfast",
            _read_schema,
            "use 1 to 48 characters a-z, 0-9 and _, not starting with a digit or pg_",
        ),
        "pooler": _choice("none", "transaction"),
        "listen_url": UrlOption(None, _read_postgres_url, "begin it with postgresql://"),
        "patience": _PATIENCE,
        "connections": _number(POOL, "connections", int),
        "migrate": _choice("auto", "never"),
    },
    "mongodb": {"patience": _PATIENCE},
}
SECRET = ("listen_url",)  # options whose values never appear in an error


def read_options(kind: str, given: dict[str, str]) -> dict[str, Any]:
    """Return the values of all options of a kind of store, with defaults, and remove them from
    `given`."""
    return {
        name: _read(name, given.pop(name), option) if name in given else option.default
        for name, option in OPTIONS[kind].items()
    }


def _read(name: str, text: str, option: UrlOption) -> Any:
    try:
        return option.read(text)
    except ValueError:
        problem = "is invalid" if name in SECRET else f"is {text!r}"
    raise InvalidValue(field=name, problem=problem, remedy=option.remedy)


def read_option(kind: str, name: str, text: str) -> Any:
    """Parse the text of one option and return its value."""
    return _read(name, text, OPTIONS[kind][name])


def reject_unknown(kind: str, left: Mapping[str, str]) -> None:
    """Raise `InvalidValue` if `left` contains any option, because this kind of store does not have
    it."""
    if left:
        known = [*OPTIONS[kind], "vault"]
        raise InvalidValue(
            field="url",
            problem=f"has unknown options {sorted(left)}",
            remedy=f"use only {' or '.join(known)}",
        )


def split_url(url: str) -> tuple[str, dict[str, str]]:
    """Return the path and the options of a URL that names a path. `sqlite:/PATH`, `sqlite:///PATH`
    and `sqlite:////PATH` name the same file."""
    place, _, query = url.partition(":")[2].partition("?")
    path = unquote(place.removeprefix("//"))
    if os.sep == "/" and path.startswith("//"):
        path = "/" + path.lstrip("/")  # SQLite takes what follows two slashes for a host
    return path, parse_query(query)


def check_path(path: str) -> str:
    """Return the path of a local store. Raises `InvalidValue` if it cannot name a file."""
    if not path or "\0" in path:
        raise InvalidValue(
            field="url", problem="has no path", remedy="write it as sqlite:PATH or file:DIR"
        )
    if path == ":memory:":
        raise InvalidValue(
            field="url",
            problem=f"is 'sqlite:{path}'",
            remedy="use memory: for a store in memory, or sqlite:PATH",
        )
    return path


def parse_query(query: str) -> dict[str, str]:
    """Parse the options after the `?` of a URL; if an option occurs twice, its last value
    counts."""
    return dict(parse_qsl(query, keep_blank_values=True))
