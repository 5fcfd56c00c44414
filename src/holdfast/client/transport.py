"""Sends requests to a server. Failed requests are retried with back-off and the same idempotency
key, at the next address if there are several. Failures are raised as the library's errors, which
never contain the API key."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, Unpack
from urllib.parse import quote, urlsplit

import httpx
import msgspec
from msgspec import Struct

from ..backoff import Backoff
from ..cancellation import cancellable
from ..errors import (
    HarnessClosed,
    HoldfastError,
    InvalidValue,
    RateLimited,
    ServerError,
    ServerUnavailable,
    Unauthorized,
)
from ..local_token import is_loopback
from ..log.codec import check_name
from ..log.events import new_id
from .credentials import ClientCredentials
from .server_check import check, locked, read
from .server_check import refused as refusal

T = TypeVar("T")

FIRST, LONGEST = 0.1, 5.0  # seconds between attempts: the first wait, and the longest
UNKNOWN = 401  # the server does not accept the credentials
PASSING = (502, 503, 504)  # from a proxy, or from a server that is stopping or starting
LATER = ("rate_limited", "request_too_slow", "store_unavailable", "harness_closed")
PLAIN = "".join(chr(n) for n in range(33, 127) if chr(n) != "%")  # not escaped in a key
Query = Mapping[str, str | int | float | bool | list[str] | None]


class RequestOptions(TypedDict, total=False):
    """Options of a request: the body and its media type, the query, the idempotency key, and in
    `wait` how many seconds longer than usual the server may take."""

    body: Any
    query: Query | None
    key: str | None
    wait: float
    media: str


class Patience(Struct, frozen=True, kw_only=True):
    """Timeouts in seconds: for a connection, for a response, for the next bytes of a stream, and in
    `total` for all attempts of a request. `reach` applies instead of `total` until a server has
    been reached.

    See [the client](../client.md).
    """

    connect: float = 5.0
    reach: float = 3.0
    answer: float = 60.0
    silence: float = 30.0
    total: float = 60.0


class Waits:
    """The back-off between the attempts of one request. `total` returns the time limit for all
    attempts; it is called before each wait, because the limit increases when a server has been
    reached."""

    def __init__(self, total: Callable[[], float]) -> None:
        self._total = total
        self._backoff = Backoff(FIRST, LONGEST, jitter=0.5)
        self.again()

    def again(self) -> None:
        """Reset the back-off after a success."""
        self._since = time.monotonic()
        self._backoff.reset()

    async def wait(self, error: HoldfastError, least: float = 0.0) -> None:
        """Wait before the next attempt. Raises `error` if the time limit would be exceeded."""
        pause = max(least, self._backoff.next())
        if time.monotonic() + pause > self._since + self._total():
            raise error
        await asyncio.sleep(pause)


class Transport:
    """Sends requests to one server, which may have several addresses."""

    def __init__(
        self,
        urls: Sequence[str],
        key: str | None,
        *,
        patience: Patience,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._urls = [address(url) for url in urls]
        self._at = 0
        self.patience = patience
        # The caller's own HTTP client may use a proxy, which must not see the local token.
        self._credentials = ClientCredentials(key, local=http is None)
        self._given, self._http = http, http
        self._opening = asyncio.Lock()
        self._closed = False
        self._reached = False

    def __repr__(self) -> str:
        return f"<transport to {', '.join(self._urls)}>"

    async def aclose(self) -> None:
        """Close the connections, unless the caller passed its own HTTP client."""
        self._closed = True
        async with self._opening:
            if self._given is None and self._http is not None:
                await self._http.aclose()

    async def _open(self) -> httpx.AsyncClient:
        async with self._opening:
            if self._closed:
                raise HarnessClosed(what="the client")
            if self._http is None:
                self._http = await asyncio.to_thread(_http, self._urls)  # reads certificates
            return self._http

    async def call(
        self,
        method: str,
        path: str,
        answer: type[T],
        **options: Unpack[RequestOptions],
    ) -> T:
        """Send a request, and retry it if a retry can help. Requests that change something carry
        one idempotency key for all attempts, so that they take effect once. The server may take
        `wait` seconds longer. Raises `WrongServer` for a response that a Holdfast server would not
        send."""
        return read(await self.raw(method, path, **options), answer, self.url(""))

    async def raw(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Query | None = None,
        key: str | None = None,
        wait: float = 0.0,
        media: str = "application/json",
    ) -> bytes:
        """Send a request as `call` does, and return the undecoded response."""
        headers = {"accept": "application/json, */*"}
        if body is not None:
            headers["content-type"] = media
        if method != "GET":
            headers["idempotency-key"] = new_id() if key is None else quote(key, safe=PLAIN)
        content = body if isinstance(body, bytes) else b"" if body is None else encoded(body)
        waits, refused = Waits(self.total), set[str]()
        while True:
            url = self.url("")
            shown = await self._credentials.bearer(url, refused)
            try:
                asked = {**headers, **_bearer(shown)}
                with cancellable():
                    return await self._once(method, url, path, asked, content, query, wait)
            except Unauthorized:
                if not await self._has_other(url, shown, refused):
                    raise
                continue
            except ServerError as error:
                if not _passes(error):
                    raise
                await waits.wait(error)
            except RateLimited as error:
                await waits.wait(error, error.retry_after)
            except HoldfastError as error:
                if error.code not in LATER:
                    raise
                await waits.wait(error)
            self.next()

    async def _once(
        self,
        method: str,
        url: str,
        path: str,
        headers: Mapping[str, str],
        content: bytes,
        query: Query | None,
        wait: float,
    ) -> bytes:
        http, patience = await self._open(), self.patience
        timeout = httpx.Timeout(patience.connect, read=patience.answer + wait, pool=None)
        try:
            response = await http.request(
                method,
                f"{url}{path}",
                headers=headers,
                content=content or None,
                params=_plain(query),
                timeout=timeout,
                follow_redirects=False,
            )
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise self._unreachable(error, url) from None
        self._reached = True
        check(response, url)
        if response.status_code >= 400:
            raise refusal(response.content, response.status_code, url)
        return response.content

    async def _has_other(self, url: str, shown: str | None, refused: set[str]) -> bool:
        """Record that an address rejected the credentials `shown`. Returns whether there are other
        credentials for it."""
        if shown is not None:
            refused.add(shown)
        return shown is not None and await self._credentials.bearer(url, refused) is not None

    @contextlib.asynccontextmanager
    async def lines(
        self, path: str, query: Query, accept: str = "text/event-stream"
    ) -> AsyncGenerator[AsyncGenerator[bytes, None], None]:
        """Context manager that yields the lines of a stream until it ends. Raises
        `ServerUnavailable` if the connection is lost, and `WrongServer` for a response of another
        media type."""
        url, refused = self.url(""), set[str]()
        try:
            while True:
                shown = await self._credentials.bearer(url, refused)
                async with self._stream(f"{url}{path}", query, accept, shown) as response:
                    self._reached = True
                    unknown = response.status_code == UNKNOWN
                    if unknown and await self._has_other(url, shown, refused):
                        continue
                    check(response, url, accept)
                    if response.status_code >= 400:
                        raise refusal(await response.aread(), response.status_code, url)
                    async with contextlib.aclosing(split(response.aiter_raw())) as found:
                        yield found
                    return
        except (httpx.TransportError, httpx.StreamError, httpx.DecodingError) as error:
            raise self._unreachable(error, url) from None

    @contextlib.asynccontextmanager
    async def _stream(
        self, address: str, query: Query, accept: str, shown: str | None
    ) -> AsyncGenerator[httpx.Response, None]:
        http, patience = await self._open(), self.patience
        async with http.stream(
            "GET",
            address,
            headers={"accept": accept, "accept-encoding": "identity", **_bearer(shown)},
            params=_plain(query),
            timeout=httpx.Timeout(patience.connect, read=patience.silence, pool=None),
            follow_redirects=False,
        ) as response:
            yield response

    def url(self, path: str) -> str:
        return f"{self._urls[self._at]}{path}"

    def next(self) -> None:
        """Switch to the next address, after this one failed."""
        self._at = (self._at + 1) % len(self._urls)

    def total(self) -> float:
        """Return the time limit for all attempts of a request: shorter while no server has been
        reached, but long enough to try each address."""
        patience = self.patience
        if self._closed:
            return 0.0
        if self._reached:
            return patience.total
        others = patience.connect * (len(self._urls) - 1)
        return min(patience.reach + others, patience.total)

    def _unreachable(self, error: Exception, url: str) -> ServerUnavailable:
        """Return the error for a failed connection or request. A server that accepts connections
        counts as reached, even if the request fails."""
        lock = locked(error)
        why = type(error).__name__ if lock is None else lock
        problem = f"{url} cannot be reached ({why})"
        self._reached |= not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
        if not self._reached and lock is None:
            problem += ": start a server there (`holdfast serve`), or check the address"
        return ServerUnavailable(problem=problem)


def _http(urls: Sequence[str]) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
    # Requests to this machine bypass any proxy of the environment, which must not see the token.
    here = {
        f"all://{urlsplit(url).netloc}": None for url in urls if is_loopback(urlsplit(url).hostname)
    }
    return httpx.AsyncClient(limits=limits, follow_redirects=False, mounts=here)


def _bearer(shown: str | None) -> dict[str, str]:
    return {} if shown is None else {"authorization": f"Bearer {shown}"}


def address(url: str) -> str:
    """Normalize the address of a server: without a trailing slash and without `/v1`. Raises
    `InvalidValue` if it is not an address."""
    parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        problem = "must be the http or https address of a server"
        raise InvalidValue(field="url", problem=problem, remedy="pass http://host:port")
    if "@" in parts.netloc or parts.query or parts.fragment:
        problem = "must not contain credentials, a query or a fragment"
        raise InvalidValue(
            field="url",
            problem=problem,
            remedy="pass the API key as `key=`, and the address as http://host:port",
        )
    whole = url.rstrip("/")
    return whole.removesuffix("/v1") if parts.path.rstrip("/").endswith("/v1") else whole


def _passes(error: ServerError) -> bool:
    return isinstance(error, ServerUnavailable) or error.status in PASSING


def _plain(query: Query | None) -> httpx.QueryParams:
    found: list[tuple[str, str | int | float | bool | None]] = []
    for name, value in (query or {}).items():
        for one in value if isinstance(value, list) else [] if value is None else [value]:
            found.append((name, str(one).lower() if isinstance(one, bool) else str(one)))
    return httpx.QueryParams(found)


def part(text: str, field: str = "name") -> str:
    """Encode a name as a path segment. Raises `InvalidValue` if the name would change the path or
    is too long."""
    if text in ("", ".", "..") or "/" in text:
        raise InvalidValue(
            field=field,
            problem=f"{text[:100]!r} cannot be part of a URL path",
            remedy="pass a name without slashes that is not empty, '.' or '..'",
        )
    check_name(field, text)
    return quote(text, safe="")


def encoded(body: Any) -> bytes:
    """Encode a body as JSON. Raises `InvalidValue` if it cannot be encoded."""
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        problem = f"cannot be encoded as JSON ({error})"
        raise InvalidValue(field="body", problem=problem, remedy="use JSON values") from None


def decoded(body: bytes, type: type[T]) -> T:
    """Decode the data of one server-sent event. Raises `ServerError` if it does not have the
    expected type."""
    try:
        return msgspec.json.decode(body, type=type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        problem = f"an event in the stream of the server cannot be decoded ({error})"
        raise ServerError(problem=problem) from None


async def split(pieces: Any) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a stream of bytes, without line ends. Only line feeds end a line, because
    other Unicode line breaks may occur in the text."""
    begun: list[bytes] = []
    async for piece in pieces:
        *whole, rest = piece.split(b"\n")
        for line in whole:
            yield b"".join((*begun, line)).removesuffix(b"\r")
            begun = []
        if rest:
            begun.append(rest)
