"""`holdfast vault`: the keys of an encrypted store, made, listed and changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import App, Group, Parameter
from rich.table import Table
from rich.text import Text

from ..errors import InvalidValue
from ..stores.port import Store
from ..stores.vault import Vault
from .options import EVERYWHERE, Common
from .output import plain
from .render import number

if TYPE_CHECKING:
    from ..stores.vault.store import VaultStore

HELP = """The keys of a store that is encrypted. A vault is a TOML file with the master keys; name
it in the URL of the store.

```
holdfast vault new 2026-11
holdfast vault list --store 'sqlite:shop.db?vault=vault.toml'
holdfast vault reseal --store 'sqlite:shop.db?vault=vault.toml'
```
"""


def app(group: Group, place: int) -> App:
    """The verbs of `holdfast vault`, to be shown at a place of a group."""
    vault = App(name="vault", help=HELP, help_format="markdown", group=group, sort_key=place)
    for at, (name, verb) in enumerate(VERBS.items()):
        vault.command(verb, name=name, sort_key=at)
    return vault


def new(
    name: Annotated[
        str | None, Parameter(help="What to call it. Default: today's date.", show_default=False)
    ] = None,
    /,
    *,
    common: Common = EVERYWHERE,
) -> None:
    """Print a new vault, with one master key.

    ```
    (umask 077; holdfast vault new 2026-11 > vault.toml)
    ```

    Keep the file where neither others nor the store's backups are: without it, nobody reads the
    store again. To rotate, add the new key to the file that you have (docs/encryption.md).
    """
    out = common.output()
    key = Vault.new_key(name or datetime.now(UTC).strftime("%Y-%m-%d"))
    if out.json:
        out.emit({"keys": [key]})
    else:
        out.print(f'keys = ["{key}"]')


def list_keys(*, common: Common = EVERYWHERE) -> None:
    """The data keys of every tenant, and which master key each is encrypted with now."""
    out = common.output()

    async def run() -> None:
        async with common.open() as store:
            found = await _encrypted(store).data_keys()
        if out.json:
            out.emit([msgspec.to_builtins(key) for key in found])
            return
        table = Table("tenant", "data key", "master key", "made under", "", box=None)
        for key in found:
            known = "" if key.readable else "not in this vault"
            words = (key.tenant, key.id, key.master, key.made, known)
            table.add_row(*(Text(plain(word)) for word in words))
        out.print(table if found else "nothing is encrypted yet")

    asyncio.run(run())


def reseal(*, common: Common = EVERYWHERE) -> int:
    """Encrypt the data keys of every tenant with the first key of the vault.

    ```
    holdfast vault reseal && echo "the other keys can go"
    ```

    Programs go on meanwhile. What is written afterwards is encrypted with new data keys. It can
    be cut and run again. The exit code is 1 where a data key is left, because the vault does not
    have its master key. Then `holdfast purge` removes what the store still keeps of before.
    """
    out = common.output()

    async def run() -> int:
        async with common.open() as store:
            found = await _encrypted(store).reseal()
        changed = sum(tenant.changed for tenant in found)
        left = sorted({name for tenant in found for name in tenant.left})
        if out.json:
            out.emit([msgspec.to_builtins(tenant) for tenant in found])
            return int(bool(left))
        out.print(
            f"{number(changed, 'data key')} of {number(len(found), 'tenant')} "
            f"{'was' if changed == 1 else 'were'} encrypted with the first key of the vault"
        )
        for name in left:
            out.print(
                f"some are left that are encrypted with {name!r}, which the vault does not have"
            )
        return int(bool(left))

    return asyncio.run(run())


async def lacking(store: Store, tenant: str) -> list[str]:
    """What is wrong with the keys of a store."""
    if not store.info().encrypted:
        return []
    await _encrypted(store).check_tenant(tenant)
    found = {key.master for key in await _encrypted(store).data_keys() if not key.readable}
    return [f"the vault lacks key {name!r}, or it is another one" for name in sorted(found)]


def _encrypted(store: Store) -> VaultStore:
    from ..stores.vault.store import VaultStore  # noqa: PLC0415 - needs cryptography

    if isinstance(store, VaultStore):
        return store
    raise InvalidValue(
        field="store", problem="is not encrypted", remedy="add ?vault=FILE to its URL"
    )


VERBS: dict[str, Callable[..., int | None]] = {"new": new, "list": list_keys, "reseal": reseal}
