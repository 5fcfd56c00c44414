"""The settings of a server, in code or in a TOML file. All settings are checked before anything is
opened, and all errors are reported together.

In a file, an agent is written as `module:name`. Secrets come from the environment: `env:NAME`
stands for the value of that variable. The model `scripted/offline` is always available.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from ..errors import HoldfastError, InvalidSettings
from ..errors.root import instead
from ..harness import Agent, Harness, Tool, wrong_limits
from ..models.port import split_ref
from ..models.scripted import offline
from ..redact import Redactor
from ..stores.registry import Builder, StoreRegistry
from ..values.options import RunLimits
from ..webhooks import networks
from . import settings_tables as tabled
from . import settings_values
from .auth.audit import FileAudit, LogAudit, Sink
from .auth.callers import AuthHandler, LocalTokenAuth, NoAuth, SharedSecret, check_tenant, is_local
from .auth.limits import ServerLimits
from .engines import Engine, HoldfastEngine, Made
from .loaders import Loader
from .uploads.agents import Harden

MEMORY = "memory:"
KEYS = "keys"  # the value of `auth` for API keys
TABLES = {
    *("agents", "engines", "loaders", "sandbox", "stores"),
    *("auth", "limits", "run_limits", "audit", "server", "harness"),
}
WRITTEN = {  # an example of each table, for errors
    "agents": '[agents] with NAME = "module:name"',
    "auth": '[auth] with kind = "keys"',
    "stores": '[stores] with sqlite = "sqlite:shop.db"',
    "audit": '[audit] with sink = "log"',
    "loaders": "[loaders] with inline = {}",
    "sandbox": '[sandbox] with dir = "places"',
    "engines": '[engines.NAME] with make = "module:name"',
    "limits": "[limits] with NAME = a number",
    "run_limits": "[run_limits] with steps = 20",
    "server": "[server] with NAME = a value",
    "harness": '[harness] with default_model = "provider/name"',
}
OWN = {
    "agent",
    "store",
    "storage",
    "tenant",
    "limits",
}  # settings of a harness that the server sets
NOBODY = "no agents are configured: set `agents`, or add an engine with agents"
Source: TypeAlias = "str | Builder"
ENVIRON = "env:"


@dataclass(kw_only=True)
class Settings:
    """The settings of a server.

    `agents` maps public names to agents, or is a list of agents. `engines` maps names to other
    engines. `store` is the URL of the store. For several stores, `stores` has URLs or builders by
    kind, as in `StoreRegistry`; the first is the default. `auth` is a handler, or `"keys"` for API
    keys in the default store. `harness` are settings of `Harness` for all agents.

    `loaders` are the loaders with which clients may upload agents: a mapping by name, or a list.
    `tools` are the tools that uploaded agents may use, and `harden` may change their manifest.
    `envs` are the variables that clients may set for the commands of their sessions.

    `models` are the models that clients may choose, by reference, `provider/*` or `*`. By default,
    these are the models that the agent, its modes, its sub-agents and the harness use. `run_limits`
    are the limits of each run, which clients cannot exceed.

    `webhooks` says whether the server delivers to webhook endpoints, and `webhook_networks` which
    private networks they may be in.

    See [the server](../server.md).
    """

    agents: Mapping[str, Made] | Sequence[Agent] = ()
    engines: Mapping[str, Engine] = field(default_factory=dict)
    stores: Mapping[str, Source] | StoreRegistry | str = MEMORY
    default_store: str | None = None
    auth: AuthHandler | str = KEYS
    audit: Sink | None = None
    limits: ServerLimits = field(default_factory=ServerLimits)
    tenants: Sequence[str] = ("main",)
    origins: Sequence[str] = ()
    two_person: bool = False
    docs: bool = True
    console: bool = True
    grace: float = 10.0
    loaders: Mapping[str, Loader] | Sequence[Loader] = ()
    tools: Sequence[Tool] = ()
    harden: Harden | None = None
    envs: Sequence[str] = ()
    models: Sequence[str] | None = None
    run_limits: RunLimits | None = None
    redactor: Redactor = field(default_factory=Redactor)
    harness: Mapping[str, Any] = field(default_factory=dict)
    webhooks: bool = True
    webhook_networks: Sequence[str] = ()
    store: InitVar[Any] = None  # str | None, checked here

    def __post_init__(self, store: Any) -> None:
        if store is None:
            return
        if not isinstance(store, str):
            problem = f"store is {type(store).__name__}: pass a URL, or stores={{kind: …}}"
            raise InvalidSettings(faults=[problem])
        if self.stores != MEMORY:
            raise InvalidSettings(
                faults=["store and stores cannot be combined: pass only one of them"]
            )
        self.stores = store

    @classmethod
    def load(cls, path: str | Path) -> Settings:
        """Load the settings from a TOML file. Raises `InvalidSettings`, which lists every invalid
        setting."""
        try:
            tables = tomllib.loads(Path(path).read_text())
        except OSError as error:
            raise InvalidSettings(faults=[f"{path}: {error.strerror}"]) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidSettings(faults=[f"{path} is not valid TOML: {error}"]) from error
        return read(tables)

    def engine(self) -> Mapping[str, Engine]:
        """Create the engines, by name. The harness is one of them if there are agents."""
        if not self.agents and (self.engines or not self.loaders):
            return dict(self.engines)
        return {
            "holdfast": HoldfastEngine(
                self.agents, limits=self.limits, run_limits=self.run_limits, **self.harness
            ),
            **self.engines,
        }

    def by_name(self) -> Mapping[str, Loader]:
        """Return the loaders by name."""
        if isinstance(self.loaders, Mapping):
            return self.loaders
        return {loader.name: loader for loader in self.loaders}

    def registry(self) -> StoreRegistry:
        """Return the stores by kind."""
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
        """Raise `InvalidSettings`, which lists every invalid setting, if there are any."""
        found = [*self._faults()]
        if isinstance(self.auth, LocalTokenAuth) and not self.auth.ready:
            found.append("auth `local` works only with `holdfast serve`: use keys")
        if found:
            raise InvalidSettings(faults=found)

    def _faults(self) -> Iterator[str]:
        if not self.agents and not self.engines and not self.loaders:
            yield NOBODY
        yield from self._engine_faults()
        try:
            if self.default not in (kinds := self.registry().kinds):
                yield f"default_store {self.default!r} does not exist: use {', '.join(kinds)}"
        except HoldfastError as error:
            yield str(error)
        if isinstance(self.auth, str):
            if self.auth != KEYS:
                yield f"auth must be {KEYS!r} or a handler, got {self.auth!r}"
        elif not callable(getattr(self.auth, "authenticate", None)):
            yield f"auth is {type(self.auth).__name__}, which has no method authenticate"
        if isinstance(self.audit, FileAudit):
            yield from self.audit.faults()
        yield from self.limits.faults()
        yield from self._list_faults()
        if not settings_values.SECONDS.fits(self.grace) or self.grace < 0:
            yield f"grace must be a number of seconds, got {self.grace!r}"

    def _engine_faults(self) -> Iterator[str]:
        taken = {"harness", *inspect.signature(Harness).parameters} - OWN
        unknown = [name for name in self.harness if name not in taken]
        for name in unknown:
            yield f"harness.{name} is not a setting: {instead(name, sorted(taken))}"
        if not unknown:
            yield from _tried(self.engine)

    def _list_faults(self) -> Iterator[str]:
        for name in ("tenants", "origins", "envs", "models", "webhook_networks"):
            if isinstance(getattr(self, name), str):
                yield f"{name} must be {settings_values.TEXTS.words}, got a string"
                return
        yield from _tried(functools.partial(networks, self.webhook_networks))
        for ref in self.models or ():
            if (wrong := _wrong_model(ref)) is not None:
                yield f"models: {ref!r} {wrong}"
        if self.run_limits is not None:
            yield from (f"run_limits.{wrong}" for wrong in wrong_limits(self.run_limits))
        for tenant in self.tenants:
            yield from _tried(functools.partial(check_tenant, tenant))
        for origin in self.origins:
            if (wrong := _wrong_origin(origin)) is not None:
                yield f"origin {origin!r} {wrong}"
            elif isinstance(self.auth, NoAuth) and not is_local(origin.partition("://")[2]):
                yield f"origin {origin!r} is not on this machine, as auth `none` requires: use keys"


def _wrong_model(ref: Any) -> str | None:
    if ref == "*":
        return None
    try:
        _, name = split_ref(ref)
    except HoldfastError:
        return "is not a model: write provider/model, provider/* or *"
    return "has a * in its name: write provider/* or *" if "*" in name and name != "*" else None


def _wrong_origin(origin: str) -> str | None:
    if origin == "*":
        return "would allow every web page: list each allowed origin, as in https://shop.example"
    scheme, there, rest = origin.partition("://")
    if not there or not _SCHEME.fullmatch(scheme):
        return f"has no scheme: did you mean http://{origin.lstrip('/')}?"
    address = _ORIGIN.fullmatch(rest)
    if address is None:
        return "is not an origin: use scheme, host and port, as in https://shop.example"
    if address["path"] is not None or origin != origin.lower():
        return f"is not written as browsers send it: did you mean {scheme}://{address['host']}?".lower()
    return None


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_ORIGIN = re.compile(r"(?P<host>(?:[\w.-]+|\[[0-9a-fA-F:.]+\])(?::\d{1,5})?)(?P<path>/.*)?")


def _tried(call: Callable[[], Any]) -> Iterator[str]:
    try:
        call()
    except HoldfastError as error:
        yield from getattr(error, "faults", None) or [str(error)]
    except Exception as error:  # a function of the user may raise anything
        yield (
            f"an agent cannot be created ({type(error).__name__}: {error}): name an Agent, or a "
            "function that takes **settings and returns a Harness"
        )


def _kind(url: str) -> str:
    scheme = url.partition(":")[0]
    return {"postgresql": "postgres", "mongodb+srv": "mongodb"}.get(scheme, scheme)


# Settings files


def read(tables: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Settings:
    """Convert the tables of a settings file to `Settings`. Raises `InvalidSettings`."""
    faults: list[str] = []
    known = {name: _table(tables, name, environ, faults) for name in sorted(TABLES)}
    for name in sorted({*tables} - TABLES):
        faults.append(_no_table(name))
    only_engines = bool(known["engines"]) and not tables.get("agents")
    harness = _harness(known, only_engines, faults)
    run_limits = _run_limits(known["run_limits"], faults)
    bounded = {} if run_limits is None else {"run_limits": run_limits}
    server = settings_values.fitting("server", known["server"], settings_values.SERVER, faults)
    settings = Settings(
        engines=tabled.engines(known["engines"], {**harness, **bounded}, faults),
        loaders=tabled.loaders(known["loaders"], faults),
        tools=tabled.tools(server.pop("tools", ()), faults),
        agents=dict(_agents(known["agents"], faults)),
        stores=_stores(known["stores"], faults),
        auth=_auth(known["auth"], faults),
        audit=_audit(known["audit"], faults),
        limits=_limits(known["limits"], faults),
        run_limits=run_limits,
        harness={"providers": [offline()], **harness},
    )
    for name, value in server.items():
        setattr(settings, name, value)
    absent = bool(known["agents"]) and not settings.agents  # already reported as an error
    found = [*faults, *(fault for fault in settings._faults() if not absent or fault != NOBODY)]
    if found:
        raise InvalidSettings(faults=found)
    return settings


def _no_table(name: str) -> str:
    """Return the error message for an unknown table. The name may be a setting of another table."""
    if homes := [f"[{table}]" for table, known in settings_values.HOMES.items() if name in known]:
        return f"{name} is a setting of {' and of '.join(homes)}: move it there"
    return f"[{name}] is not a table: {instead(name, sorted(TABLES))}"


def _table(
    tables: Mapping[str, Any], name: str, environ: Mapping[str, str], faults: list[str]
) -> dict[str, Any]:
    table = tables.get(name, {})
    if isinstance(table, dict):
        resolved: dict[str, Any] = _resolved(table, name, environ, faults)
        return resolved
    faults.append(f"{name} must be a table ({WRITTEN[name]}), got {settings_values.sort(table)}")
    return {}


def _harness(
    known: Mapping[str, dict[str, Any]], only_engines: bool, faults: list[str]
) -> dict[str, Any]:
    """Return the settings of the harness. Unknown settings are allowed if the server has only other
    engines, which may accept them."""
    table = known["harness"]
    if only_engines:
        faults += settings_values.misfits("harness", table, settings_values.HARNESS)
        given = dict(table)
    else:
        given = settings_values.fitting("harness", table, settings_values.HARNESS, faults)
    if settings_values.TABLES.fits(given.get("budgets")):
        given["budgets"] = tabled.budgets(given["budgets"], faults)
    return {**given, **tabled.sandbox(known["sandbox"], faults)}


def _resolved(value: Any, path: str, environ: Mapping[str, str], faults: list[str]) -> Any:
    """Return a value in which references to environment variables are replaced by their values."""
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


def _agents(table: Mapping[str, Any], faults: list[str]) -> Iterator[tuple[str, Made]]:
    for name, at in table.items():
        found = tabled.named(at, f"agents.{name}", faults)
        if isinstance(found, Agent) or callable(found):
            yield name, found
        elif found is not None:
            faults.append(
                f"agents.{name} must be an Agent or a function, but {at!r} is "
                f"{type(found).__name__}"
            )


def _stores(table: Mapping[str, Any], faults: list[str]) -> StoreRegistry | str:
    if not table:
        return "memory:"
    registry = StoreRegistry()
    for kind, about in table.items():
        path = f"stores.{kind}"
        one = about if isinstance(about, dict) else {"url": about}
        given = settings_values.fitting(path, one, settings_values.STORE, faults)
        if "url" not in one:
            faults.append(f"{path}.url is missing: set it to the URL of the store")
        try:
            if "url" in given:
                registry.register(kind, given["url"], allow=given.get("allow"))
        except HoldfastError as error:
            faults.append(f"{path}: {error}")
    return registry


def _auth(table: Mapping[str, Any], faults: list[str]) -> AuthHandler | str:
    kind = table.get("kind", KEYS)
    if not isinstance(kind, str) or kind not in settings_values.AUTH:
        found = repr(kind) if isinstance(kind, str) else settings_values.sort(kind)
        faults.append(f"auth.kind must be keys, secret, local or none, got {found}")
        return KEYS
    given = settings_values.fitting("auth", table, settings_values.AUTH[kind], faults)
    given.pop("kind", None)
    if kind == "secret" and "secret" not in table:
        faults.append('auth.secret is missing: write secret = "env:NAME", and set that variable')
    try:
        if kind == "none":
            return NoAuth(**given)
        if kind == "local":
            return LocalTokenAuth(**given)
        unset = any(fault.startswith("auth.secret:") for fault in faults)
        if kind == "secret" and "secret" in given and not unset:
            return SharedSecret(**given)
    except HoldfastError as error:
        faults.append(f"auth: {error}")
    return KEYS


def _audit(table: Mapping[str, Any], faults: list[str]) -> Sink | None:
    given = settings_values.fitting("audit", table, settings_values.AUDIT, faults)
    sink = given.get("sink")
    if sink == "log":
        return LogAudit()
    if sink == "file" and "path" in given:
        return FileAudit(given["path"])
    if sink is not None:
        faults.append(f"audit.sink must be log, or file with a path, got {sink!r}")
    elif "path" in table and "sink" not in table:
        faults.append('audit.sink is missing: write sink = "file"')
    return None


def _run_limits(table: Mapping[str, Any], faults: list[str]) -> RunLimits | None:
    given = settings_values.fitting("run_limits", table, settings_values.RUN_LIMITS, faults)
    return RunLimits(**given) if given else None


def _limits(table: Mapping[str, Any], faults: list[str]) -> ServerLimits:
    given = settings_values.fitting("limits", table, settings_values.LIMITS, faults)
    return msgspec.convert(given, ServerLimits)
