"""`holdfast serve`: agents over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter, validators

from ..errors import MissingExtra
from .agents import Choice, ModelRef, choose, find
from .failure import UsageError
from .options import EVERYWHERE, Common, place, shown

Port = Annotated[
    int,
    Parameter(
        help="The port; 0 is any that is free.", validator=validators.Number(gte=0, lte=65_535)
    ),
]


def serve(
    *agents: Annotated[
        str,
        Parameter(help="The agents, each as module:name; NAME=module:name gives one a name."),
    ],
    config: Annotated[
        Path | None, Parameter(help="A TOML file with all settings, in place of the options.")
    ] = None,
    host: Annotated[str, Parameter(help="The address to listen at.")] = "127.0.0.1",
    port: Port = 7700,
    auth: Annotated[
        Literal["keys", "secret", "none"] | None,
        Parameter(
            help="Who may ask: those with a key (`holdfast keys create`), with the secret in "
            "$HOLDFAST_SECRET, or everybody on this machine. Default: none on a loopback "
            "address, else keys."
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
        from ..server.auth import is_loopback  # noqa: PLC0415
        from ..server.running import Plan, run  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra(extra="server", needed_for="holdfast serve") from error
    if not agents and config is None:
        raise UsageError("serve takes an agent as module:name, or --config FILE")
    if agents and config is not None:
        raise UsageError("serve takes agents or --config, not both")
    if config is not None and any(option is not None for option in (auth, model, sandbox)):
        raise UsageError("--auth, --model and --sandbox stand in the file that --config names")
    named, speaks = dict(map(_named, agents)), Choice()
    for at in named.values():
        speaks = speaks if speaks.default else choose(find(at), model)
    local = is_loopback(host)
    plan = Plan(
        config=None if config is None else str(config),
        agents=named,
        store=None if config is not None else common.url,
        auth=auth or ("none" if local else "keys") if config is None else None,
        model=speaks.default,
        host=host,
        port=port,
        workers=workers,
        cert=None if tls_cert is None else str(tls_cert),
        key=None if tls_key is None else str(tls_key),
        grace=grace,
        origins=[*origin],
        sandbox=None if sandbox is None else str(sandbox),
    )
    if config is None and (path := place(common.url)) is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    scheme = "http" if tls_cert is None else "https"
    out = common.output()
    where = shown(common.url) if config is None else str(config)

    def begun(port: int) -> None:
        name = f"[{host}]" if ":" in host else host
        out.remark(f"serving {scheme}://{name}:{port}/v1 from {where}; Ctrl-C ends it")
        if speaks.offline is not None:
            out.remark(f"no vendor is asked, since {speaks.offline}: the model is {speaks.default}")

    run(plan, begun)


def _named(agent: str) -> tuple[str, str]:
    name, equals, at = agent.partition("=")
    return (name, at) if equals else (agent.partition(":")[2], agent)
