"""The contract of adapters, for Google ADK's session service on every kind of store."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from google.adk.errors import StaleSessionError
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.session import Session
from google.genai import types

from holdfast import InvalidValue, Store, Vault, connect, key
from holdfast.adapters import retries, writing
from holdfast.adapters.adk import HoldfastSessionService
from holdfast.adapters.adk.items import short
from holdfast.adapters.adk.reader import last_events
from holdfast.testing import AdapterContract
from holdfast.testing.adapter_contract import ODD

from .conftest import URLS

WHO: dict[str, Any] = {"app_name": "shop", "user_id": "u"}


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "PAUSE", 0.001)


@pytest.fixture(params=[*URLS, "vault"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store, None]:
    vault = Vault([Vault.new_key("first")]) if request.param == "vault" else None
    url = URLS["sqlite" if vault else request.param](tmp_path)
    async with connect(url, vault=vault) as store:
        yield store


def event_of(item: Any) -> Event:
    """Return an event with this text of the user, or with this output of a tool."""
    if isinstance(item, str):
        content = types.Content(role="user", parts=[types.Part(text=item)])
        return Event(author="user", invocation_id="e", content=content)
    output = types.FunctionResponse(id="c", name="look", response={"v": item[0]})
    content = types.Content(role="user", parts=[types.Part(function_response=output)])
    return Event(author="shop", invocation_id="e", content=content)


def item_of(event: Event) -> Any:
    assert event.content is not None
    assert event.content.parts is not None
    part = event.content.parts[0]
    if part.function_response is None:
        return part.text
    assert part.function_response.response is not None
    return [part.function_response.response["v"]]


class Conversation:
    """A caller that gets the session again when it is stale, and repeats what has failed."""

    def __init__(self, store: Store, id: str) -> None:
        self.store = store
        self.id = id
        self.service = HoldfastSessionService(store)
        self.session: Session | None = None
        self.failed: list[Event] = []

    async def load(self, config: GetSessionConfig | None = None) -> Session | None:
        return await self.service.get_session(**WHO, session_id=self.id, config=config)

    async def append(self, event: Event) -> None:
        while True:
            self.session = self.session or await self.load()
            if self.session is None:
                self.session = await self.service.create_session(**WHO, session_id=self.id)
            try:
                await self.service.append_event(self.session, event)
            except StaleSessionError:
                self.session = None
            else:
                return


class TestAdk(AdapterContract):
    def open(self, store: Store, session: str) -> Conversation:
        return Conversation(store, session)

    def item(self, value: Any) -> Any:
        return value if isinstance(value, str) else [value]

    async def add(self, conversation: Conversation, items: list[Any]) -> None:
        events = [event_of(item) for item in items]
        if [item_of(event) for event in conversation.failed] == items:
            events = conversation.failed
        conversation.failed = events
        for event in events:
            await conversation.append(event)
        conversation.failed = []

    async def items(self, conversation: Conversation, limit: int | None = None) -> list[Any]:
        session = await conversation.load(GetSessionConfig(num_recent_events=limit))
        return [] if session is None else [item_of(event) for event in session.events]

    async def pop(self, conversation: Conversation) -> Any:
        """Rewind the thread, as the command line does."""
        store, at = conversation.store, key(conversation.id)

        async def plan() -> writing.Change[Any] | None:
            row = await store.row(at)
            if row is None:
                return None
            events, _ = await last_events(store, row, 1, -math.inf)
            if not events:
                return None
            ids = [f"adk:{short(events[0].id)}", f"redone:{short(events[0].id)}:c"]
            (seq,) = (await store.seqs(at, ids)).values()
            return row, seq - 1, [], item_of(events[0])

        return await writing.rewind(store, plan, None)

    async def clear(self, conversation: Conversation) -> None:
        async def plan() -> writing.Change[None] | None:
            row = await conversation.store.row(key(conversation.id))
            return None if row is None else (row, 0, [], None)

        await writing.rewind(conversation.store, plan, None)

    async def test_two_writers_lose_nothing_and_keep_batches_whole(self, store: Store) -> None:
        async def write(name: str) -> None:
            one = self.open(store, "two")
            for number in range(8):
                await self.add(one, [f"{name} {number}"])

        await self.add(self.open(store, "two"), ["first"])
        await asyncio.gather(write("a"), write("b"))
        found = await self.items(self.open(store, "two"))
        for name in "ab":
            assert [item for item in found if item[0] == name] == [f"{name} {n}" for n in range(8)]
        assert len(found) == 17

    @pytest.mark.parametrize("name", ODD)
    async def test_odd_values_come_back_equal(self, store: Store, name: str) -> None:
        if name != "deep":
            await super().test_odd_values_come_back_equal(store, name)
            return
        one = self.open(store, "deep")  # ADK itself writes no more than about 250 levels
        with pytest.raises(InvalidValue, match="not nested deeply"):
            await self.add(one, [self.item(ODD[name])])
        assert await self.items(one) == []

    async def test_many_items_are_kept_in_order(self, store: Store) -> None:
        one, given = self.open(store, "many"), self.some(300)  # each one is an append
        await self.add(one, given)
        assert await self.items(one) == given
        assert await self.items(one, 3) == given[-3:]
