"""`WrappedStore`, the base class of stores that wrap another store. Every method calls the inner
store, and subclasses override some methods."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from .port import Store

M = TypeVar("M", bound=Callable[..., Any])


def _passed_on(method: M) -> M:
    """Return a method of the port that calls the same method of the inner store."""

    @wraps(method)
    def call(self: WrappedStore, *args: Any, **options: Any) -> Any:
        return self._pass_on(method.__name__, *args, **options)

    return cast(M, call)


class WrappedStore:
    """A store that behaves like `inner`. Override the methods that differ, or `_pass_on` to change
    all of them."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def _pass_on(self, method: str, *args: Any, **options: Any) -> Any:
        return getattr(self.inner, method)(*args, **options)

    append = _passed_on(Store.append)
    read = _passed_on(Store.read)
    seqs = _passed_on(Store.seqs)
    locate = _passed_on(Store.locate)
    link = _passed_on(Store.link)
    follow = _passed_on(Store.follow)
    fork = _passed_on(Store.fork)
    restore = _passed_on(Store.restore)
    erase = _passed_on(Store.erase)
    delete = _passed_on(Store.delete)
    row = _passed_on(Store.row)
    rows = _passed_on(Store.rows)
    find = _passed_on(Store.find)
    pending = _passed_on(Store.pending)
    search = _passed_on(Store.search)
    reindex = _passed_on(Store.reindex)
    claim = _passed_on(Store.claim)
    unclaim = _passed_on(Store.unclaim)
    claims = _passed_on(Store.claims)
    runnable = _passed_on(Store.runnable)
    due_tenants = _passed_on(Store.due_tenants)
    acquire = _passed_on(Store.acquire)
    renew = _passed_on(Store.renew)
    release = _passed_on(Store.release)
    holder = _passed_on(Store.holder)
    put_draft = _passed_on(Store.put_draft)
    drafts = _passed_on(Store.drafts)
    put_blob = _passed_on(Store.put_blob)
    get_blob = _passed_on(Store.get_blob)
    blobs = _passed_on(Store.blobs)
    save_snapshot = _passed_on(Store.save_snapshot)
    load_snapshot = _passed_on(Store.load_snapshot)
    verify = _passed_on(Store.verify)
    purge = _passed_on(Store.purge)
    info = _passed_on(Store.info)
    aclose = _passed_on(Store.aclose)
