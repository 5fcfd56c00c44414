"""`holdfast console`: show a store in a browser."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from ..stores.url_display import shown
from .options import DEFAULTS, WAITING, Common, server_part

if TYPE_CHECKING:
    from ..server.preflight import ServerStarted
    from ..server.processes import ServePlan

GRACE = 1.0  # seconds until open connections are closed; nothing runs here


def console(
    *,
    host: str = "127.0.0.1",
    port: Annotated[int, Parameter(validator=validators.Number(gte=0, lte=65_535))] = 7701,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    common: Common = DEFAULTS,
) -> None:
    """Serve the web console of a store until Ctrl-C.

    ```
    holdfast console --store sqlite:shop.db
    ```

    In the console, you view the sessions of the store and decide pending items. No agent is needed:
    the processes that serve the agents continue the runs. The command prints a URL that logs you
    in. With `--host` and an address that other machines can reach, log in with an API key
    (`holdfast keys create`).

    :param host: Address to listen on.
    :param port: Port; 0 chooses a free one.
    :param tls_cert: TLS certificate file (PEM).
    :param tls_key: TLS private key file (PEM).
    """
    processes = server_part("processes", "console")
    is_loopback = server_part("auth.callers", "console").is_loopback
    asyncio.run(_check(common))
    plan: ServePlan = processes.ServePlan(
        store=common.url,
        auth="local" if is_loopback(host) else "keys",
        host=host,
        port=port,
        cert=None if tls_cert is None else str(tls_cert),
        key=None if tls_key is None else str(tls_key),
        grace=GRACE,
        tenant=common.tenant,
    )
    say = common.output().remark

    def begun(began: ServerStarted) -> None:
        say(f"console of {shown(common.url)}; Ctrl-C stops it")
        say(f"open {console_url(plan, began)}")
        if not began.known:
            say("there are no keys, so nobody can log in: `holdfast keys create NAME` creates one")

    def waiting() -> None:
        say(WAITING.format(shown(common.url)))

    processes.run(plan, begun, waiting=waiting)


async def _check(common: Common) -> None:
    """Raise an error if the store does not exist or is not up to date."""
    async with common.open():
        pass


def console_url(plan: ServePlan, began: ServerStarted, *, login: bool = True) -> str:
    """Return the address of the console; with `login`, it contains the local token, if any."""
    scheme = "http" if plan.cert is None else "https"
    name = f"[{plan.host}]" if ":" in plan.host else plan.host
    token = f"?token={began.token}" if login and began.token is not None else ""
    return f"{scheme}://{name}:{began.port}/console{token}"
