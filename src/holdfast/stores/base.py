"""`BaseStore`, the base class of the stores that write logs themselves (it is not used by wrappers
of other stores)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import Generic, TypeVar, cast

from ..errors import StoreError
from ..log.catalog import Parent, SearchQuery
from ..log.events import Appended, Event, Key, NewEvent, Scope
from ..values.records import Receipt, Remains
from ..values.search import IndexProgress, SearchPage
from .checked import CheckedStore
from .hash_chain import seals
from .paging import Fetch, ReadBounds, batches, read_in_pages
from .port import Acquire, Lease, Store
from .rules import SORTS, AppendRequest, Extension
from .search import TextSearch, no_index, scan

R = TypeVar("R")  # a store's state of a restore in progress


class BaseStore(CheckedStore, ABC, Generic[R]):
    """Implements append, read, restore, search, erase and delete. Each database store implements
    the abstract methods that these use."""

    async def append(
        self,
        key: Key,
        events: Sequence[NewEvent],
        *,
        expected: int | None = None,
        fence: Lease | None = None,
        log: str | None = None,
        create: bool = False,
        acquire: Acquire | None = None,
        release: Lease | None = None,
    ) -> Appended:
        request = AppendRequest(
            key=key,
            events=events,
            seals=seals(events),
            expected=expected,
            fence=fence,
            log=log,
            create=create,
            acquire=acquire,
            release=release,
        )
        done = await self._append(request)
        return Appended(done.seqs, done.row.head, len(done.fresh), done.lease)

    @abstractmethod
    async def _append(self, request: AppendRequest) -> Extension:
        """Check an append, write its events, and notify followers."""

    def read(
        self,
        key: Key,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        reverse: bool = False,
        log: str | None = None,
        inline: bool = True,
    ) -> AsyncGenerator[Event, None]:
        bounds = ReadBounds(after, before, limit, reverse, log, inline)
        return read_in_pages(self._fetch(), key, bounds)

    @abstractmethod
    def _fetch(self) -> Fetch:
        """Return the function that fetches the pages of one read."""

    async def restore(
        self, key: Key, events: AsyncIterable[Event], *, parent: Parent | None = None
    ) -> None:
        await self._sweep(key.scope)  # removes the data of restores that crashed
        restore = await self._begin_restore(key, parent)
        try:
            async for some in batches(events):
                restore = await self._restore_some(restore, some)
            await self._end_restore(key, restore)
        except BaseException as error:
            with suppress(StoreError):  # otherwise a later sweep discards it
                await self._discard(restore, error)
            raise
        self._restored(key)

    @abstractmethod
    async def _begin_restore(self, key: Key, parent: Parent | None) -> R:
        """Create a hidden log, without a key, that receives the restored events."""

    @abstractmethod
    async def _restore_some(self, restore: R, events: list[Event]) -> R:
        """Write the next events of a restore. The events keep their numbers, ids and times."""

    @abstractmethod
    async def _end_restore(self, key: Key, restore: R) -> None:
        """Assign the key to the restored log, which makes it visible."""

    @abstractmethod
    async def _discard(self, restore: R, error: BaseException) -> None:
        """Remove an incomplete restore after an error, even if the caller is cancelled again."""

    @abstractmethod
    def _restored(self, key: Key) -> None:
        """Notify followers that a log was restored."""

    _texts: TextSearch | None = None
    """The search index. None if the store has none; then a search scans the events."""

    async def search(
        self, query: SearchQuery, *, cursor: str | None = None, limit: int = 20
    ) -> SearchPage:
        if self._texts is None:
            return await scan(cast(Store, self), query, cursor=cursor, limit=limit)
        return await self._texts.search(query, cursor=cursor, limit=limit)

    def reindex(self) -> AsyncGenerator[IndexProgress, None]:
        return no_index() if self._texts is None else self._texts.reindex()

    def _removing(
        self, target: Scope | Key, seqs: Sequence[int] | None = None
    ) -> AbstractAsyncContextManager[None]:
        """Return a context manager for the removal of events. It also removes their words from the
        search index."""
        return nullcontext() if self._texts is None else self._texts.removing(target, seqs)

    async def erase(
        self, key: Key, seqs: Sequence[int], *, reason: str, fence: Lease | None = None
    ) -> Receipt:
        async with self._removing(key, seqs):
            removed = await self._erase(key, seqs, reason=reason, fence=fence)
        return Receipt(removed=removed, remains=self._left_behind())

    @abstractmethod
    async def _erase(
        self, key: Key, seqs: Sequence[int], *, reason: str, fence: Lease | None = None
    ) -> dict[str, int]:
        """Replace the data of events with `{"erased": reason}`. Returns how many payloads and
        snapshots were removed, for the receipt."""

    async def delete(
        self, target: Scope | Key, *, fence: Lease | None = None, expected: int | None = None
    ) -> Receipt:
        scope = target.scope if isinstance(target, Key) else target
        async with self._removing(target):
            removed, deleted = await self._hide(target, fence, expected)
        await self._sweep(scope)
        shared = await self._shared_still(scope, deleted)
        counted = {sort: removed[sort] for sort in SORTS}
        return Receipt(removed=counted, remains=(*shared, *self._left_behind()))

    @abstractmethod
    async def _hide(
        self, target: Scope | Key, fence: Lease | None, expected: int | None
    ) -> tuple[Counter[str], list[str]]:
        """Make a session or a thread unreachable, and notify followers. Returns how many logs,
        events, blobs, etc. were removed, for the receipt, and the incarnations of the deleted
        logs."""

    @abstractmethod
    async def _sweep(self, scope: Scope | None) -> None:
        """Remove the data of deleted logs, except events that forks share: at least for the session
        `scope`, or for all sessions if it is None."""

    @abstractmethod
    async def _shared_still(self, scope: Scope, deleted: Sequence[str]) -> list[Remains]:
        """Return entries of the receipt for events of the deleted logs that are kept because forks
        share them."""

    @abstractmethod
    def _left_behind(self) -> tuple[Remains, ...]:
        """Return entries of the receipt that say where the database keeps deleted and erased data
        for a while, such as free pages."""
