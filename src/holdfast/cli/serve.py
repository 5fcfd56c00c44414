"""`holdfast serve`: agents over HTTP."""

from __future__ import annotations

import contextlib
import os
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, validators

from ..errors import MissingExtra
from ..harness.agents.agent import Agent
from ..stores.address import shown
from ..stores.creation import StoreCreation
from .agents import Choice, ModelRef, choose, find
from .failure import UsageError
from .options import EVERYWHERE, WAITED, Common, default_store

if TYPE_CHECKING:
    from ..server.preflight import ServerStarted
    from ..server.processes import ServePlan

OPEN = (
    "WARNING: this server asks for no token. Every program and every user of this machine may use "
    "it, and so may everybody whose requests a proxy on this machine forwards here. Leave out "
    '`--auth none` (kind = "none" in a file), or use keys.'
)
Port = Annotated[
    int,
    Parameter(
        help="The port; 0 is any that is free.", validator=validators.Number(gte=0, lte=65_535)
    ),
]


def serve(
    *agents: Annotated[
        str,
        Parameter(
            help="The agents, each as module:name; NAME=module:name gives one another name than "
            "its own."
        ),
    ],
    config: Annotated[
        Path | None, Parameter(help="A TOML file with all settings, in place of the options.")
    ] = None,
    host: Annotated[str, Parameter(help="The address to listen at.")] = "127.0.0.1",
    port: Port = 7700,
    auth: Annotated[
        Literal["keys", "secret", "local", "none"] | None,
        Parameter(
            help="Who may ask: those with a key (`holdfast keys create`), with the secret in "
            "$HOLDFAST_SECRET, or with the local token (`holdfast token`); `none` asks for nothing "
            "and is open to every program on this machine, proxies too. Default: local on a "
            "loopback address, else keys."
        ),
    ] = None,
    model: ModelRef = None,
    workers: Annotated[
        int, Parameter(help="How many processes.", validator=validators.Number(gte=1, lte=64))
    ] = 1,
    tls_cert: Annotated[Path | None, Parameter(help="A certificate, in PEM.")] = None,
    tls_key: Annotated[Path | None, Parameter(help="Its key, in PEM.")] = None,
    origin: Annotated[
        tuple[str, ...],
        Parameter(help="The origin of pages that browsers may ask from; may be given again."),
    ] = (),
    sandbox: Annotated[
        Path | None, Parameter(help="A folder: each session gets one in it, for its tools.")
    ] = None,
    grace: Annotated[
        float | None,
        Parameter(help="Seconds that runs get to reach a safe point when the server ends."),
    ] = None,
    common: Common = EVERYWHERE,
) -> None:
    """Serve agents over HTTP, until Ctrl-C.

    ```
    holdfast serve shop.agents:support
    holdfast serve --config server.toml --host 0.0.0.0 --workers 4
    ```

    Sessions are in the store; any number of servers may share one. `/v1/docs` shows what can be
    asked for.
    """
    try:
        from ..server.auth.callers import is_loopback  # noqa: PLC0415
        from ..server.processes import ServePlan, run  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra(extra="server", needed_for="holdfast serve") from error
    if not agents and config is None:
        raise UsageError("serve takes an agent as module:name, or --config FILE")
    if agents and config is not None:
        raise UsageError("serve takes agents or --config, not both")
    elsewhere = (auth, model, sandbox, common.store)
    if config is not None and any(option is not None for option in elsewhere):
        raise UsageError(
            "--store, --auth, --model and --sandbox stand in the file that --config names"
        )
    named, speaks = _named(agents), Choice()
    for at in named.values():
        speaks = speaks if speaks.default else choose(find(at), model)
    local = is_loopback(host)
    plan = ServePlan(
        config=None if config is None else str(config),
        agents=named,
        store=None if config is not None else common.url,
        auth=auth or ("local" if local else "keys") if config is None else None,
        model=speaks.default,
        chosen=speaks.ref is None or speaks.offline is not None,
        host=host,
        port=port,
        workers=workers,
        cert=None if tls_cert is None else str(tls_cert),
        key=None if tls_key is None else str(tls_key),
        grace=grace,
        origins=[*origin],
        sandbox=None if sandbox is None else str(sandbox),
    )
    words = _Words(common, plan, speaks)
    own = config is None and common.url == default_store()
    with StoreCreation(common.url, folders=True) if own else contextlib.nullcontext():
        run(plan, words.begun, words.ending, words.waiting)


