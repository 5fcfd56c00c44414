"""`StoreRegistry`: a host registers kinds of stores, and clients request a store by the name of its
kind.

The host sets location and credentials of each kind. A client names a kind and may add the options
that the host allows; it can never set where a store is. Equal requests share one store, and the
registry closes it.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

from ..cancellation import ended
from ..errors import InvalidValue, MissingExtra, StoreError, StoreUnavailable, UnknownStore
from ..log.codec import check_name
from . import connect
from .port import Store
from .url_display import address
from .url_options import parse_query

Options: TypeAlias = Mapping[str, Any]
Builder: TypeAlias = Callable[[Options], "Store | Awaitable[Store]"]
Permitted: TypeAlias = "type | Collection[Any]"  # str, int, float, bool, or the values themselves

SCHEMES = {
    "memory": ("memory",),
    "file": ("file",),
    "sqlite": ("sqlite",),
    "postgres": ("postgresql", "postgres"),
    "mongodb": ("mongodb", "mongodb+srv"),
}
TYPES = (str, int, float, bool)
# Settings that define where a store is, or who may use it. Clients can never send them, in any
# spelling.
CONNECTION = """
address certificate client clientoptions connection connectionstring credentials dbname dir
directory directtls dsn file filename folder host hostaddr hostname hosts key listenurl location
options passfile passphrase passwd path pool port role root secret server service socket token uri
url user username vault
"""
SECURITY = ("ssl", "tls", "auth", "password", "proxy")  # prefixes of such names
SOON = 0.25  # seconds that a store has to finish opening at shutdown
PARTS = ("database", "schema")  # options that select data: the host must list the values


@dataclass(frozen=True)
class _Kind:
    build: Builder = field(repr=False)
    allow: Mapping[str, Permitted] = field(repr=False)
    url: str | None = field(repr=False)


class StoreRegistry:
    """The kinds of store that a program offers, and the stores that are open.

    `kinds` maps a name to the URL of its store, or to a function that takes the options and returns
    a `Store`. `memory` always exists; every kind can be replaced.

        registry = StoreRegistry({"sqlite": "sqlite:shop.db", "archive": build_archive})
        registry.register("postgres", os.environ["DATABASE_URL"], allow={"schema": ["eu", "us"]})
        store = await registry.get("postgres", {"schema": "eu"})
    """

    def __init__(self, kinds: Mapping[str, str | Builder] | None = None) -> None:
        self._kinds: dict[str, _Kind] = {}
        self._named: dict[str, None] = {}
        self._stores: dict[tuple[Any, ...], asyncio.Task[Store]] = {}
        self._closed = self._ending = False
        self.register("memory", "memory:")
        self._named.clear()
        for kind, source in (kinds or {}).items():
            self.register(kind, source)

    def __repr__(self) -> str:
        return f"StoreRegistry({', '.join(self.kinds)})"

    async def __aenter__(self) -> StoreRegistry:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.aclose()

    @property
    def kinds(self) -> list[str]:
        """The names that `get` accepts, in order."""
        return sorted(self._kinds)

    @property
    def named(self) -> list[str]:
        """The kinds that the host registered, in order; `memory` only if it was registered
        explicitly."""
        return [*self._named]

    @property
    def first(self) -> str:
        """The kind that was registered first; `memory` only if there is no other."""
        return next((kind for kind in self._kinds if kind != "memory"), "memory")

    def address(self, kind: str) -> str:
        """Return the location of the store of a kind, without credentials; for the host, never for
        clients. For a kind that is built by a function, return the name of the kind."""
        url = self._kinds[kind].url
        return f"{kind}:" if url is None else address(url)

    def takes_options(self, kind: str) -> bool:
        """Return whether a client may send options with this kind."""
        return kind in self._kinds and bool(self._kinds[kind].allow)

    def register(
        self, kind: str, source: str | Builder, *, allow: Mapping[str, Permitted] | None = None
    ) -> None:
        """Add a kind, or replace one that has no open store.

        `source` is a URL as for `connect`, or a function of the options. `allow` names each option
        that a client may send, with its allowed values, or with a type.
        """
        check_name("kind", kind)
        if any(wanted[0] == kind for wanted in self._stores):
            raise InvalidValue(
                field="kind",
                problem=f"{kind!r} has open stores",
                remedy="register a kind before its first store is opened",
            )
        allowed = dict(allow or {})
        for name, permitted in allowed.items():
            _check_allowed(name, permitted)
        build = _at(kind, source) if isinstance(source, str) else source
        url = source if isinstance(source, str) else None
        self._kinds[kind] = _Kind(build, allowed, url)
        self._named[kind] = None

    def check(self, kind: str, options: Options | None = None) -> None:
        """Validate the arguments of `get` without opening a store. Raises `UnknownStore` with the
        known kinds, or `InvalidValue` with the option and its allowed values."""
        if not isinstance(kind, str) or kind not in self._kinds:
            raise UnknownStore(kind=str(kind), available=self.kinds)
        if not isinstance(options, Mapping | None):
            raise InvalidValue(
                field="options",
                problem=f"are of type {type(options).__name__}",
                remedy="pass a mapping",
            )
        for name, value in (options or {}).items():
            _check_option(kind, self._kinds[kind].allow, name, value)

    async def get(self, kind: str, options: Options | None = None) -> Store:
        """Return the store of this kind with these options. It is opened on the first request and
        shared by all callers. It stays open until the registry closes; do not close it. If opening
        fails with a `StoreError`, the next call tries again."""
        self.check(kind, options)
        if self._closed:
            raise StoreError(problem="the registry is closed")
        options = {} if options is None else options
        wanted = (kind, *sorted((name, type(v).__name__, v) for name, v in options.items()))
        opening = self._stores.get(wanted)
        if opening is None:
            if self._ending:
                raise StoreUnavailable(problem="the registry is closing")
            opening = asyncio.create_task(_open(kind, self._kinds[kind].build, options))
            self._stores[wanted] = opening
            opening.add_done_callback(lambda task: self._forget_failed(wanted, task))
        elif opening.done():
            return opening.result()
        # The first caller may give up while others still wait.
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            mine = asyncio.current_task()
            if not opening.cancelled() or (mine is not None and mine.cancelling()):
                raise
            raise StoreUnavailable(problem=f"opening the {kind} store was cancelled") from None

    def _forget_failed(self, wanted: tuple[Any, ...], task: asyncio.Task[Store]) -> None:
        if (task.cancelled() or task.exception() is not None) and self._stores.get(wanted) is task:
            del self._stores[wanted]

    def give_up(self, after: float = SOON) -> None:
        """Stop opening stores. Stores that are still opening after this many seconds are cancelled,
        and their callers get `StoreUnavailable`. Open stores stay open until `aclose`."""
        self._ending = True
        loop = asyncio.get_running_loop()
        for opening in self._stores.values():
            if not opening.done():
                loop.call_later(after, opening.cancel)

    async def aclose(self) -> None:
        """Close every store, including those that are still opening. Safe to call twice."""
        self._closed = True
        opened, self._stores = list(self._stores.values()), {}
        late = {opening for opening in opened if not opening.done()} if self._ending else None
        if late:
            await asyncio.wait(late, timeout=SOON)
            await ended(*late)
        ends = await asyncio.gather(*map(_close, opened), return_exceptions=True)
        for error in ends:
            if error is not None:
                raise error


async def _open(kind: str, build: Builder, options: Options) -> Store:
    """Build a store. The error text may be sent to a client, so it contains no settings; the
    original error is its cause."""
    try:
        built = build(options)
        return await built if inspect.isawaitable(built) else built
    except MissingExtra:
        raise
    except StoreUnavailable as error:
        raise StoreUnavailable(problem=f"the {kind} store cannot be opened now") from error
    except Exception as error:
        raise StoreError(problem=f"the {kind} store cannot be opened") from error


async def _close(opening: asyncio.Task[Store]) -> None:
    try:
        store = await opening
    except (Exception, asyncio.CancelledError):
        return  # the caller got the error
    await store.aclose()


def _at(kind: str, url: str) -> Builder:
    """Return a function that opens the store at `url`. Options of a request replace options of the
    URL."""
    connect(url)  # rejects an unknown scheme now, and opens nothing
    schemes = SCHEMES.get(kind)
    if schemes is not None and url.partition(":")[0] not in schemes:
        raise InvalidValue(
            field="kinds",
            problem=f"the URL of {kind!r} has the scheme of another kind of store",
            remedy=f"start it with {schemes[0]}:, or rename the kind",
        )

    def build(options: Options) -> Awaitable[Store]:
        if not options:
            return connect(url)
        place, _, query = url.partition("?")
        words = {name: _word(value) for name, value in options.items()}
        merged = parse_query(query) | words
        return connect(f"{place}?{urlencode(merged, quote_via=quote)}")

    return build


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# Checks of the options that a host allows and a client sends


def connects(name: str) -> bool:
    """Return whether an option of this name defines where a store is or who may use it."""
    plain = _plain(name)
    return plain in CONNECTION.split() or plain.startswith(SECURITY)


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name)).casefold()


def _check_allowed(name: str, permitted: Permitted) -> None:
    check_name("allow", name)
    if connects(name):
        raise InvalidValue(
            field="allow",
            problem=f"cannot contain {name!r}",
            remedy="set it in the URL or the builder",
        )
    if permitted in TYPES and _plain(name) not in PARTS:
        return
    values = permitted if isinstance(permitted, Collection) else None
    if values is None or isinstance(values, str) or any(type(v) not in TYPES for v in values):
        raise InvalidValue(
            field="allow",
            problem=f"{name!r} needs a list of allowed values",
            remedy="write a list of values" + _or_a_type(name),
        )


def _or_a_type(name: str) -> str:
    return "" if _plain(name) in PARTS else ", or one of the types str, int, float and bool"


def _check_option(kind: str, allow: Mapping[str, Permitted], name: Any, value: Any) -> None:
    if name not in allow:
        known = isinstance(name, str) and connects(name)
        raise InvalidValue(
            field=f"options.{name}",
            problem="cannot be set by clients" if known else f"is not an option of {kind!r}",
            remedy=f"use only {', '.join(sorted(allow))}" if allow else "omit it",
        )
    permitted = allow[name]
    if isinstance(permitted, type):
        fits, remedy = type(value) is permitted, f"pass {permitted.__name__}"
        if type(value) is float and not math.isfinite(value):
            fits = False
        if fits and isinstance(value, str):
            check_name(f"options.{name}", value)
    else:
        fits = any(type(v) is type(value) and v == value for v in permitted)
        remedy = f"use one of {', '.join(map(repr, permitted))}"
    if not fits:
        raise InvalidValue(
            field=f"options.{name}", problem="is not an allowed value", remedy=remedy
        )
