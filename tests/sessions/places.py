"""How a store of each kind is opened with a clock of ours. A kind is one line in `OPEN`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

from holdfast import Store
from holdfast.stores.file import FileStore
from holdfast.stores.memory import MemoryStore
from holdfast.stores.mongodb import MongoStore
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.sqlite import SqliteStore
from tests import servers
from tests.servers import recycled

Clock = Callable[[], int]


async def _memory(place: str, clock: Clock) -> Store:
    return MemoryStore(clock=clock)


OPEN: dict[str, Callable[[str, Clock], Awaitable[Store]]] = {
    "memory": _memory,
    "file": lambda place, clock: FileStore.open(place, clock=clock, durability="process"),
    "sqlite": lambda place, clock: SqliteStore.open(place, clock=clock, durability="process"),
    "postgres": lambda url, clock: PostgresStore.open(url, clock=clock),
    "mongodb": lambda url, clock: MongoStore.open(url, clock=clock),
}
SHARED = [kind for kind in OPEN if kind != "memory"]  # several processes can use these


@asynccontextmanager
async def emptied(kind: str, folder: Path) -> AsyncGenerator[str, None]:
    """A place with nothing in it; on a server, one that is used again afterwards."""
    if kind in servers.KINDS:
        async with recycled.empty(kind) as url:
            yield url
    else:
        yield str(folder / "holdfast")


def shared(kind: str, folder: Path) -> str:
    """A place for several processes, that belongs to the folder."""
    return servers.url(kind, folder) if kind in servers.KINDS else str(folder / "holdfast")


def url(kind: str, folder: Path) -> str:
    """The URL of such a place, for `holdfast.connect`."""
    if kind in servers.KINDS:
        return servers.url(kind, folder)
    return "memory:" if kind == "memory" else f"{kind}:{quote(str(folder / 'holdfast'))}"
