"""Functions for headers and paths: content negotiation, checks of request headers, security headers
of responses, the methods of a path, and the path at which the app is mounted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...errors import InvalidValue, UnsupportedMedia

UNLESS_SAID = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
PLAIN = ("", "identity")  # accepted values of Content-Encoding


def asks_for(accept: str, kind: str) -> bool:
    """Return whether an `Accept` header contains this media type."""
    return any(quality > 0 for name, quality in _named(accept) if name == kind)


def takes(accept: str, kind: str) -> bool:
    """Return whether an `Accept` header allows this media type, by name or by a wildcard."""
    known = dict(_named(accept))
    if not known:
        return True
    sort = kind.partition("/")[0]
    for name in (kind, f"{sort}/*", "*/*"):
        if name in known:
            return known[name] > 0
    return False


def _named(accept: str) -> Iterator[tuple[str, float]]:
    for part in accept.split(","):
        name, *more = (word.strip().lower() for word in part.split(";"))
        if name:
            yield name, _quality(more)


def _quality(words: Iterable[str]) -> float:
    for word in words:
        name, _, value = word.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 1.0
    return 1.0


def check_once(headers: Iterable[tuple[bytes, bytes]], name: str) -> None:
    """Reject a header that occurs more than once."""
    if sum(found.lower() == name.lower().encode() for found, _ in headers) > 1:
        raise InvalidValue(field=name, problem="occurs more than once", remedy="send it once")


def check_plain(encoding: str) -> None:
    """Reject a compressed body."""
    if encoding.strip().lower() not in PLAIN:
        raise UnsupportedMedia(found=encoding[:100], wanted="a body without Content-Encoding")


def both_framings() -> InvalidValue:
    """Return the error for a request with both `Content-Length` and `Transfer-Encoding`. It is
    rejected because a proxy may have used the other header."""
    return InvalidValue(
        field="transfer-encoding",
        problem="is set in addition to content-length",
        remedy="send only one of the two headers",
    )


def guarded(headers: Iterable[tuple[bytes, bytes]], request: str) -> list[tuple[bytes, bytes]]:
    """Add security headers to a response. They forbid browsers to show the response in a frame, and
    to run or load anything from it, unless the response has its own policy."""
    found = [
        *headers,
        (b"x-request-id", request.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
    ]
    known = {name.lower() for name, _ in found}
    return [*found, *(one for one in UNLESS_SAID if one[0] not in known)]


def base_of(scope: Mapping[str, Any]) -> str:
    """Return the path at which the app is mounted, or an empty string."""
    return str(scope.get("root_path", "")).rstrip("/")


def methods(scope: Mapping[str, Any]) -> list[str]:
    """Return the HTTP methods of a path. Litestar's own list lacks routes that were added later."""
    template = scope["path_template"]
    routes: list[Any] = [one for one in scope["litestar_app"].routes if one.path_format == template]
    found = {str(method) for route in routes for method in route.methods}
    return sorted(found | ({"HEAD"} if "GET" in found else set()))


def repeats(handler: Any, name: str) -> bool:
    """Return whether a parameter of a route is a list, so that it may occur several times."""
    kind = handler.parsed_fn_signature.parameters[name]
    return any(one.is_non_string_sequence for one in (kind, *kind.inner_types))
