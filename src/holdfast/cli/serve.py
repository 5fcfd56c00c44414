"""`holdfast serve`: serve agents over HTTP."""

from __future__ import annotations

import contextlib
import os
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, validators

from ..harness import Agent
from ..stores.creation import StoreCreation
from ..stores.url_display import shown
from .agents import Choice, ModelRef, choose, find
from .console import console_url
from .error_report import UsageError
from .options import DEFAULTS, WAITING, Common, default_store, option_group, server_part

if TYPE_CHECKING:
    from ..server.preflight import ServerStarted
    from ..server.processes import ServePlan

OPEN = (
    "WARNING: this server requires no token. Every program and user on this machine can use it, "
    "and so can everybody whose requests a proxy on this machine forwards. Omit `--auth none` "
    '(kind = "none" in a file), or use keys.'
)


@option_group
class ServeOptions:
    """Options of the server.

    :param config: TOML file with all settings, instead of the options.
    :param host: Address to listen on.
    :param port: Port; 0 chooses a free one.
    :param auth: Authentication. `keys`: API keys (`holdfast keys create`). `secret`: the secret in
        $HOLDFAST_SECRET. `local`: the local token (`holdfast token`). `none`: open to every program
        on this machine, including proxies. Default: `local` on a loopback address, else `keys`.
    :param workers: Number of processes.
    :param tls_cert: TLS certificate file (PEM).
    :param tls_key: TLS private key file (PEM).
    :param origin: Origin that browsers may send requests from (CORS); repeatable.
    :param sandbox: Sandbox folder; each session gets a folder in it.
    :param grace: Seconds for runs to reach a safe point when the server stops.
    """

    config: Path | None = None
    host: str = "127.0.0.1"
    port: Annotated[int, Parameter(validator=validators.Number(gte=0, lte=65_535))] = 7700
    auth: Literal["keys", "secret", "local", "none"] | None = None
    model: ModelRef = None
    workers: Annotated[int, Parameter(validator=validators.Number(gte=1, lte=64))] = 1
    tls_cert: Path | None = None
    tls_key: Path | None = None
    origin: tuple[str, ...] = ()
    sandbox: Path | None = None
    grace: float | None = None

    def check(self, agents: Sequence[str], common: Common) -> None:
        """Raise `UsageError` if options conflict."""
        if not agents and self.config is None:
            raise UsageError("serve needs an agent as module:name, or --config FILE")
        if agents and self.config is not None:
            raise UsageError("pass agents or --config, not both")
        in_file = (self.auth, self.model, self.sandbox, common.store)
        if self.config is not None and any(option is not None for option in in_file):
            raise UsageError(
                "--store, --auth, --model and --sandbox cannot be combined with --config: set "
                "them in the config file"
            )


DEFAULT = ServeOptions()


def serve(
    *agents: str,
    how: ServeOptions = DEFAULT,
    common: Common = DEFAULTS,
) -> None:
    """Serve agents over HTTP until Ctrl-C.

    ```
    holdfast serve shop.agents:support
    holdfast serve --config server.toml --host 0.0.0.0 --workers 4
    ```

    Sessions are kept in the store, which any number of servers can share. `/v1/docs` documents the
    HTTP API, `/console` shows the sessions in a browser.

    :param agents: Agents, each as module:name. NAME=module:name serves one under another name.
    """
    processes = server_part("processes", "serve")
    is_loopback = server_part("auth.callers", "serve").is_loopback
    how.check(agents, common)
    named, speaks = _named(agents), Choice()
    for at in named.values():
        speaks = speaks if speaks.default else choose(find(at), how.model)
    alone = how.config is None
    auth = how.auth or ("local" if is_loopback(how.host) else "keys")
    plan: ServePlan = processes.ServePlan(
        config=_path(how.config),
        agents=named,
        store=common.url if alone else None,
        auth=auth if alone else None,
        model=speaks.default,
        chosen=speaks.ref is None or speaks.offline is not None,
        host=how.host,
        port=how.port,
        workers=how.workers,
        cert=_path(how.tls_cert),
        key=_path(how.tls_key),
        grace=how.grace,
        origins=[*how.origin],
        sandbox=_path(how.sandbox),
    )
    words = _Messages(common, plan, speaks)
    own = alone and common.url == default_store()
    with StoreCreation(common.url, folders=True) if own else contextlib.nullcontext():
        processes.run(plan, words.begun, words.ending, words.waiting)


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)


