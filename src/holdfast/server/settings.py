"""The settings of a server: in code, or in one TOML file. Everything that is wrong with them is
found before anything is opened, and told at once.

In a file, an agent is `module:name`. Secrets stand in the environment: wherever a text is
`env:NAME`, the value of that variable is meant. The model `scripted/offline` is always there.
"""

from __future__ import annotations

import functools
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from ..errors import HoldfastError, InvalidSettings
from ..harness.agent import Agent
from ..harness.tools import Tool
from ..models.scripted import offline
from ..redact import Redactor
from ..stores.registry import Builder, StoreRegistry
from . import tables as tabled
from .audit import FileAudit, LogAudit, Sink
from .auth import AuthHandler, NoAuth, SharedSecret, check_tenant
from .engines import Engine, HoldfastEngine, Made
from .limits import ServerLimits
from .loaders import Loader
from .loading import Harden

KEYS = "keys"  # the name of the auth that looks into the store
TABLES = {
    *("agents", "engines", "loaders", "sandbox", "stores"),
    *("auth", "limits", "audit", "server", "harness"),
}
Source: TypeAlias = "str | Builder"
ENVIRON = "env:"


@dataclass(kw_only=True)
class Settings:
    """What a server is run with.

    `agents` are agents by the names that clients ask for, or a list of them. `engines` are
    other engines by name. `stores` are URLs or builders by kind, as for `StoreRegistry`; the
    first is the default. `auth` is a handler, or `"keys"` for keys in the default store.
    `harness` are settings of `Harness` for all agents.

    Clients may bring agents by the `loaders`: a mapping by name, or a list of them. `tools` are
    those that such agents may name, and `harden` is given what they say and returns what holds.
    `envs` are the variables that clients may set for the commands of their sessions.
    """

    agents: Mapping[str, Made] | Sequence[Agent] = ()
    engines: Mapping[str, Engine] = field(default_factory=dict)
    stores: Mapping[str, Source] | StoreRegistry | str = "memory:"
    default_store: str | None = None
    auth: AuthHandler | str = KEYS
    audit: Sink | None = None
    limits: ServerLimits = field(default_factory=ServerLimits)
    tenants: Sequence[str] = ("main",)
    origins: Sequence[str] = ()
    two_person: bool = False
    docs: bool = True
    grace: float = 10.0
    loaders: Mapping[str, Loader] | Sequence[Loader] = ()
    tools: Sequence[Tool] = ()
    harden: Harden | None = None
    envs: Sequence[str] = ()
    redactor: Redactor = field(default_factory=Redactor)
    harness: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str | Path) -> Settings:
        """The settings in a TOML file (`InvalidSettings` with every fault)."""
        try:
            tables = tomllib.loads(Path(path).read_text())
        except OSError as error:
            raise InvalidSettings(faults=[f"{path}: {error.strerror}"]) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidSettings(faults=[f"{path} is no TOML: {error}"]) from error
        return read(tables)

    def engine(self) -> Mapping[str, Engine]:
        """The engines by name, the harness among them if there are agents."""
        if not self.agents and (self.engines or not self.loaders):
            return dict(self.engines)
        return {
            "holdfast": HoldfastEngine(self.agents, limits=self.limits, **self.harness),
            **self.engines,
        }

    def by_name(self) -> Mapping[str, Loader]:
        """The loaders by name."""
        if isinstance(self.loaders, Mapping):
            return self.loaders
        return {loader.name: loader for loader in self.loaders}

    def registry(self) -> StoreRegistry:
        """The stores by kind."""
        if isinstance(self.stores, StoreRegistry):
            return self.stores
        if isinstance(self.stores, str):
            return StoreRegistry({_kind(self.stores): self.stores})
        return StoreRegistry(self.stores)

    @property
    def default(self) -> str:
        """The kind of the default store."""
        if self.default_store is not None:
            return self.default_store
        if isinstance(self.stores, str):
            return _kind(self.stores)
        if isinstance(self.stores, StoreRegistry):
            return self.stores.first
        return next(iter(self.stores), "memory")

    def check(self) -> None:
        """Refuse what cannot work; every fault is listed."""
        if found := [*self._faults()]:
            raise InvalidSettings(faults=found)

    def _faults(self) -> Iterator[str]:
        if not self.agents and not self.engines and not self.loaders:
            yield "there is no agent: give `agents`, or an engine that has some"
        yield from _tried(self.engine)
        try:
            if self.default not in (kinds := self.registry().kinds):
                yield f"default_store {self.default!r} is none of {', '.join(kinds)}"
        except HoldfastError as error:
            yield str(error)
        if isinstance(self.auth, str):
            if self.auth != KEYS:
                yield f"auth is {self.auth!r}: use {KEYS!r}, or a handler"
        elif not callable(getattr(self.auth, "authenticate", None)):
            yield f"auth is {type(self.auth).__name__}, which has no authenticate"
        yield from self.limits.faults()
        for tenant in self.tenants:
            yield from _tried(functools.partial(check_tenant, tenant))
        if not self.grace >= 0:
            yield f"grace is {self.grace!r}: give seconds"


