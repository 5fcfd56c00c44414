"""`holdfast keys`: who may use a server, made, listed, renewed and taken away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import msgspec
from cyclopts import App, Group, Parameter
from rich.table import Table
from rich.text import Text

from ..errors import MissingExtra
from ..stores import connect
from ..stores.creation import StoreCreation
from ..stores.port import wall_clock
from .failure import UsageError
from .options import EVERYWHERE, Common, default_store, seconds
from .output import Output, plain
from .render import moment

if TYPE_CHECKING:
    from ..server.auth.keys import ApiKeys, NewKey

T = TypeVar("T")
NAME, SECRET = 12, 43  # characters of a key behind `hk_`: its id, and what is secret
HELP = """The keys of a server: who may ask it, and for what. A key is shown once, when it is made.

```
holdfast keys create ann --scope sessions:read --scope sessions:write
holdfast keys rotate Ab3dEf6hIj9k --grace 1h
```
"""
Id: TypeAlias = Annotated[
    str, Parameter(help="The key's id: the twelve characters after hk_. The key is as good.")
]
Expires: TypeAlias = Annotated[
    str | None, Parameter(help="How long it is good for, such as 90d. Default: for ever.")
]


def app(group: Group, place: int) -> App:
    """The verbs of `holdfast keys`, to be shown at a place of a group."""
    keys = App(name="keys", help=HELP, help_format="markdown", group=group, sort_key=place)
    for at, (name, verb) in enumerate(VERBS.items()):
        keys.command(verb, name=name, sort_key=at)
    return keys


def create(
    principal: Annotated[str, Parameter(help="Whose it is: a person, or a program.")],
    /,
    *,
    scope: Annotated[
        list[str] | None,
        Parameter(
            help="What it may do; several are allowed. Default: sessions:read, sessions:write, "
            "files:read, files:write."
        ),
    ] = None,
    expires: Expires = None,
    label: Annotated[str | None, Parameter(help="A word to know it by.")] = None,
    common: Common = EVERYWHERE,
) -> None:
    """Make a key for the tenant, and show it once."""
    out = common.output()
    until = _until(expires)

    async def make(keys: ApiKeys) -> NewKey:
        more: dict[str, Any] = {} if scope is None else {"scopes": scope}
        return await keys.create(
            principal=principal, tenant=common.tenant, expires=until, label=label, **more
        )

    _show_new(out, _with(common, make, new=True))


def list_keys(*, common: Common = EVERYWHERE) -> None:
    """The keys of the tenant, the newest first. No key itself is shown."""
    out = common.output()
    found = _with(common, lambda keys: keys.list(common.tenant))
    if out.json:
        out.emit([msgspec.to_builtins(info) for info in found])
        return
    table = Table("id", "principal", "scopes", "until", "label", box=None)
    for info in found:
        until = "revoked" if info.revoked is not None else "for ever"
        if info.revoked is None and info.expires is not None:
            until = moment(info.expires)
        words = (info.id, info.principal, " ".join(info.scopes), until, info.label or "")
        table.add_row(*(Text(plain(word)) for word in words))
    out.print(table if found else f"there are no keys of tenant {common.tenant}")


def revoke(id: Id, /, *, common: Common = EVERYWHERE) -> None:
    """Let a key be good for nothing; every server knows within five seconds."""
    out = common.output()
    name = _id(id)
    info = _with(common, lambda keys: keys.revoke(name))
    if out.json:
        out.emit(msgspec.to_builtins(info))
    else:
        out.print(f"{info.id} is revoked")


def rotate(
    id: Id,
    /,
    *,
    grace: Annotated[str, Parameter(help="How long the old one is still good, such as 1h.")] = "0s",
    expires: Expires = None,
    common: Common = EVERYWHERE,
) -> None:
    """Give a key a new secret, and show it once."""
    out = common.output()
    name, until, left = _id(id), _until(expires), seconds("--grace", grace)
    _show_new(out, _with(common, lambda keys: keys.rotate(name, grace=left, expires=until)))


def _id(text: str) -> str:
    """The id of a key by its id or by the key itself, which is never shown."""
    body = text.strip().removeprefix("hk_")
    whole = len(body) in (NAME, NAME + SECRET)
    if whole and body.isascii() and body.isalnum():
        return body[:NAME]
    raise UsageError(
        f"a key's id is the {NAME} letters and digits after hk_; what was given has {len(body)} "
        "characters (`holdfast keys list` shows the ids)"
    )


def _until(expires: str | None) -> int | None:
    return None if expires is None else wall_clock() + seconds("--expires", expires) * 1000


def _show_new(out: Output, made: NewKey) -> None:
    if out.json:
        out.emit({"key": made.key, **msgspec.to_builtins(made.info)})
        return
    out.print(made.key)
    out.remark(f"keep it now: only its hash is stored. Its id is {made.info.id}")


def _with(common: Common, work: Callable[[ApiKeys], Awaitable[T]], *, new: bool = False) -> T:
    """Do it with the keys of the store, which the first key may make."""
    try:
        from ..server.auth.keys import ApiKeys  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra(extra="server", needed_for="holdfast keys") from error

    async def run() -> T:
        folders = new and common.url == default_store()
        async with (
            StoreCreation(common.url, folders=folders),
            connect(common.url) if new else common.open() as store,
        ):
            return await work(ApiKeys(store))

    return asyncio.run(run())


VERBS: dict[str, Callable[..., None]] = {
    "create": create,
    "list": list_keys,
    "revoke": revoke,
    "rotate": rotate,
}
