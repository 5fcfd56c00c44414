"""`holdfast token`: the local token of a server on this machine."""

from __future__ import annotations

import shlex
from typing import Annotated

from cyclopts import Parameter, validators

from ..errors import InvalidValue
from ..local_token import LocalToken, find
from ..stores.address import address
from .options import EVERYWHERE, Common
from .output import plain

PORT = 7700  # where `holdfast serve` listens unless it is told otherwise


def token(
    *,
    port: Annotated[
        int | None,
        Parameter(
            help="The port of the server. Needed where several servers have a token.",
            validator=validators.Number(gte=1, lte=65_535),
        ),
    ] = None,
    common: Common = EVERYWHERE,
) -> int:
    """Print the local token of a server that runs without keys.

    ```
    holdfast token
    curl -H "Authorization: Bearer $(holdfast token)" http://127.0.0.1:7700/v1/sessions
    ```

    `holdfast serve` makes one for each port and store, and keeps it in your state folder. Where
    there are several, the one of the only server that runs is printed, else the one of port 7700
    and your store, else none: name it with `--port` and `--store`. With `--json`: one document.
    """
    found = chosen(find(port, None if common.store is None else address(common.store)), common)
    if len(found) != 1:
        raise _unclear(found, port, common)
    (one,) = found
    if common.json:
        about = {"token": one.token, "port": one.port, "store": one.store}
        common.output().emit({**about, "served": one.served(), "path": str(one.path)})
    else:
        print(one.token)
    return 0


def chosen(found: list[LocalToken], common: Common) -> list[LocalToken]:
    """Of several tokens the one that is meant, or all where that is not clear."""
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
        many = f"{len(running)} servers run" if running else "no server runs; tokens are kept of"
        return InvalidValue(
            field="token",
            problem=plain(f"{many}: {names}"),
            remedy="add the options of the one you mean",
        )
    of_port = "" if port is None else f" for port {port}"
    of_store = "" if common.store is None else f" for {address(common.store)}"
    return InvalidValue(
        field="token",
        problem=plain(f"there is no local token{of_port}{of_store}"),
        remedy="start a server that makes one: holdfast serve MODULE:NAME",
    )
