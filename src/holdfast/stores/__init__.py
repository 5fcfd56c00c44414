"""The stores, and `connect`, which opens one by its URL.

A store's module, and with it its driver, is imported only when its scheme is asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, unquote

from ..errors import InvalidValue
from ..store import Store

Opener = Callable[[str, dict[str, str]], Awaitable[Store]]


class Connecting:
    """A store about to open: await it, or use it with `async with`, which closes it too."""

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


def connect(url: str) -> Connecting:
    """Open the store that `url` names: `memory:`, `file:DIR` or `sqlite:PATH`, with options
    behind a `?`. A wrong URL raises `InvalidValue` here, before anything is opened."""
    scheme, colon, rest = url.partition(":")
    opener = OPENERS.get(scheme)
    if opener is None or not colon:
        raise InvalidValue(
            field="url",
            problem=f"has no known scheme ({scheme!r})" if colon else "has no scheme",
            remedy="use one of " + ", ".join(f"{name}:" for name in OPENERS),
        )
    place, _, query = rest.partition("?")
    if place.startswith("//"):
        place = place[2:]
    options = dict(parse_qsl(query, keep_blank_values=True))
    return Connecting(lambda: opener(unquote(place), options))


async def _memory(place: str, options: dict[str, str]) -> Store:
    from .memory import MemoryStore

    no_more(options)
    return MemoryStore()


async def _sqlite(place: str, options: dict[str, str]) -> Store:
    from .sqlite import SqliteStore

    durability = options.pop("durability", "machine")
    no_more(options)
    return await SqliteStore.open(place, durability=durability)


async def _file(place: str, options: dict[str, str]) -> Store:
    from .file import FileStore

    durability = options.pop("durability", "machine")
    no_more(options)
    return await FileStore.open(place, durability=durability)


def no_more(options: dict[str, str]) -> None:
    """Refuse options that the store does not know, instead of passing over a typing error."""
    if options:
        raise InvalidValue(
            field="url", problem=f"has unknown options {sorted(options)}", remedy="leave them out"
        )


OPENERS: dict[str, Opener] = {"memory": _memory, "file": _file, "sqlite": _sqlite}
