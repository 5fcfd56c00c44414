"""`holdfast keys`: create, list, rotate and revoke the API keys of a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from cyclopts import Parameter

from ..environment import wall_clock
from .error_report import UsageError
from .options import DEFAULTS, Common, create_store, default_store, seconds, server_part
from .render import moment_or, table_text

if TYPE_CHECKING:
    from ..server.auth.keys import ApiKeys, NewKey

NAME, SECRET = 12, 43  # characters of a key after `hk_`: its id and its secret

Id: TypeAlias = Annotated[
    str, Parameter(help="Key id: the 12 characters after hk_. The whole key works too.")
]
Expires: TypeAlias = Annotated[
    str | None, Parameter(help="Lifetime, such as 90d. Default: the key does not expire.")
]


async def create(
    principal: str,
    /,
    *,
    scope: list[str] | None = None,
    expires: Expires = None,
    label: str | None = None,
    common: Common = DEFAULTS,
) -> None:
    """Create a key for the tenant and print it once.

    ```
    holdfast keys create ann --scope sessions:read
    ```

    Creates the store if it does not exist. With `--json`, prints one JSON object.

    :param principal: User or program that gets the key.
    :param scope: Permission of the key; repeatable. Default: sessions:read, sessions:write,
        files:read, files:write.
    :param label: Label to show in `holdfast keys list`.
    """
    until = _until(expires)
    more: dict[str, Any] = {} if scope is None else {"scopes": scope}
    async with _keys(common, new=True) as keys:
        made = await keys.create(
            principal=principal, tenant=common.tenant, expires=until, label=label, **more
        )
    _show_new(common, made)


async def list_(*, common: Common = DEFAULTS) -> None:
    """List the keys of the tenant, newest first, without their secrets.

    ```
    holdfast keys list
    ```

    With `--json`, prints one JSON list.
    """
    out = common.output()
    async with _keys(common) as keys:
        found = await keys.list(common.tenant)
    rows = [
        {
            "ID": info.id,
            "PRINCIPAL": info.principal,
            "EXPIRES": "revoked" if info.revoked else moment_or("never", info.expires),
            "LABEL": info.label or "",
            "SCOPES": " ".join(info.scopes),
        }
        for info in found
    ]
    table = table_text(rows, out.console.width, optional=("LABEL",))
    out.show(msgspec.to_builtins(found), table, f"tenant {common.tenant!r} has no keys")


async def revoke(id: Id, /, *, common: Common = DEFAULTS) -> None:
    """Revoke a key. Every server rejects it within five seconds.

    ```
    holdfast keys revoke Ab3dEf6hIj9k
    ```

    With `--json`, prints one JSON object.
    """
    name = _id(id)
    async with _keys(common) as keys:
        info = await keys.revoke(name)
    common.output().show(msgspec.to_builtins(info), f"{info.id} is revoked")


async def rotate(
    id: Id,
    /,
    *,
    grace: str = "0s",
    expires: Expires = None,
    common: Common = DEFAULTS,
) -> None:
    """Replace a key's secret and print the new key once.

    ```
    holdfast keys rotate Ab3dEf6hIj9k --grace 1h
    ```

    With `--json`, prints one JSON object.

    :param grace: How long the old secret stays valid, such as 1h.
    """
    name, until, left = _id(id), _until(expires), seconds("--grace", grace)
    async with _keys(common) as keys:
        made = await keys.rotate(name, grace=left, expires=until)
    _show_new(common, made)


def _id(text: str) -> str:
    """Return the id of a key. The argument is the id or the whole key, which is never shown."""
    body = text.strip().removeprefix("hk_")
    whole = len(body) in (NAME, NAME + SECRET)
    if whole and body.isascii() and body.isalnum():
        return body[:NAME]
    raise UsageError(
        f"a key id has {NAME} letters and digits after hk_, got {len(body)} characters; "
        "`holdfast keys list` shows the ids"
    )


def _until(expires: str | None) -> int | None:
    return None if expires is None else wall_clock() + seconds("--expires", expires) * 1000


def _show_new(common: Common, made: NewKey) -> None:
    out = common.output()
    out.show({"key": made.key, **msgspec.to_builtins(made.info)}, made.key)
    out.note(f"save this key now: only its hash is stored. Its id is {made.info.id}")


@asynccontextmanager
async def _keys(common: Common, *, new: bool = False) -> AsyncGenerator[ApiKeys, None]:
    """Open the keys of the store; with `new`, create the store if it does not exist."""
    part = await asyncio.to_thread(server_part, "auth.keys", "keys")
    made = create_store(common.url, folders=common.url == default_store())
    async with made if new else common.open() as store:
        yield part.ApiKeys(store)