def _tried(call: Callable[[], Any]) -> Iterator[str]:
    try:
        call()
    except HoldfastError as error:
        yield from getattr(error, "faults", None) or [str(error)]
    except TypeError as error:
        yield str(error)


def _kind(url: str) -> str:
    scheme = url.partition(":")[0]
    return {"postgresql": "postgres", "mongodb+srv": "mongodb"}.get(scheme, scheme)


# A file


def read(tables: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings out of the tables of a file."""
    faults: list[str] = [f"there is no table [{name}]" for name in {*tables} - TABLES]
    known = {name: _resolved(tables.get(name, {}), name, environ, faults) for name in TABLES}
    harness = {**known["harness"], **tabled.sandbox(known["sandbox"], faults)}
    settings = Settings(
        engines=tabled.engines(known["engines"], harness, faults),
        loaders=tabled.loaders(known["loaders"], faults),
        tools=tabled.tools(known["server"].pop("tools", ()), faults),
        agents={name: made for name, at in known["agents"].items() for made in _made(at, faults)},
        stores=_stores(known["stores"], faults),
        auth=_auth(known["auth"], faults),
        audit=_audit(known["audit"], faults),
        limits=_limits(known["limits"], faults),
        harness={"providers": [offline()], **harness},
    )
    options = {"default_store", "tenants", "origins", "two_person", "docs", "grace", "envs"}
    for name, value in known["server"].items():
        if name not in options:
            faults.append(f"server.{name} is no setting: there are {', '.join(sorted(options))}")
        else:
            setattr(settings, name, value)
    found = [*faults, *settings._faults()]
    if found:
        raise InvalidSettings(faults=found)
    return settings


def _resolved(value: Any, path: str, environ: Mapping[str, str], faults: list[str]) -> Any:
    """A value with the variables that it names."""
    if isinstance(value, dict):
        return {k: _resolved(v, f"{path}.{k}", environ, faults) for k, v in value.items()}
    if isinstance(value, list):
        return [_resolved(v, f"{path}[{n}]", environ, faults) for n, v in enumerate(value)]
    if isinstance(value, str) and value.startswith(ENVIRON):
        name = value.removeprefix(ENVIRON)
        if name not in environ:
            faults.append(f"{path}: the variable {name} is not set")
        return environ.get(name, "")
    return value


def _made(at: Any, faults: list[str]) -> Iterator[Made]:
    found = tabled.named(at, "agent", faults)
    if isinstance(found, Agent) or callable(found):
        yield found
    elif found is not None:
        faults.append(f"agent {at!r} is {type(found).__name__}: name an Agent")


def _stores(table: Mapping[str, Any], faults: list[str]) -> StoreRegistry | str:
    if not table:
        return "memory:"
    registry = StoreRegistry()
    for kind, about in table.items():
        one = about if isinstance(about, dict) else {"url": about}
        try:
            registry.register(kind, str(one.get("url", "")), allow=one.get("allow"))
        except HoldfastError as error:
            faults.append(f"stores.{kind}: {error}")
    return registry


def _auth(table: Mapping[str, Any], faults: list[str]) -> AuthHandler | str:
    kind = table.get("kind", KEYS)
    try:
        if kind == "none":
            return NoAuth()
        if kind == "secret":
            rest = {name: value for name, value in table.items() if name != "kind"}
            return SharedSecret(str(rest.pop("secret", "")), **rest)
    except (HoldfastError, TypeError) as error:
        faults.append(f"auth: {error}")
        return KEYS
    if kind != KEYS:
        faults.append(f"auth.kind is {kind!r}: use keys, secret or none")
    return KEYS


def _audit(table: Mapping[str, Any], faults: list[str]) -> Sink | None:
    sink = table.get("sink")
    if sink == "log":
        return LogAudit()
    if sink == "file" and "path" in table:
        return FileAudit(table["path"])
    if sink is not None:
        faults.append(f"audit.sink is {sink!r}: use log, or file with a path")
    return None


def _limits(table: Mapping[str, Any], faults: list[str]) -> ServerLimits:
    try:
        return msgspec.convert(table, ServerLimits)
    except msgspec.ValidationError as error:
        faults.append(f"limits: {error}")
        return ServerLimits()
