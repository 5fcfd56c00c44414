"""The tables of a settings file that name things of the program's own: loaders, engines, tools,
a sandbox. What is wrong with them is added to the faults."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import HoldfastError
from ..harness.sandbox import LocalSandbox
from ..harness.tools import Tool
from .engines import Engine
from .loaders import GitLoader, InlineLoader, Loader, LocalLoader

LOADERS: dict[str, Callable[..., Loader]] = {
    "inline": InlineLoader,
    "local": LocalLoader,
    "git": lambda allowed: GitLoader(*allowed),
}


def named(at: Any, what: str, faults: list[str]) -> Any:
    """What `module:name` names, or None."""
    module_name, colon, name = str(at).partition(":")
    if not (colon and module_name and name):
        faults.append(f"{what} {at!r}: write module:name")
        return None
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        faults.append(f"{what} {at!r}: {error}")
        return None


def loaders(table: Mapping[str, Any], faults: list[str]) -> dict[str, Loader]:
    """The loaders: `inline = {}`, `local = {root = …}`, `git = {allowed = […]}`, or
    `NAME = "module:name"` for one of the program's own."""
    return dict(_loaders(table, faults))


def _loaders(table: Mapping[str, Any], faults: list[str]) -> Iterator[tuple[str, Loader]]:
    for name, about in table.items():
        if isinstance(about, str):
            if (made := named(about, f"loaders.{name}", faults)) is not None:
                yield name, made
        elif name not in LOADERS:
            faults.append(f"loaders.{name}: there are {', '.join(LOADERS)}, or write module:name")
        else:
            try:
                yield name, LOADERS[name](**about)
            except (HoldfastError, TypeError) as error:
                faults.append(f"loaders.{name}: {error}")


def tools(names: Sequence[Any], faults: list[str]) -> list[Tool]:
    """The tools that agents which are loaded may use."""
    found = []
    for at in names:
        made = named(at, "tool", faults)
        if isinstance(made, Tool):
            found.append(made)
        elif made is not None:
            faults.append(f"tool {at!r} is {type(made).__name__}: name a tool")
    return found


def engines(
    table: Mapping[str, Any], settings: Mapping[str, Any], faults: list[str]
) -> dict[str, Engine]:
    """Further engines: `make` names a function that makes one, `agents` its agents as
    `module:name`, and the rest is handed to it."""
    found: dict[str, Engine] = {}
    for name, about in table.items():
        rest = dict(about)
        make = named(rest.pop("make", None), f"engines.{name}", faults)
        agents = {agent: named(at, "agent", faults) for agent, at in rest.pop("agents", {}).items()}
        if make is None or None in agents.values():
            continue
        try:
            found[name] = make(agents, **{**settings, **rest})
        except (HoldfastError, TypeError) as error:
            faults.append(f"engines.{name}: {error}")
    return found


def sandbox(table: Mapping[str, Any], faults: list[str]) -> dict[str, Any]:
    """The sandbox of all agents: a `LocalSandbox`, by its settings."""
    if not table:
        return {}
    try:
        return {"sandbox": LocalSandbox(**table)}
    except (HoldfastError, TypeError) as error:
        faults.append(f"sandbox: {error}")
        return {}
