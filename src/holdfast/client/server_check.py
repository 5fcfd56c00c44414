"""Whether it is a Holdfast server that answers: what another program says, or a proxy, or a lock
that does not open, told as what it is and not as a failure of a server."""

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

ABSENT = (404, 405, 410)  # what our routes never answer without a reason
REMEDY = "give the client the address of one"


def check(response: httpx.Response, url: str, media: str | None = None) -> None:
    """Refuse an answer that no server of ours gives (`WrongServer`), of another type than `media`
    where that is said. Nothing but the headers is looked at."""
    status, found = response.status_code, response.headers.get("content-type", "")
    if 300 <= status < 400:
        raise wrong(url, f"it sends elsewhere with {status}{_to(response)}", status)
    kind = found.partition(";")[0].strip().lower()
    odd = kind == "text/html" if media is None else kind != media
    if status < 300 and odd:
        raise wrong(url, f"it answers with {kind[:100] or 'no type'}", status)


def refused(body: bytes, status: int, url: str) -> HoldfastError:
    """The error that an answer tells of, also where it is a proxy's and tells nothing."""
    error = error_of(body, status)
    if type(error) is not ServerError or error.reason is not None:
        return error
    said = f"{url} answered {status} without a reason: perhaps a proxy before the server"
    if status == 401:
        return Unauthorized(problem=f"{said}, which wants a login of its own")
    if status == 403:
        return Forbidden(problem=f"{said}, which does not let this pass")
    if status in ABSENT:
        return wrong(url, f"it answers {status} without a reason", status)
    return error


def read(body: bytes, type: type[T], url: str, decode: Callable[[bytes], T] | None = None) -> T:
    """An answer as a value; `WrongServer` where it is none."""
    if not body and type is not NoneType:
        raise wrong(url, "its answer is empty")
    try:
        if not _has_any(body, type):
            raise wrong(url, "its answer has nothing that ours have", other=True)
        return decode(body) if decode else msgspec.json.decode(body or b"null", type=type)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise wrong(url, f"its answer cannot be read: {error}", other=True) from None


def _has_any(body: bytes, type: Any) -> bool:
    """Whether an answer has a field of its type, also of one that may leave out all."""
    fields = msgspec.structs.fields(type) if hasattr(type, "__struct_fields__") else ()
    if not fields or any(field.required for field in fields):
        return True
    return not {field.encode_name for field in fields}.isdisjoint(
        msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    )


def wrong(url: str, why: str, status: int = 200, *, other: bool = False) -> WrongServer:
    version = ", or one of another version" if other else ""
    problem = f"what answers at {url} is no Holdfast server{version} ({why}): {REMEDY}"
    return WrongServer(problem=problem, status=status)


def _to(response: httpx.Response) -> str:
    """Where an answer sends to: of the address, only what a client may be given."""
    place = urlsplit(response.headers.get("location", ""))
    return f" to {place.scheme}://{place.netloc.rpartition('@')[2]}" if place.netloc else ""


def locked(error: BaseException) -> str | None:
    """What is wrong with TLS, where that is why there is no connection."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, ssl.SSLError):
        seen = seen.__cause__ or seen.__context__
    if seen is None:
        return None
    if isinstance(seen, ssl.SSLCertVerificationError):
        why = f"its certificate is not trusted: {seen.verify_message}"
        return f"TLS: {why}; trust it by SSL_CERT_FILE, or by `http=` with a client of yours"
    why = (seen.reason or "it failed").replace("_", " ").lower()
    return f"TLS: {why}; see whether what is there speaks https at all"
