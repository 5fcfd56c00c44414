"""The stores, and `connect`, which opens a store by its URL.

A store's module and its database driver are imported only when a URL with its scheme is opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any
from urllib.parse import unquote

from ..errors import InvalidValue, MissingExtra
from ..log.events import Scope
from .port import Store
from .url_options import read_options, reject_unknown, split_url
from .vault.keys import RESERVED, Vault

Opener = Callable[[str], Awaitable[Store]]


class Connecting:
    """The result of `connect`: await it to open the store, or use it with `async with`, which also
    closes the store."""

    def __init__(self, open: Callable[[], Awaitable[Store]]) -> None:
        self._open = open
        self._store: Store | None = None

    def __await__(self) -> Generator[Any, None, Store]:
        return self._open().__await__()

    async def __aenter__(self) -> Store:
        self._store = await self._open()
        return self._store

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._store is not None:
            await self._store.aclose()


def connect(url: str, *, vault: Vault | None = None, portal: bool = False) -> Connecting:
    """Open the store at `url`: `memory:`, `file:DIR`, `sqlite:PATH`, `postgresql://…` or
    `mongodb://…`, with options after a `?`. An unknown scheme raises `InvalidValue` here, before
    anything is opened.

    With a `vault`, or the option `vault=FILE`, the store is encrypted.

    A store belongs to the event loop on which it is opened; on another loop, its methods raise
    `WrongLoop`. With `portal`, the result is a `PortalStore`, which other event loops and threads
    may use too.

    See [stores](../stores.md).
    """
    if not isinstance(url, str):
        raise InvalidValue(
            field="url", problem=f"is {type(url).__name__}", remedy="pass a str such as sqlite:PATH"
        )
    if portal:
        inner = connect(url, vault=vault)
        return Connecting(lambda: _with_portal(inner))
    url, file = without_vault(url)
    if file is not None and vault is not None:
        raise InvalidValue(
            field="vault",
            problem="was passed twice, as an argument and in the URL",
            remedy="pass it once",
        )
    scheme, colon, _ = url.partition(":")
    opener = OPENERS.get(scheme)
    if opener is None or not colon:
        raise InvalidValue(
            field="url",
            problem=f"has an unknown scheme ({scheme!r})" if colon and scheme else "has no scheme",
            remedy="use one of "
            + ", ".join(f"{name}:" for name in OPENERS)
            + "; a SQLite file is sqlite:PATH",
        )
    if file is None and vault is None:
        return Connecting(lambda: _plain(opener, url))
    return Connecting(lambda: _behind(vault or file or "", opener, url))


def without_vault(url: str) -> tuple[str, str | None]:
    """Remove the option `vault` from a URL. Returns the URL without the option, and the path of the
    vault file."""
    place, mark, query = url.partition("?")
    options = query.split("&") if mark else []
    named = [option for option in options if option.partition("=")[0] == "vault"]
    if not named:
        return url, None
    if len(named) > 1:
        raise InvalidValue(field="vault", problem="occurs twice in the URL", remedy="pass it once")
    rest = "&".join(option for option in options if option not in named)
    return f"{place}?{rest}" if rest else place, unquote(named[-1].partition("=")[2])


async def _with_portal(connecting: Connecting) -> Store:
    from ..portal import Portal, in_trio, process_portal
    from .portal import PortalStore

    portal = process_portal() if in_trio() else Portal()
    return PortalStore(await portal.run(_opened, connecting), portal)


async def _opened(connecting: Connecting) -> Store:
    return await connecting


async def _plain(opener: Opener, url: str) -> Store:
    """Open the store at `url` without encryption. Reject an encrypted store, because unencrypted
    writes would damage it."""
    store = await opener(url)
    try:
        if await store.claims(Scope(RESERVED, RESERVED)):
            raise InvalidValue(
                field="vault",
                problem="is required, because this store is encrypted",
                remedy="pass connect(url, vault=...), or add ?vault=FILE to the URL",
            )
    except BaseException:
        await store.aclose()
        raise
    return store


async def _behind(vault: Vault | str, opener: Opener, url: str) -> Store:
    """Open the store at `url` and wrap it in encryption. `vault` is a vault, or the path of a vault
    file."""
    with needing("vault", "cryptography", needed_for="an encrypted store"):
        from .vault.store import VaultStore
    if isinstance(vault, str):
        vault = await asyncio.to_thread(Vault.load, vault)
    store = VaultStore(await opener(url), vault)
    try:
        await store.check_keys()
    except BaseException:
        await store.aclose()
        raise
    return store


async def _memory(url: str) -> Store:
    from .memory import MemoryStore

    reject_unknown("memory", split_url(url)[1])
    return MemoryStore()


async def _sqlite(url: str) -> Store:
    from .sqlite import SqliteStore

    place, options = _local("sqlite", url)
    return await SqliteStore.open(place, **options)


async def _file(url: str) -> Store:
    from .file import FileStore

    place, options = _local("file", url)
    return await FileStore.open(place, **options)


def _local(kind: str, url: str) -> tuple[str, dict[str, Any]]:
    """Parse the URL of a SQLite or file store. Returns its path and its options."""
    place, given = split_url(url)
    options = read_options(kind, given)
    reject_unknown(kind, given)
    return place, options


async def _postgres(url: str) -> Store:
    with needing("postgres", "asyncpg"):
        from .postgres import PostgresStore
    return await PostgresStore.open(url)


async def _mongodb(url: str) -> Store:
    with needing("mongodb", "pymongo", "bson"):
        from .mongodb import MongoStore
    return await MongoStore.open(url)


@contextmanager
def needing(extra: str, *packages: str, needed_for: str = "") -> Iterator[None]:
    """Context manager: raise `MissingExtra`, which names the extra to install, if an import in the
    block fails because one of `packages` is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in packages:
            raise
        needed_for = needed_for or f"the {extra} store"
        raise MissingExtra(extra=extra, needed_for=needed_for) from error


OPENERS: dict[str, Opener] = {
    "memory": _memory,
    "file": _file,
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "postgres": _postgres,
    "mongodb": _mongodb,
    "mongodb+srv": _mongodb,
}
