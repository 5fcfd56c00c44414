"""Argument checks that all stores share. They run before each method of the `Store` protocol.

A store that inherits `CheckedStore` implements the methods of `holdfast.Store` without checking
their arguments: each method receives only valid values. All stores therefore reject the same values
with the same `InvalidValue`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from ..errors import InvalidValue
from ..log.catalog import PendingQuery, Query, SearchQuery, check_query
from ..log.codec import LIMITS, check, check_count, check_key, check_name, check_size
from ..log.events import Key, NewEvent, Scope
from ..log.search import parse_query
from .blobs import is_sha256
from .port import Acquire, Lease, StoreInfo
from .rules import check_lease


class CheckedStore:
    """Base class of stores: checks the arguments of each method that a subclass defines.

    `read`, `follow`, `verify` and `reindex` raise `InvalidValue` when they are called; all other
    methods raise it when the call is awaited.
    """

    info: Callable[..., StoreInfo]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.info().location!r})"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, accepts in CHECKS.items():
            if (method := vars(cls).get(name)) is not None:
                wrap = _checked_stream if name in STREAMS else _checked
                setattr(cls, name, wrap(method, accepts))


def _checked(method: Callable[..., Any], check: Callable[..., object]) -> Callable[..., Any]:
    @wraps(method)
    async def call(self: Any, *args: Any, **options: Any) -> Any:
        check(*args, **options)
        return await method(self, *args, **options)

    return call


def _checked_stream(method: Callable[..., Any], check: Callable[..., object]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        check(*args, **options)
        return method(self, *args, **options)

    return call


# One function per signature; each ignores the arguments that it does not check.


def _append(
    key: Key,
    events: Sequence[NewEvent],
    *,
    fence: Lease | None = None,
    acquire: Acquire | None = None,
    release: Lease | None = None,
    **_: Any,
) -> None:
    check(key, events)
    if acquire is None and release is None:
        return
    if acquire is not None:
        check_lease(acquire.owner, acquire.ttl)
    given = {"fence": fence, "acquire": acquire, "release": release}
    if len(names := [name for name, value in given.items() if value is not None]) > 1:
        raise InvalidValue(
            field=names[-1],
            problem=f"cannot be used together with {names[0]}",
            remedy="pass one of fence, acquire and release",
        )


def _seqs(key: Key, ids: Sequence[str], **_: Any) -> None:
    check_key(key)
    check_count("ids", len(ids), least=0, most=LIMITS.append_events)
    for id in ids:
        check_name("ids", id)


def _locate(tenant: str, id: str) -> None:
    check_name("tenant", tenant)
    check_name("id", id)


def _rows(keys: Sequence[Key]) -> None:
    check_count("keys", len(keys), least=0, most=LIMITS.page)
    for key in keys:
        check_key(key)


def _acquire(
    key: Key,
    owner: str,
    *,
    ttl: float = 15.0,
    steal: str | None = None,
    mark: str | None = None,
) -> None:
    check_key(key)
    check_lease(owner, ttl)
    for name, value in (("steal", steal), ("mark", mark)):
        if value is not None:
            check_name(name, value)


def _read(
    key: Key, *, after: int = 0, before: int | None = None, limit: int | None = None, **_: Any
) -> None:
    check_key(key)
    check_count("after", after, least=0)
    if before is not None:
        check_count("before", before, least=0)
    if limit is not None:
        check_count("limit", limit, least=1)


def _fork(key: Key, thread: str, *, first: NewEvent, **_: Any) -> None:
    check_name("thread", thread)
    check(key, [first])


def _erase(key: Key, seqs: Sequence[int], *, reason: str, **_: Any) -> None:
    check_key(key)
    check_name("reason", reason)


def _delete(
    target: Scope | Key, *, fence: Lease | None = None, expected: int | None = None
) -> None:
    check_key(target)
    if expected is not None:
        check_count("expected", expected, least=0)
    if fence is not None and isinstance(target, Scope):
        raise InvalidValue(
            field="fence",
            problem="belongs to one thread, but target is a whole session",
            remedy="pass a Key as target, or omit fence",
        )


def _find(
    query: Query | PendingQuery | SearchQuery, *, cursor: str | None = None, limit: int = 50
) -> None:
    check_query(query, limit)


def _search(query: SearchQuery, *, cursor: str | None = None, limit: int = 20) -> None:
    check_query(query, limit)
    parse_query(query.text)


def _claim(tenant: str, name: str, owner: Scope, **_: Any) -> None:
    check_name("tenant", tenant)
    check_name("name", name, limit=LIMITS.claim_bytes)
    check_name("session", owner.session)
    if owner.tenant != tenant:
        raise InvalidValue(
            field="owner",
            problem=f"belongs to tenant {owner.tenant!r}, but the claim is for tenant {tenant!r}",
            remedy="claim the name in the owner's tenant",
        )


def _runnable(tenant: str, *, agents: Sequence[str], limit: int = 100) -> None:
    check_name("tenant", tenant)
    for agent in agents:
        check_name("agents", agent)
    check_count("limit", limit, least=1, most=LIMITS.page)


def _due_tenants(*, agents: Sequence[str], after: str = "", limit: int = 100) -> None:
    for agent in agents:
        check_name("agents", agent)
    if after:
        check_name("after", after)
    check_count("limit", limit, least=1, most=LIMITS.page)


def _put_draft(key: Key, message: str, offset: int, text: str, **_: Any) -> None:
    check_key(key)
    check_name("message", message)
    check_count("offset", offset, least=0)
    if not isinstance(text, str):
        raise InvalidValue(
            field="text", problem=f"is of type {type(text).__name__}", remedy="pass a str"
        )
    try:
        check_size("text", text.encode(), LIMITS.draft_bytes)
    except UnicodeEncodeError as error:
        raise InvalidValue(
            field="text", problem="contains a lone surrogate", remedy="pass valid Unicode"
        ) from error


def _put_blob(scope: Scope, data: bytes, *, sha256: str | None = None) -> None:
    check_key(scope)
    check_size("data", data, LIMITS.blob_bytes)
    if sha256 is not None and not is_sha256(sha256):
        raise InvalidValue(
            field="sha256",
            problem=f"must be 64 hexadecimal digits, got {sha256!r}",
            remedy="pass a SHA-256",
        )


def _load_snapshot(key: Key, version: str) -> None:
    check_key(key)
    check_name("version", version)


def _verify(target: Scope | Key | None = None, **_: Any) -> None:
    if target is not None:
        check_key(target)


def _key(key: Key | Scope, *_: Any, **__: Any) -> None:
    check_key(key)


def _scope(scope: Scope, *_: Any, **__: Any) -> None:
    check_key(scope)


def _nothing() -> None:
    """Check nothing: the method takes no arguments."""


def _owner(owner: Scope) -> None:
    check_key(owner)


STREAMS = frozenset(
    {"read", "follow", "verify", "reindex"}
)  # methods that return an async generator

# Not checked: `renew` and `release` take a lease that a store made; `purge`, `info` and `aclose`
# have no arguments.
CHECKS: dict[str, Callable[..., object]] = {
    "append": _append,
    "read": _read,
    "seqs": _seqs,
    "locate": _locate,
    "link": _key,
    "follow": _read,
    "fork": _fork,
    "restore": _key,
    "erase": _erase,
    "delete": _delete,
    "row": _key,
    "rows": _rows,
    "find": _find,
    "pending": _find,
    "search": _search,
    "reindex": _nothing,
    "claim": _claim,
    "unclaim": _claim,
    "claims": _owner,
    "runnable": _runnable,
    "due_tenants": _due_tenants,
    "acquire": _acquire,
    "holder": _key,
    "put_draft": _put_draft,
    "drafts": _key,
    "put_blob": _put_blob,
    "get_blob": _scope,
    "blobs": _scope,
    "save_snapshot": _key,
    "load_snapshot": _load_snapshot,
    "verify": _verify,
}