class _Messages:
    """Prints messages when a server starts, waits for its store, or stops."""

    def __init__(self, common: Common, plan: ServePlan, speaks: Choice) -> None:
        self._out, self._common, self._plan, self._speaks = common.output(), common, plan, speaks

    @property
    def _store(self) -> str:
        plan = self._plan
        return shown(self._common.url) if plan.config is None else plan.config

    def waiting(self) -> None:
        named = self._plan.config is None
        self._out.remark(WAITING.format(self._store if named else f"the store of {self._store}"))

    def begun(self, began: ServerStarted) -> None:
        plan, say = self._plan, self._out.remark
        scheme = "http" if plan.cert is None else "https"
        name = f"[{plan.host}]" if ":" in plan.host else plan.host
        say(f"serving {scheme}://{name}:{began.port}/v1 from {self._store}; Ctrl-C stops it")
        if began.console:
            hint = "; `holdfast token --url` prints its address with the login"
            url = console_url(plan, began, login=False)
            say(f"console: {url}{hint if began.token is not None else ''}")
        if began.token is not None:
            say(f"local token: {began.token}")
            say(
                "send it as `Authorization: Bearer TOKEN`; clients on this machine find it "
                f"automatically, and `holdfast token --port {began.port}` prints it"
            )
        if self._speaks.offline is not None:
            say(f"the model is {self._speaks.default}, because {self._speaks.offline}")
        if not began.kept:
            say(f"sessions are in memory and lost when the server stops: {self._remedy()}")
        if not began.known and began.kept:
            named, where = self._named_store()
            command = f"holdfast keys create NAME{named}"
            say(f"there are no keys, so all requests are rejected: `{command}` creates one{where}")
        elif not began.known:
            say("there are no keys, and none can be created in memory: all requests are rejected")
        if began.open:
            self._out.warn(OPEN)

    def ending(self, grace: float) -> None:
        self._out.remark(
            f"stopping: runs have up to {grace:g} s to reach a safe point, then another worker can "
            "take them over; Ctrl-C again stops at once"
        )

    def _remedy(self) -> str:
        if self._plan.config is None:
            return "--store URL keeps them"
        ignored = ""
        if os.environ.get("HOLDFAST_STORE"):
            ignored = "; HOLDFAST_STORE is ignored with --config"
        return f"[stores] in {self._plan.config} keeps them{ignored}"

    def _named_store(self) -> tuple[str, str]:
        """Return the option that selects the same store in another command. If its value may
        contain a password, also return where to find it."""
        if self._plan.config is None:
            url, where = self._common.store, "the same as here"
        else:
            kind, url = default_url(tomllib.loads(Path(self._plan.config).read_text()))
            where = f"that of [stores] {kind} in {self._plan.config}"
        if url is None:
            return "", ""
        variable = url.removeprefix(server_part("settings", "serve").ENVIRON)
        if variable != url:
            return f' --store "${variable}"', ""
        if shown(url) == url:
            return f" --store {shlex.quote(url)}", ""
        return " --store URL", f" (the URL is {where})"


def default_url(tables: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the kind of the default store in a settings file, and its URL as written in
    the file.
    """
    stores, server = tables.get("stores", {}), tables.get("server", {})
    kind = server.get("default_store") or next((name for name in stores if name != "memory"), "")
    about = stores.get(kind)
    return kind, about.get("url") if isinstance(about, dict) else about


def _named(agents: Sequence[str]) -> dict[str, str]:
    """Return the agents' import strings by the names that clients use."""
    found: dict[str, str] = {}
    for agent in agents:
        name, equals, at = agent.partition("=")
        if not equals:
            at, made = agent, find(agent)
            name = made.key if isinstance(made, Agent) else agent.partition(":")[2]
        if not name:
            raise UsageError(f"{agent!r} has no name before the `=`: write NAME=module:name")
        if name in found:
            raise UsageError(
                f"{found[name]!r} and {at!r} are both named {name!r}: rename one of them with "
                "NAME=module:name"
            )
        found[name] = at
    return found
