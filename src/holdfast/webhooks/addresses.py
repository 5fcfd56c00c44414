"""The addresses of webhook receivers: checks of URLs, and of every IP address that a host has.

Only public addresses are allowed, except for networks that the operator allows. The sender connects
to the address that was checked, so a name that resolves to another address later has no effect.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from ..errors import InvalidValue

LONGEST = 2_000  # characters of a URL
PORTS = {"https": 443, "http": 80}
_PLAIN = re.compile(r"[!-~]+")  # visible ASCII
_HOST = re.compile(r"(?!.*\.\.)[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9_.])?")

Address: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"
Network: TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"
Resolver: TypeAlias = Callable[[str, int], Awaitable[list[str]]]

# IPv6 networks whose addresses contain an IPv4 address, and the position of its lowest bit.
_EMBEDDED = (
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),  # IPv4-mapped
    (ipaddress.IPv6Network("::/96"), 0),  # IPv4-compatible
    (ipaddress.IPv6Network("::ffff:0:0:0/96"), 0),  # IPv4-translated
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (ipaddress.IPv6Network("2002::/16"), 80),  # 6to4
)
_CLOSED = tuple(
    map(
        ipaddress.ip_network,
        (
            "64:ff9b:1::/48",
            "2001::/23",
            "100.64.0.0/10",
            "192.0.0.0/24",
            "198.18.0.0/15",
            "fec0::/10",
        ),
    )
)


class Target(Struct, frozen=True, kw_only=True):
    """The parts of a receiver's URL: `path` includes the query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def site(self) -> str:
        """The URL without its path and query, which may contain secrets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}"


def target(url: str) -> Target:
    """Split the URL of a receiver. Raises `InvalidValue` for anything but an absolute `https:` or
    `http:` URL without user name, password and fragment."""
    if not isinstance(url, str) or not _PLAIN.fullmatch(url) or len(url) > LONGEST or "\\" in url:
        raise _invalid(f"must have 1 to {LONGEST} visible ASCII characters without backslashes")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _invalid("is not a valid URL") from None
    if parts.scheme not in PORTS:
        raise _invalid("must begin with https:// or http://")
    if "@" in parts.netloc or "#" in url:
        raise _invalid("must not contain a user name, a password or a fragment")
    if not (_is_address(host) if ":" in host else _HOST.fullmatch(host)) or port == 0:
        raise _invalid("has no valid host and port")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    port = PORTS[parts.scheme] if port is None else port
    return Target(scheme=parts.scheme, host=host, port=port, path=path)


def _invalid(problem: str) -> InvalidValue:
    return InvalidValue(field="url", problem=problem, remedy="pass https://HOST/PATH")


def _is_address(text: str) -> bool:
    try:
        return ipaddress.ip_address(text) is not None and "%" not in text
    except ValueError:
        return False


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Parse the networks that an operator allows, such as `10.0.0.0/8`. Raises `InvalidValue`.

    See [webhooks](../webhooks.md).
    """
    found: list[Network] = []
    for text in [texts] if isinstance(texts, str) else texts:
        try:
            found.append(ipaddress.ip_network(text))
        except ValueError:
            raise InvalidValue(
                field="networks",
                problem=f"{text!r} is not a network",
                remedy="pass a network such as 10.0.0.0/8 or fd00::/8",
            ) from None
    return tuple(found)


def is_allowed(text: str, allowed: Iterable[Network] = ()) -> bool:
    """Return whether an IP address is public, or in a network that the operator allows. An IPv6
    address that contains an IPv4 address is checked as that IPv4 address."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    forms = _forms(address)
    if any(form in network for form in forms for network in allowed):
        return True
    return all(_public(form) for form in forms)


def _forms(address: Address) -> list[Address]:
    """Return an address, or the IPv4 address that it contains."""
    if isinstance(address, ipaddress.IPv6Address):
        for network, low in _EMBEDDED:
            if address in network and int(address) > 1:
                return [ipaddress.IPv4Address(int(address) >> low & 0xFFFFFFFF)]
    return [address]


def _public(address: Address) -> bool:
    closed = address.is_multicast or any(address in network for network in _CLOSED)
    return address.is_global and not closed


def check_literal(url: str, allowed: Iterable[Network] = ()) -> None:
    """Raise `InvalidValue` for a URL that is not valid, or whose host is an address that is not
    allowed."""
    to, allowed = target(url), tuple(allowed)
    if _is_address(to.host):
        _check(to, to.host, allowed)


async def resolve(host: str, port: int) -> list[str]:
    """Return all IP addresses of a host."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


async def checked(
    to: Target, allowed: Iterable[Network] = (), resolver: Resolver = resolve
) -> list[str]:
    """Return the IP addresses of a receiver. Raises `InvalidValue` if one of them is not allowed;
    plain `http:` needs an address in an allowed network."""
    found, allowed = await resolver(to.host, to.port), tuple(allowed)
    for address in found:
        _check(to, address, allowed)
    return found


def _check(to: Target, address: str, allowed: tuple[Network, ...]) -> None:
    if not is_allowed(address, allowed):
        raise InvalidValue(
            field="url",
            problem=f"{to.host} has the address {address}, which is not public",
            remedy="use a public address, or allow its network in the settings of the sender",
        )
    if to.scheme == "http" and not any(
        form in network for form in _forms(ipaddress.ip_address(address)) for network in allowed
    ):
        raise InvalidValue(
            field="url",
            problem="begins with http://, which sends conversations unencrypted",
            remedy="use https://, or allow its network in the settings of the sender",
        )
