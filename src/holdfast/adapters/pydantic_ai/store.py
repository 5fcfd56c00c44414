"""pydantic-ai's `ConversationStore` on any Holdfast store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

from ...errors import InvalidValue, MissingExtra
from ...log.codec import check_key, check_name
from ...log.events import Key
from ...stores.port import Store
from ..lazy_store import LazyStore
from ..retries import persist

try:
    from pydantic_ai.conversation import Conversation
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
    from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse

    from . import reader, writer
except ImportError as error:
    raise MissingExtra(extra="pydantic-ai", needed_for="HoldfastConversationStore") from error

T = TypeVar("T")

# The log of the conversation that this task read last: the SDK requests entries only by id.
_near: ContextVar[Key | None] = ContextVar("holdfast_pydantic_ai_near", default=None)


class HoldfastConversationStore(ConversationStore):
    """The SDK's `ConversationStore` on an open Holdfast store or on the URL of a store.

    A conversation is stored in the session with the same id. A URL is opened on first use, once per
    process; the object can then be used on any event loop and in any thread. A store that you pass
    in is not closed, and belongs to its event loop, unless it is a `PortalStore`.

    See [pydantic-ai](../pydantic-ai.md).
    """

    def __init__(self, store: Store | str, *, tenant: str = "main") -> None:
        check_name("tenant", tenant)
        self._tenant = tenant
        self._opening = LazyStore(store)

    def __repr__(self) -> str:
        return f"HoldfastConversationStore({self._opening!r}, tenant={self._tenant!r})"

    async def __aenter__(self) -> HoldfastConversationStore:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def connect(self) -> None:
        """Open the store now, so that errors appear at startup. You can retry after a failure."""
        await self._opening.connect()

    async def close(self) -> None:
        """Close the store if it was opened from a URL, unless other code of this process uses it.
        Idempotent; the next use opens it again."""
        await self._opening.close()

    # Message history

    async def messages(
        self, conversation_id: str, *, limit: int | None = None, scope: str | None = None
    ) -> list[ModelMessage]:
        """Return the messages of a conversation, oldest first, for `message_history=`. With
        `limit`, return only the newest messages. Returns an empty list for an unknown
        conversation."""
        entries = await self.load_entries(conversation_id, limit=limit, scope=scope)
        return [entry.message for entry in entries or ()]

    async def add_messages(
        self, conversation_id: str, messages: Sequence[ModelMessage], *, scope: str | None = None
    ) -> list[ConversationEntry]:
        """Append messages to a conversation, after messages that other writers have added, and
        return their entries. Creates the conversation if it does not exist. Raises
        `ConversationConflict` if it has a different scope."""
        added = _checked(messages)
        while True:
            found = await self.load(conversation_id, limit=0, scope=scope)
            conversation = found or Conversation(conversation_id=conversation_id)
            conversation.messages.extend(added)
            try:
                return await self.save(conversation, scope=scope)
            except ConversationConflict:
                if found is None and await self.load(conversation_id, limit=0, scope=scope) is None:
                    raise

    # The SDK's primitives

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation, or None if it does not exist."""
        at = self._at(conversation_id)
        _near.set(at)
        found = await self._ask(lambda store: reader.current(store, at))
        return None if found is None else found.record

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Return the records of the conversations that were saved with this adapter, most recently
        saved first. Conversations that only other programs wrote are not listed."""
        return await self._ask(lambda store: reader.records(store, self._tenant, scope, limit))

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and its new entries. They are durable when this returns. One append
        contains them, unless they are too large for one append."""
        at, near = self._at(record.conversation_id), self._near()
        await self._opening.run(
            lambda store: writer.write(store, at, record, new_entries, expected_revision, near)
        )

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a conversation and its session, with all entries, including those of branches that
        are no longer current. Forks have copies of the entries and are not changed."""
        at = self._at(conversation_id)
        await self._opening.run(lambda store: writer.delete(store, at, expected_revision))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry. Raises `LookupError` if it does not exist or was erased."""
        entries = await self.read_history(entry_id, limit=1)
        if not entries or entries[-1].id != entry_id:
            raise LookupError(f"entry {entry_id!r} is not in the store")
        return entries[-1]

    async def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        """Return the entries up to `head_id`, oldest first; with `limit`, only the newest. Reads
        the log once. Raises `LookupError` if the entry does not exist."""
        if head_id is None:
            return []

        near = self._near()

        async def read(store: Store) -> list[ConversationEntry]:
            row, seq = await reader.locate(store, self._tenant, head_id, near)
            return await reader.history(store, row, seq, limit)

        return await self._ask(read)

    # Calls of the store

    def _at(self, conversation_id: str) -> Key:
        at = Key(self._tenant, conversation_id, "main")
        check_key(at)
        return at

    def _near(self) -> Key | None:
        near = _near.get()
        return near if near is not None and near.tenant == self._tenant else None

    async def _ask(self, question: Callable[[Store], Awaitable[T]]) -> T:
        return await self._opening.run(lambda store: persist(lambda _: question(store)))


def _checked(messages: Any) -> list[ModelMessage]:
    """Return the messages as a list. Raises `InvalidValue` if they are not messages of the SDK."""
    remedy = "pass a list of ModelRequest and ModelResponse, such as result.new_messages()"
    if not isinstance(messages, Sequence):
        name = type(messages).__name__
        raise InvalidValue(field="messages", problem=f"is {name}", remedy=remedy)
    for message in messages:
        if not isinstance(message, ModelRequest | ModelResponse):
            name = type(message).__name__
            raise InvalidValue(field="messages", problem=f"contains {name}", remedy=remedy)
    return list(messages)
