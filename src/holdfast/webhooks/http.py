"""Sends deliveries over HTTP: `Sender` is the port, `HttpSender` the implementation with httpx.

A delivery goes to an address that was checked, follows no redirect, uses no proxy, and reads no
more of the answer than it needs to use the connection again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import HoldfastError, MissingExtra
from ..values.webhooks import WebhookReply
from .addresses import PORTS, Network, Resolver, Target, checked, resolve, target

if TYPE_CHECKING:
    import httpx

TIMEOUT = 20.0  # seconds until a delivery has failed
READ = 64 << 10  # bytes of an answer that are read
READING = 1.0  # seconds for which the body of an answer is read
CLIENTS = 64  # receivers whose connections are kept
ADDRESSES = 4  # addresses of a receiver that are tried


class Sender(Protocol):
    """Sends one delivery.

    See [webhooks](../webhooks.md).
    """

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> WebhookReply:
        """Send a POST request, and return the status of the answer or what went wrong. Raises no
        error."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class HttpSender:
    """Sends deliveries over HTTP/1.1, to public addresses and to those in the allowed networks. One
    client per receiver, because connections are shared by address, and a certificate counts for
    one name only.

    See [webhooks](../webhooks.md).
    """

    def __init__(
        self,
        networks: Sequence[Network] = (),
        *,
        timeout: float = TIMEOUT,
        resolver: Resolver = resolve,
        verify: ssl.SSLContext | None = None,
    ) -> None:
        try:
            import httpx  # noqa: PLC0415
        except ImportError as error:
            raise MissingExtra(extra="client", needed_for="delivering webhooks") from error
        self._httpx = httpx
        self._networks, self._timeout, self._resolver = networks, timeout, resolver
        self._verify = verify
        self._clients: dict[tuple[str, str, int], httpx.AsyncClient] = {}

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> WebhookReply:
        try:
            async with asyncio.timeout(self._timeout):
                to = target(url)
                addresses = await checked(to, self._networks, self._resolver)
                return await self._posted(to, addresses[:ADDRESSES], headers, body)
        except TimeoutError:
            return WebhookReply(error=f"no answer within {self._timeout:g} s")
        except HoldfastError as error:
            return WebhookReply(error=str(error))
        except (OSError, UnicodeError) as error:  # the host has no address
            return WebhookReply(error=f"the host cannot be resolved ({error})")

    async def _posted(
        self, to: Target, addresses: Sequence[str], headers: Mapping[str, str], body: bytes
    ) -> WebhookReply:
        client = await self._client(to)
        said = f"{to.host} has no address"
        for address in addresses:
            try:
                return await self._answer(client, to, address, headers, body)
            except (self._httpx.ConnectError, self._httpx.ConnectTimeout) as error:
                said = f"cannot connect ({type(error).__name__})"
            except (self._httpx.HTTPError, self._httpx.InvalidURL) as error:
                return WebhookReply(error=f"no valid answer ({type(error).__name__})")
        return WebhookReply(error=said)

    async def _answer(
        self,
        client: httpx.AsyncClient,
        to: Target,
        address: str,
        headers: Mapping[str, str],
        body: bytes,
    ) -> WebhookReply:
        """Send the request to one address. The name of the host goes into the `Host` header and the
        check of the certificate."""
        at = f"[{address}]" if ":" in address else address
        host = f"[{to.host}]" if ":" in to.host else to.host
        port = "" if to.port == PORTS[to.scheme] else f":{to.port}"
        extensions: dict[str, Any] = {} if address == to.host else {"sni_hostname": to.host}
        sent = client.stream(
            "POST",
            f"{to.scheme}://{at}:{to.port}{to.path}",
            headers={**headers, "host": f"{host}{port}"},
            content=body,
            extensions=extensions,
        )
        async with sent as response:
            with contextlib.suppress(TimeoutError, self._httpx.HTTPError):
                async with asyncio.timeout(READING):
                    await _drained(response)
        client.cookies.clear()
        return WebhookReply(
            status=response.status_code, retry_after=_seconds(response.headers.get("retry-after"))
        )

    async def _client(self, to: Target) -> httpx.AsyncClient:
        """Return the client for a receiver. The client that was created first is closed if there
        are too many."""
        at = (to.scheme, to.host, to.port)
        if (known := self._clients.get(at)) is not None:
            return known
        if len(self._clients) >= CLIENTS:
            await self._clients.pop(next(iter(self._clients))).aclose()
        if self._verify is None:
            self._verify = await asyncio.to_thread(self._httpx.create_ssl_context)
        made = self._httpx.AsyncClient(
            verify=self._verify, follow_redirects=False, trust_env=False, timeout=self._timeout
        )
        return self._clients.setdefault(at, made)

    async def aclose(self) -> None:
        """Close all connections."""
        clients, self._clients = [*self._clients.values()], {}
        for client in clients:
            await client.aclose()


async def _drained(response: httpx.Response) -> None:
    """Read a short body to its end, so that the connection can be used again; give up on a long
    one."""
    read = 0
    async for piece in response.aiter_raw():
        read += len(piece)
        if read > READ:
            return


def _seconds(text: str | None) -> float | None:
    """Return the seconds of a `Retry-After` header; a date is ignored."""
    return (
        float(text)
        if text is not None and text.isascii() and text.isdigit() and len(text) < 9
        else None
    )
