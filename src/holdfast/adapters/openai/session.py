"""The OpenAI Agents SDK's `Session` on any Holdfast store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from ...errors import InvalidValue, MissingExtra
from ...log.codec import check_key
from ...log.events import Key, NewEvent
from ...stores.port import Store
from .. import writing
from ..lazy_store import LazyStore
from ..retries import persist
from .items import Item, to_events
from .reader import STATE, Tail, all_items, last_items, saved_state, tail

if TYPE_CHECKING:
    from agents import Agent, RunState, SessionSettings

T = TypeVar("T")

AGENT = "openai"  # agent name of the sessions that this adapter creates


class HoldfastSession:
    """The SDK's `Session` for one conversation, on an open Holdfast store or on the URL of a store.

    A URL is opened on first use, once per process; the session can then be used on any event loop
    and in any thread. A store that you pass in is not closed, and belongs to its event loop, unless
    it is a `PortalStore`. `session_settings.limit` is the default of `get_items`.

    See [OpenAI Agents SDK](../openai.md).
    """

    session_id: str
    session_settings: SessionSettings | None

    def __init__(
        self,
        session_id: str,
        store: Store | str,
        *,
        tenant: str = "main",
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self.session_settings = _settings(session_settings)
        self.session_id = session_id
        self._at = Key(tenant, session_id, "main")
        check_key(self._at)
        self._opening = LazyStore(store)
        self._failed = writing.FailedBatch()

    def __repr__(self) -> str:
        return (
            f"HoldfastSession({self.session_id!r}, {self._opening!r}, tenant={self._at.tenant!r})"
        )

    async def __aenter__(self) -> HoldfastSession:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def connect(self) -> None:
        """Open the store now, so that errors appear at startup. You can retry after a failure."""
        await self._opening.connect()

    async def close(self) -> None:
        """Close the store if it was opened from a URL, unless other sessions of this process use
        it. Idempotent; the next use opens it again."""
        await self._opening.close()

    # The SDK's protocol

    async def get_items(self, limit: int | None = None) -> list[Item]:
        """Return the items, oldest first. With `limit`, return only the newest items; the default
        is the limit of `session_settings`. A negative limit means all items."""
        if limit is None and self.session_settings is not None:
            limit = _settings(self.session_settings).limit
        if limit is not None and not isinstance(limit, int):
            raise InvalidValue(
                field="limit", problem=f"is {type(limit).__name__}", remedy="pass an int or None"
            )
        if limit is None or limit < 0:
            return await self._ask(lambda store: all_items(store, self._at))
        if limit == 0:
            return []
        return await self._ask(lambda store: last_items(store, self._at, limit))

    async def add_items(self, items: list[Item]) -> None:
        """Append items in one step. The items are durable when this returns. If this fails and the
        next call passes the same items, they are stored only once."""
        if isinstance(items, str | bytes | Mapping):
            raise InvalidValue(
                field="items",
                problem=f"is {type(items).__name__}",
                remedy="pass a list of the SDK's items, such as "
                "[{'role': 'user', 'content': 'Hello.'}]",
            )
        if not items:
            return
        await self._append(to_events(items))

    async def pop_item(self) -> Item | None:
        """Remove the newest item from the conversation and return it. Returns None if there is no
        item. The item stays in the log."""

        async def pop(store: Store) -> Item | None:
            async def plan() -> writing.Change[Item] | None:
                found = await tail(store, self._at, 1)
                if found is None or not found.entries:
                    return None
                last = found.entries[-1]
                return found.row, last.event.seq - 1, to_events(last.items[:-1]), last.items[-1]

            return await writing.rewind(store, plan, None)

        self._failed.forget()
        return await self._opening.run(pop)

    async def clear_session(self, *, erase: bool = False) -> None:
        """Remove all items from the conversation. They stay in the log, unless you pass `erase`:
        then their content is erased, including the content of items that were removed earlier."""
        self._failed.forget()
        await self._opening.run(lambda store: self._replace(store, []))
        if erase:
            await self._ask(lambda store: writing.erase(store, self._at))

    # Approvals

    async def save_state(self, state: RunState[Any] | None) -> None:
        """Store the state of a paused run in the log. None removes the state. The state is also
        removed by the next message of the user, by `clear_session`, and by `pop_item` of an older
        item."""
        data = None if state is None else state.to_json()
        await self._append([NewEvent.of(STATE, {"state": data})])

    async def load_state(self, agent: Agent[Any], **options: Any) -> RunState[Any] | None:
        """Return the state of a paused run, or None if there is none. `options` are passed to
        `RunState.from_json`."""
        from agents import RunState  # noqa: PLC0415 - an extra

        data = await self._ask(lambda store: saved_state(store, self._at))
        return None if data is None else await RunState.from_json(agent, data, **options)

    # Hooks of the SDK's compaction, which replace items in one step

    async def _atomic_replace_items(self, items: list[Item]) -> bool:
        self._failed.forget()
        await self._opening.run(lambda store: self._replace(store, to_events(items)))
        return True

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[Item], bool] | None = None
    ) -> CompactionSnapshot | None:
        # One more item is read, to know whether there are older items.
        found = await self._ask(lambda store: tail(store, self._at, limit + 1))
        if found is None:
            return CompactionSnapshot([], True, _nothing_replaced)
        count = len(found.items)
        cut = max(0, count - limit)

        async def replace_suffix(start: int, output: list[Item]) -> bool:
            async def replace(store: Store) -> bool:
                newest, kept = len(found.items) - cut - start, found
                if prune_prefix is not None and not found.complete:
                    whole = await tail(store, self._at, None)
                    if whole is None or whole.row.head != found.row.head:
                        return False
                    kept = whole
                return await _replaced(store, kept, newest, output, prune_prefix)

            self._failed.forget()
            return await self._opening.run(replace)

        return CompactionSnapshot(found.items[cut:], cut == 0, replace_suffix)

    # Calls of the store

    async def _append(self, events: list[NewEvent]) -> None:
        events = self._failed.same(events)
        try:
            await self._opening.run(
                lambda store: writing.append(store, self._at, events, agent=AGENT)
            )
        except BaseException:
            self._failed.remember(events)
            raise

    async def _replace(self, store: Store, events: list[NewEvent]) -> None:
        async def plan() -> writing.Change[None] | None:
            row = await store.row(self._at)
            if row is None:
                if events:
                    await writing.append(store, self._at, events, agent=AGENT)
                return None
            return row, 0, events, None

        await writing.rewind(store, plan, None)

    async def _ask(self, question: Callable[[Store], Awaitable[T]]) -> T:
        return await self._opening.run(lambda store: persist(lambda _: question(store)))


class CompactionSnapshot(Struct, frozen=True):
    """The newest items, and a function that replaces the items from an index on. The replacement is
    one append, and fails if another writer has appended in the meantime."""

    items: list[Item]
    complete: bool
    replace_suffix: Callable[[int, list[Item]], Awaitable[bool]]


async def _nothing_replaced(start: int, output: list[Item]) -> bool:
    return False


async def _replaced(
    store: Store,
    found: Tail,
    newest: int,
    output: list[Item],
    prune: Callable[[Item], bool] | None,
) -> bool:
    """Replace the newest items of a tail, unless the log has grown. The first items for which
    `prune` returns True are removed too; `found` is then the whole conversation."""
    start = len(found.items) - newest
    if newest <= 0:
        return False
    expired = 0 if prune is None else len([*takewhile(prune, found.items[:start])])
    cuts = [(0, found.items[expired:start]) if expired else _cut(found, start)]

    async def plan() -> writing.Change[bool] | None:
        if not cuts:
            return None  # the log has grown
        to, kept = cuts.pop()
        return found.row, to, to_events([*kept, *output]), True

    return await writing.rewind(store, plan, False)


def _cut(found: Tail, start: int) -> tuple[int, list[Item]]:
    """Return the event to rewind to in order to remove the items from index `start` on, and the
    items to append again, because they are in the first event that is removed."""
    for entry in found.entries:
        if start < len(entry.items):
            return entry.event.seq - 1, entry.items[:start]
        start -= len(entry.items)
    return found.row.head, []


def _settings(given: SessionSettings | dict[str, Any] | None) -> SessionSettings:
    try:
        from agents.memory.session_settings import (  # noqa: PLC0415 - an extra
            SessionSettings,
            coerce_session_settings,
        )
    except ImportError as error:
        raise MissingExtra(extra="openai", needed_for="HoldfastSession") from error
    return SessionSettings() if given is None else coerce_session_settings(given)
