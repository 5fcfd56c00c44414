"""What stands around a request: which types it takes, that nothing is said twice, what its answer
says in any case, what else its path takes, and where the app is that it reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...errors import InvalidValue, UnsupportedMedia

UNLESS_SAID = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
PLAIN = ("", "identity")  # how a body may be encoded


def asks_for(accept: str, kind: str) -> bool:
    """Whether a type is asked for by its name."""
    return any(quality > 0 for name, quality in _named(accept) if name == kind)


def takes(accept: str, kind: str) -> bool:
    """Whether a type is taken: by its name, or else by what stands for many."""
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
    """Refuse a header that is there more than once: nobody can say which was meant."""
    if sum(found.lower() == name.lower().encode() for found, _ in headers) > 1:
        raise InvalidValue(field=name, problem="is there more than once", remedy="send one of them")


def check_plain(encoding: str) -> None:
    """Refuse a body that is packed."""
    if encoding.strip().lower() not in PLAIN:
        raise UnsupportedMedia(found=encoding[:100], wanted="a body without Content-Encoding")


def both_framings() -> InvalidValue:
    """A request that says in two ways where its body ends: a proxy may take the other one."""
    return InvalidValue(
        field="transfer-encoding",
        problem="is sent together with content-length",
        remedy="send one of them",
    )


def guarded(headers: Iterable[tuple[bytes, bytes]], request: str) -> list[tuple[bytes, bytes]]:
    """The headers of an answer, with those that every answer has. None is for a page of another
    site: nothing may be framed, and nothing that it holds is run or loaded, unless it says what."""
    found = [
        *headers,
        (b"x-request-id", request.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
    ]
    known = {name.lower() for name, _ in found}
    return [*found, *(one for one in UNLESS_SAID if one[0] not in known)]


def base_of(scope: Mapping[str, Any]) -> str:
    """The path at which the app is mounted; empty where it is not."""
    return str(scope.get("root_path", "")).rstrip("/")


def methods(scope: Mapping[str, Any]) -> list[str]:
    """What may be asked of a path. Litestar's own answer leaves out what was added later."""
    template = scope["path_template"]
    routes: list[Any] = [one for one in scope["litestar_app"].routes if one.path_format == template]
    found = {str(method) for route in routes for method in route.methods}
    return sorted(found | ({"HEAD"} if "GET" in found else set()))


def repeats(handler: Any, name: str) -> bool:
    """Whether a parameter is a list, which may be given several times."""
    kind = handler.parsed_fn_signature.parameters[name]
    return any(one.is_non_string_sequence for one in (kind, *kind.inner_types))
