"""`holdfast token`: print the local token of a server on this machine."""

from __future__ import annotations

import shlex
from typing import Annotated

from cyclopts import Parameter, validators

from ..errors import InvalidValue
from ..local_token import HOST, LocalToken, find
from ..stores.url_display import address
from .options import DEFAULTS, Common

PORT = 7700  # default port of `holdfast serve`


def token(
    *,
    port: Annotated[int | None, Parameter(validator=validators.Number(gte=1, lte=65_535))] = None,
    url: bool = False,
    common: Common = DEFAULTS,
) -> None:
    """Print the local token of a server on this machine.

    ```
    holdfast token
    curl -H "Authorization: Bearer $(holdfast token)" http://127.0.0.1:7700/v1/sessions
    ```

    `holdfast serve` creates a token for each port and store in your state folder. If there are
    several and exactly one server is running, its token is printed; otherwise the token for port
    7700 and your store. If neither applies, choose one with `--port` and `--store`. With `--json`,
    prints one JSON object.

    :param port: Port of the server. Required if several servers have a token.
    :param url: Print the URL of the console with the token in it, which logs you in.
    """
    found = chosen(find(port, None if common.store is None else address(common.store)), common)
    if len(found) != 1:
        raise _unclear(found, port, common)
    (one,) = found
    about = {"token": one.token, "port": one.port, "store": one.store}
    text = f"http://{HOST}:{one.port}/console?token={one.token}" if url else one.token
    common.output().show({**about, "served": one.served(), "path": str(one.path)}, text)


def chosen(found: list[LocalToken], common: Common) -> list[LocalToken]:
    """Return the token to print, or all tokens if the options and the running servers do not
    determine one.
    """
    if len(found) > 1 and len(served := [one for one in found if one.served()]) == 1:
        return served
    usual = [one for one in found if (one.port, one.store) == (PORT, address(common.url))]
    return usual if len(found) > 1 and usual else found


def _named(one: LocalToken) -> str:
    return f"--port {one.port} --store {shlex.quote(one.store)}"


def _unclear(found: list[LocalToken], port: int | None, common: Common) -> InvalidValue:
    if found:
        running = [one for one in found if one.served()]
        names = "; ".join(_named(one) for one in running or found)
        many = f"{len(running)} servers are running" if running else "several servers have a token"
        return InvalidValue(
            field="token",
            problem=f"{many} ({names})",
            remedy="choose one with --port and --store",
        )
    of_port = "" if port is None else f" for port {port}"
    of_store = "" if common.store is None else f" for {address(common.store)}"
    return InvalidValue(
        field="token",
        problem=f"there is no local token{of_port}{of_store}",
        remedy="start a server with `holdfast serve MODULE:NAME`, which creates one",
    )
