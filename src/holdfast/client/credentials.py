"""The credentials that a client sends: its key, or, if it has none and runs on the same machine,
the server's local token. The token is sent only to loopback addresses, bypassing any proxy, and
never after a redirect."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from urllib.parse import urlsplit

from ..errors import InvalidValue
from ..local_token import address_of, find, is_loopback

PORTS = {"http": 80, "https": 443}


class ClientCredentials:
    """The credentials with which a server authenticates this client. With `local`, a client without
    a key uses the token of the server that runs at the loopback address."""

    def __init__(self, key: str | None, *, local: bool) -> None:
        self._key = None if key is None else _checked(key)
        self._local = local and key is None

    def __repr__(self) -> str:
        return "ClientCredentials(…)"

    async def bearer(self, url: str, refused: Collection[str] = ()) -> str | None:
        """Return the token for this address, or None if it was rejected before. A local token is
        looked up each time, since the server may have stopped and another program may have taken
        its port."""
        if self._local and is_loopback(urlsplit(url).hostname):
            return await asyncio.to_thread(_token, url, refused)
        return None if self._key in refused else self._key


def _token(url: str, refused: Collection[str]) -> str | None:
    """Return the token of the server that runs at this loopback address. Checks the whole address,
    because the same port of another loopback address may belong to another user."""
    parts = urlsplit(url)
    port = parts.port or PORTS[parts.scheme]
    host = address_of(parts.hostname or "", port)
    tokens = [one.token for one in find(port) if one.served(host)]
    return next((token for token in tokens if token not in refused), None)


def _checked(key: str) -> str:
    if not key.isascii() or not key.isprintable() or not key.strip():
        problem, remedy = (
            "must consist of printable ASCII characters and must not be blank",
            "pass the API key exactly as it was issued",
        )
        raise InvalidValue(field="key", problem=problem, remedy=remedy)
    return key
