"""Reads the tables of a settings file that refer to objects of the user's program: loaders,
engines, tools and a sandbox. Error messages are added to the list `faults`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import HoldfastError
from ..errors.root import closest
from ..harness import LocalSandbox, Tool
from ..values.budgets import Budget
from . import settings_values
from .auth.audit import unmade
from .engines import Engine
from .loaders import GitLoader, InlineLoader, Loader, LocalLoader
from .settings_values import SettingType, fitting, misfits, sort

LOADERS: dict[str, Callable[[Mapping[str, Any]], Loader]] = {
    "inline": lambda about: InlineLoader(),
    "local": lambda about: LocalLoader(about["root"]),
    "git": lambda about: GitLoader(*about["allowed"]),
}


def named(at: Any, what: str, faults: list[str]) -> Any:
    """Import the object that `module:name` refers to. If that fails, returns None and adds an error
    message to `faults`."""
    module_name, colon, name = at.partition(":") if isinstance(at, str) else ("", "", "")
    if not (colon and module_name and name):
        given = repr(at) if isinstance(at, str) else sort(at)
        faults.append(f"{what} must be module:name, such as shop:agent, got {given}")
        return None
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a module of the user may raise anything
        why = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        faults.append(f"{what}: {module_name!r} cannot be imported ({why})")
        return None
    if not hasattr(module, name):
        there = [known for known in vars(module) if not known.startswith("_")]
        near = closest(name, there)
        faults.append(f"{what}: {module_name!r} has no {name!r}; {near}".rstrip("; "))
        return None
    return getattr(module, name)


def budgets(tables: Sequence[Mapping[str, Any]], faults: list[str]) -> list[Budget]:
    """Create the budgets of `[[harness.budgets]]`."""
    found: list[Budget] = []
    for n, table in enumerate(tables):
        path = f"harness.budgets[{n}]"
        given = fitting(path, table, settings_values.BUDGET, faults)
        if "scope" not in table:
            faults.append(f'{path}.scope is missing: write scope = "user", "session" or "tenant"')
        elif len(given) == len(table):
            try:
                found.append(Budget(**given))
            except HoldfastError as error:
                faults.append(f"{path}: {error}")
    return found


def loaders(table: Mapping[str, Any], faults: list[str]) -> dict[str, Loader]:
    """Create the loaders: `inline = {}`, `local = {root = …}`, `git = {allowed = […]}`, or `NAME =
    "module:name"` for a custom loader."""
    return dict(_loaders(table, faults))


def _loaders(table: Mapping[str, Any], faults: list[str]) -> Iterator[tuple[str, Loader]]:
    for name, about in table.items():
        path = f"loaders.{name}"
        if isinstance(about, str):
            if (made := named(about, path, faults)) is not None:
                yield name, made
        elif name not in LOADERS:
            faults.append(f"{path} is not a loader: use {', '.join(LOADERS)}, or write module:name")
        elif not isinstance(about, dict):
            faults.append(f"{path} must be a table or module:name, got {sort(about)}")
        elif (given := _whole(path, about, settings_values.LOADERS[name], faults)) is not None:
            if name == "local" and not Path(given["root"]).is_dir():
                faults.append(
                    f"{path}.root: the folder {given['root']!r} does not exist; create it"
                )
                continue
            try:
                yield name, LOADERS[name](given)
            except HoldfastError as error:
                faults.append(f"{path}: {error}")


def _whole(
    path: str, table: Mapping[str, Any], known: Mapping[str, SettingType], faults: list[str]
) -> dict[str, Any] | None:
    """Read a table in which all settings are required."""
    before = len(faults)
    given = fitting(path, table, known, faults)
    for name in known:
        if name not in table:
            faults.append(f"{path}.{name} is missing: set it to {known[name].words}")
    return given if len(faults) == before else None


def tools(names: Sequence[Any], faults: list[str]) -> list[Tool]:
    """Return the tools that uploaded agents may use."""
    found = []
    for at in names:
        made = named(at, f"tool {at!r}", faults)
        if isinstance(made, Tool):
            found.append(made)
        elif made is not None:
            faults.append(f"tool {at!r} must be a Tool, got {type(made).__name__}")
    return found


def engines(
    table: Mapping[str, Any], settings: Mapping[str, Any], faults: list[str]
) -> dict[str, Engine]:
    """Create the engines of other kinds. `make` is the `module:name` of a function that creates an
    engine, `agents` lists its agents as `module:name`, and all other settings are passed to the
    function."""
    found: dict[str, Engine] = {}
    for name, about in table.items():
        path = f"engines.{name}"
        if not isinstance(about, dict):
            faults.append(f"{path} must be a table with the key `make`, got {sort(about)}")
            continue
        if wrong := [*misfits(path, about, settings_values.ENGINE)]:
            faults += wrong
            continue
        rest = dict(about)
        make = named(rest.pop("make", ""), f"{path}.make", faults)
        agents = {
            agent: named(at, f"{path}.agents.{agent}", faults)
            for agent, at in rest.pop("agents", {}).items()
        }
        if make is None or None in agents.values():
            continue
        given = {**settings, **rest}
        try:
            found[name] = make(agents, **given)
        except HoldfastError as error:
            faults.append(f"{path}: {error}")
        except TypeError as error:
            faults.append(f"{path}: {_unexpected(error, given)}")
    return found


def _unexpected(error: TypeError, given: Mapping[str, Any]) -> str:
    """Return the error message for a setting that a function does not accept. It is clearer than
    Python's message."""
    for name in given:
        if "unexpected keyword argument" in str(error) and f"'{name}'" in str(error):
            return f"{name} is not a setting of this engine"
    return str(error)


def sandbox(table: Mapping[str, Any], faults: list[str]) -> dict[str, Any]:
    """Create the sandbox of all agents: a `LocalSandbox` with these settings."""
    if not table:
        return {}
    given = fitting("sandbox", table, settings_values.SANDBOX, faults)
    if "dir" not in table:
        faults.append(
            "sandbox.dir is missing: set it to the folder for the work folders of sessions"
        )
    if "dir" not in given:
        return {}
    if (why := unmade(Path(given["dir"]))) is not None:
        faults.append(f"sandbox.dir: the folder {given['dir']!r} cannot be created ({why})")
        return {}
    try:
        return {"sandbox": LocalSandbox(**given)}
    except HoldfastError as error:
        faults.append(f"sandbox: {error}")
        return {}
