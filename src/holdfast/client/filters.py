"""The filters of lists that a client requests, as typed keyword arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from ..log.catalog.filters import PendingFilters


class ListFilters(TypedDict, total=False):
    """The filters of `Client.list`. All that are passed must match. Times are as in `Row`:
    `created` in milliseconds, all others in seconds (UTC); `_from` is inclusive, `_until`
    exclusive. `metadata` has entries such as `plan=gold`; `address` belongs to `surface`."""

    user: str | None
    agent: str | None
    workspace: str | None
    phase: str | None
    run: str | None
    label: str | None
    metadata: Sequence[str] | str | None
    surface: str | None
    address: str | None
    created_from: int | None
    created_until: int | None
    active_from: int | None
    active_until: int | None
    stale_until: int | None
    order: Literal["active", "created"]
    newest_first: bool
    total: bool
    store: str | None


class InboxFilters(PendingFilters, total=False):
    """The filters of `Client.pending`: those of pending items, and the kind of store."""

    store: str | None
