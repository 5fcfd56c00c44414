"""Checks that a response comes from a Holdfast server, and not from another program or a proxy.
Also describes TLS failures."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from types import NoneType
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from ..errors import Forbidden, HoldfastError, ServerError, Unauthorized, WrongServer
from ..wire import error_of

T = TypeVar("T")

ABSENT = (404, 405, 410)  # a Holdfast server never sends these without an error body
REMEDY = "pass the address of a Holdfast server"


def check(response: httpx.Response, url: str, media: str | None = None) -> None:
    """Reject a response that a Holdfast server would not send: a redirect, a web page, or a media
    type other than `media`. Raises `WrongServer`. Only the headers are checked."""
    status, found = response.status_code, response.headers.get("content-type", "")
    if 300 <= status < 400:
        raise wrong(url, f"it redirects with {status}{_to(response)}", status)
    kind = found.partition(";")[0].strip().lower()
    odd = kind == "text/html" if media is None else kind != media
    if status < 300 and odd:
        raise wrong(url, f"it answers with {kind[:100] or 'no content type'}", status)


def refused(body: bytes, status: int, url: str) -> HoldfastError:
    """Convert an error response to an exception, even if a proxy sent it without an error body."""
    error = error_of(body, status)
    if type(error) is not ServerError or error.reason is not None:
        return error
    said = f"{url} returned {status} without an error body; a proxy in front of the server may"
    if status == 401:
        return Unauthorized(problem=f"{said} require its own login")
    if status == 403:
        return Forbidden(problem=f"{said} block this request")
    if status in ABSENT:
        return wrong(url, f"it returns {status} without an error body", status)
    return error


def read(body: bytes, type: type[T], url: str, decode: Callable[[bytes], T] | None = None) -> T:
    """Decode a response. Raises `WrongServer` if it does not have the expected type."""
    if not body and type is not NoneType:
        raise wrong(url, "its response is empty")
    try:
        if not _has_any(body, type):
            raise wrong(url, "its response does not have the expected fields", other=True)
        return decode(body) if decode else msgspec.json.decode(body or b"null", type=type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise wrong(url, f"its response cannot be decoded: {error}", other=True) from None


def _has_any(body: bytes, type: Any) -> bool:
    """Return False if all fields of the expected type are optional and the response has none of
    them: such a response probably comes from another program."""
    fields = msgspec.structs.fields(type) if hasattr(type, "__struct_fields__") else ()
    if not fields or any(field.required for field in fields):
        return True
    return not {field.encode_name for field in fields}.isdisjoint(
        msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    )


def wrong(url: str, why: str, status: int = 200, *, other: bool = False) -> WrongServer:
    what = "a compatible Holdfast server" if other else "a Holdfast server"
    problem = f"{url} is not {what} ({why}): {REMEDY}"
    return WrongServer(problem=problem, status=status)


def _to(response: httpx.Response) -> str:
    """Return the target of a redirect, without path, query and credentials."""
    place = urlsplit(response.headers.get("location", ""))
    return f" to {place.scheme}://{place.netloc.rpartition('@')[2]}" if place.netloc else ""


def locked(error: BaseException) -> str | None:
    """Return a description of the TLS problem that made the connection fail, or None if there is
    none."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, ssl.SSLError):
        seen = seen.__cause__ or seen.__context__
    if seen is None:
        return None
    if isinstance(seen, ssl.SSLCertVerificationError):
        why = f"its certificate is not trusted: {seen.verify_message}"
        return f"TLS: {why}; set SSL_CERT_FILE, or pass your own client as `http=`"
    why = (seen.reason or "the handshake failed").replace("_", " ").lower()
    return f"TLS: {why}; check that the server speaks https"
