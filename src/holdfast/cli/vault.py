"""`holdfast vault`: create, list and re-encrypt the keys of an encrypted store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, cast

import msgspec
from cyclopts import Parameter

from ..errors import InvalidValue
from ..stores.port import Store
from ..stores.vault import Vault
from .options import DEFAULTS, Common
from .render import number, table_text

if TYPE_CHECKING:
    from ..stores.vault.store import VaultStore


async def new(
    name: Annotated[str | None, Parameter(show_default=False)] = None,
    /,
    *,
    common: Common = DEFAULTS,
) -> None:
    """Print a new vault with one master key.

    ```
    (umask 077; holdfast vault new 2026-11 > vault.toml)
    ```

    Keep the file private, and away from the store's backups: without it, nobody can read the store.
    To rotate, add the new key to your existing file (docs/encryption.md). With `--json`, prints one
    JSON object.

    :param name: Name of the key. Default: today's date.
    """
    key = Vault.new_key(name or datetime.now(UTC).strftime("%Y-%m-%d"))
    common.output().show({"keys": [key]}, f'keys = ["{key}"]')


async def list_(*, common: Common = DEFAULTS) -> None:
    """List the data keys of all tenants, with the master key of each.

    ```
    holdfast vault list
    ```

    With `--json`, prints one JSON list.
    """
    out = common.output()
    async with common.open() as store:
        found = await _encrypted(store).data_keys()
    rows = [
        {
            "TENANT": key.tenant,
            "DATA KEY": key.id,
            "MASTER KEY": key.master,
            "CREATED WITH": key.made,
            "": "" if key.readable else "not in this vault",
        }
        for key in found
    ]
    table = table_text(rows, out.console.width, optional=("CREATED WITH",))
    out.show(msgspec.to_builtins(found), table, "the store has no data keys yet")


async def reseal(*, common: Common = DEFAULTS) -> int:
    """Re-encrypt all data keys with the first master key of the vault.

    ```
    holdfast vault reseal && echo "the other master keys can be removed"
    ```

    Other programs can use the store at the same time, and new data gets new data keys. If the
    command is interrupted, run it again. The exit code is 1 if a data key could not be re-encrypted
    because the vault lacks its master key. Afterwards, `holdfast purge` removes old key material
    from the store's files. With `--json`, prints one JSON object.
    """
    async with common.open() as store:
        found = await _encrypted(store).reseal()
    changed = sum(tenant.changed for tenant in found)
    left = sorted({name for tenant in found for name in tenant.left})
    lines = [
        f"re-encrypted {number(changed, 'data key')} of {number(len(found), 'tenant')} with the "
        "first master key of the vault",
        *(f"some data keys still need master key {name!r}, which the vault lacks" for name in left),
    ]
    common.output().show(msgspec.to_builtins(found), lines)
    return int(bool(left))


async def problems(store: Store, tenant: str) -> list[str]:
    """Return the problems with the keys of a store, such as a missing master key."""
    if not store.info().encrypted:
        return []
    vault = _encrypted(store)
    await vault.check_tenant(tenant)
    found = {key.master for key in await vault.data_keys() if not key.readable}
    return [f"master key {name!r} is missing or differs in the vault" for name in sorted(found)]


def _encrypted(store: Store) -> VaultStore:
    if store.info().encrypted:
        return cast("VaultStore", store)
    raise InvalidValue(
        field="store", problem="is not encrypted", remedy="add ?vault=FILE to its URL"
    )