class _Words:
    """What is said while it serves."""

    def __init__(self, common: Common, plan: ServePlan, speaks: Choice) -> None:
        self._out, self._common, self._plan, self._speaks = common.output(), common, plan, speaks

    @property
    def _store(self) -> str:
        plan = self._plan
        return shown(self._common.url) if plan.config is None else plan.config

    def waiting(self) -> None:
        named = self._plan.config is None
        self._out.remark(WAITED.format(self._store if named else f"the store of {self._store}"))

    def begun(self, began: ServerStarted) -> None:
        plan, say = self._plan, self._out.remark
        scheme = "http" if plan.cert is None else "https"
        name = f"[{plan.host}]" if ":" in plan.host else plan.host
        where = self._store
        say(f"serving {scheme}://{name}:{began.port}/v1 from {where}; Ctrl-C ends it")
        if began.token is not None:
            say(f"local token: {began.token}")
            say(
                "send it as `Authorization: Bearer TOKEN`; your clients on this machine find it by "
                f"themselves, and `holdfast token --port {began.port}` prints it"
            )
        if self._speaks.offline is not None:
            model = self._speaks.default
            say(f"no vendor is asked, since {self._speaks.offline}: the model is {model}")
        if not began.kept:
            say(f"sessions are in memory, and gone when it ends: {self._remedy()}")
        if not began.known and began.kept:
            named, where = self._named_store()
            command = f"holdfast keys create NAME{named}"
            say(f"there are no keys, so nobody may ask: `{command}` makes one{where}")
        elif not began.known:
            say("there are no keys, and none can be made for it in memory: nobody may ask")
        if began.open:
            self._out.warn(OPEN)

    def ending(self, grace: float) -> None:
        self._out.remark(
            f"ending: runs have up to {grace:g} s to reach a safe point, then they are handed "
            "over; Ctrl-C again ends at once"
        )

    def _remedy(self) -> str:
        if self._plan.config is None:
            return "--store URL keeps them"
        ignored = ", and HOLDFAST_STORE counts without a file" if _has_named_store() else ""
        return f"[stores] in {self._plan.config} keeps them{ignored}"

    def _named_store(self) -> tuple[str, str]:
        """The option by which another command finds the same store, and where its value is to be
        had if it cannot be shown: one may hold a password."""
        from ..server.settings import ENVIRON  # noqa: PLC0415 - an extra

        if self._plan.config is None:
            url, where = self._common.store, "as it was given here"
        else:
            kind, url = default_url(tomllib.loads(Path(self._plan.config).read_text()))
            where = f"that of [stores] {kind} in {self._plan.config}"
        if url is None:
            return "", ""
        if url.startswith(ENVIRON):
            return f' --store "${url.removeprefix(ENVIRON)}"', ""
        if shown(url) == url:
            return f" --store {shlex.quote(url)}", ""
        return " --store URL", f" (the URL is {where})"


def default_url(tables: Mapping[str, Any]) -> tuple[str, str | None]:
    """The kind of the default store of a file of settings, and its URL as it stands there."""
    stores, server = tables.get("stores", {}), tables.get("server", {})
    kind = server.get("default_store") or next((name for name in stores if name != "memory"), "")
    about = stores.get(kind)
    return kind, about.get("url") if isinstance(about, dict) else about


def _has_named_store() -> bool:
    return bool(os.environ.get("HOLDFAST_STORE"))


def _named(agents: Sequence[str]) -> dict[str, str]:
    """The agents' places by the names that clients ask for."""
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
                f"{found[name]!r} and {at!r} are both called {name!r}: give one another name, "
                "NAME=module:name"
            )
        found[name] = at
    return found
