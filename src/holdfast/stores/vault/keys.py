"""The vault: the master keys that encrypt a store's data keys.

You provide the master keys, one or more for all tenants or per tenant. The first key encrypts, and
all keys decrypt. Master keys never encrypt data directly: each tenant has its own random **data
keys**, which the store keeps encrypted with a master key. So changing a master key rewrites only a
few bytes per tenant.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ...errors import InvalidValue
from ...log.events import ADK_STATE_TENANT, USAGE_TENANT

RESERVED = "holdfast.vault"  # name of the session and tenant that store only keys
ENV = "env:"
KEY_BYTES = 32
FILE_BYTES = 1 << 20

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Master(NamedTuple):
    """One master key, with the name that identifies it in the stored data keys."""

    name: str
    secret: bytes

    def __repr__(self) -> str:
        return f"Master(name={self.name!r})"


class Vault:
    """The master keys of an encrypted store: `connect(url, vault=Vault([...]))`.

    A key has the form `NAME:BASE64`: a name of your choice and 32 random bytes. `new_key` creates a
    key. The first of `keys` encrypts, and all of them decrypt. `tenants` gives some tenants their
    own keys, which replace `keys` for these tenants. It is read whenever a tenant's keys are read,
    so you may add tenants later.

    ```python
    vault = Vault([Vault.new_key("2026-11")])
    store = connect("sqlite:shop.db", vault=vault)
    ```
    """

    def __init__(
        self, keys: Sequence[str], *, tenants: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self._keys = _masters("keys", keys)
        if not isinstance(tenants, Mapping | None):
            raise _refused("tenants", "is not a mapping of names to lists of keys")
        tenants = {} if tenants is None else tenants
        # A function, so that listing the vault's attributes shows no key.
        self._own: Callable[[str, object], object] = tenants.get
        for tenant in tenants:
            self.masters(tenant)

    def __repr__(self) -> str:
        return f"Vault({[key.name for key in self._keys]})"

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Vault:
        """Load a vault from a TOML file: `keys = [...]`, and a table `[tenants]` with lists of
        keys; or from the environment: `env:NAME` names a variable that holds keys, separated by
        commas."""
        if str(path).startswith(ENV):
            return cls._in_environment(str(path).removeprefix(ENV))
        import tomllib  # noqa: PLC0415 - rarely needed, and slow to import

        try:
            with Path(path).open("rb") as file:
                text = file.read(FILE_BYTES + 1)
            if len(text) > FILE_BYTES:
                raise _no_file(path, "is larger than 1 MiB")
            said = tomllib.loads(text.decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError):
            # Without the content, which may be keys.
            raise _no_file(path, "is not TOML") from None
        except (OSError, ValueError) as error:
            raise _no_file(path, f"cannot be read ({error})") from error
        keys, tenants = said.pop("keys", ()), said.pop("tenants", {})
        if said or not isinstance(tenants, dict):
            raise _no_file(path, "must have only `keys` and a table `tenants`")
        return cls(keys, tenants=tenants)

    @classmethod
    def _in_environment(cls, name: str) -> Vault:
        if not (text := os.environ.get(name)):
            raise InvalidValue(
                field="vault",
                problem=f"the environment variable {name!r} is not set",
                remedy="set it",
            )
        return cls([key.strip() for key in text.split(",")])

    @staticmethod
    def new_key(name: str) -> str:
        """Create a key with this name: 32 random bytes. Store the key separately from the store's
        backups."""
        _check_name("name", name)
        return f"{name}:{base64.b64encode(os.urandom(KEY_BYTES)).decode()}"

    def masters(self, tenant: str) -> tuple[Master, ...]:
        """Return the master keys of a tenant; the first encrypts. The state that Google ADK's
        adapter keeps for a tenant, and the counted usage, are encrypted with the keys of that
        tenant."""
        tenant = tenant.removeprefix(ADK_STATE_TENANT).removeprefix(USAGE_TENANT)
        own = self._own(tenant, self)
        return self._keys if own is self else _masters(f"tenants.{tenant}", own)


def _masters(field: str, keys: object) -> tuple[Master, ...]:
    if isinstance(keys, (str, bytes)) or not isinstance(keys, Sequence) or not keys:
        raise _refused(field, "is not a list of keys")
    masters = tuple(_master(f"{field}[{n}]", key) for n, key in enumerate(keys))
    if len({key.name for key in masters}) < len(masters):
        raise _refused(field, "has two keys with the same name")
    return masters


def _master(field: str, key: object) -> Master:
    # Errors quote nothing of the text: a malformed name may be part of a key.
    name, colon, text = key.partition(":") if isinstance(key, str) else ("", "", "")
    if not colon:
        raise _refused(field, "is not NAME:BASE64")
    _check_name(field, name)
    try:
        secret = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if len(secret) != KEY_BYTES:
        raise _refused(field, f"is not {KEY_BYTES} bytes in base64")
    if len(set(secret)) < KEY_BYTES // 4:
        raise _refused(field, "is not a random key")
    return Master(name, secret)


def _check_name(field: str, name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _refused(field, "needs a name of 1 to 64 letters, digits, '.', '_' or '-'")


def _no_file(path: str | os.PathLike[str], problem: str) -> InvalidValue:
    return InvalidValue(
        field="vault",
        problem=f"{os.fspath(path)!r} {problem}",
        remedy="create one with `holdfast vault new`",
    )


def _refused(field: str, problem: str) -> InvalidValue:
    return InvalidValue(
        field=field,
        problem=problem,
        remedy="write each key as NAME:BASE64, as `holdfast vault new` prints it",
    )
