"""The contract of adapters, for pydantic-ai's conversation store on every kind of store."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_core import TzInfo

from holdfast import Store, Vault, connect
from holdfast.adapters import retries
from holdfast.adapters.pydantic_ai import HoldfastConversationStore
from holdfast.testing import AdapterContract
from holdfast.testing.adapter_contract import ODD

from .conftest import URLS

NOW = datetime(2026, 1, 2, tzinfo=TzInfo(0))  # as the SDK reads it


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "PAUSE", 0.001)


@pytest.fixture(params=[*URLS, "vault"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store, None]:
    vault = Vault([Vault.new_key("first")]) if request.param == "vault" else None
    url = URLS["sqlite" if vault else request.param](tmp_path)
    async with connect(url, vault=vault) as store:
        yield store


class Talk:
    """A conversation as a program uses it: after a conflict it loads the conversation again, and
    after a failure it saves the same object again."""

    def __init__(self, store: Store, id: str) -> None:
        self.store = HoldfastConversationStore(store)
        self.id = id
        self.unsaved: tuple[list[Any], Conversation] | None = None

    async def load(self, limit: int | None = None) -> Conversation:
        found = await self.store.load(self.id, limit=limit)
        return found or Conversation(conversation_id=self.id)

    async def add(self, items: list[ModelMessage]) -> None:
        last, self.unsaved = self.unsaved, None
        conversation = last[1] if last and last[0] == items else None
        while True:
            if conversation is None:
                conversation = await self.load(limit=1)
                conversation.messages += items
            try:
                await self.store.save(conversation)
                return
            except ConversationConflict:
                stored = (await self.load(limit=len(items))).messages
                if last is not None and stored == items:
                    return  # the save that failed was stored
                conversation = None
            except BaseException:
                self.unsaved = items, conversation
                raise

    async def cut(self, all: bool) -> ModelMessage | None:
        while True:
            found = await self.store.load(self.id)
            if found is None or not found.messages:
                return None
            at = 0 if all else len(found.messages) - 1
            try:
                await self.store.branch(self.id, at=at, expected_revision=found.revision)
            except ConversationConflict:
                continue
            return found.messages[-1]


class TestPydanticAI(AdapterContract):
    def open(self, store: Store, session: str) -> Talk:
        return Talk(store, session)

    def item(self, value: Any) -> ModelMessage:
        if value is ODD["deep"]:  # the SDK serialises such a value as text only
            call = ToolCallPart("deep", json.dumps(value), tool_call_id="c")
            return ModelResponse(parts=[call], timestamp=NOW)
        if isinstance(value, str):
            return ModelRequest(parts=[UserPromptPart(value, timestamp=NOW)])
        return ModelRequest(parts=[ToolReturnPart("f", value, tool_call_id="c", timestamp=NOW)])

    async def add(self, conversation: Talk, items: list[Any]) -> None:
        if items:
            await conversation.add(items)

    async def items(self, conversation: Talk, limit: int | None = None) -> list[Any]:
        return (await conversation.load(limit)).messages

    async def pop(self, conversation: Talk) -> Any:
        return await conversation.cut(all=False)

    async def clear(self, conversation: Talk) -> None:
        await conversation.cut(all=True)


class TestPydanticAIToolReturns(TestPydanticAI):
    """The same with messages of several parts, which are several events."""

    def item(self, value: Any) -> ModelMessage:
        if not isinstance(value, str):
            return super().item(value)
        parts: list[Any] = [
            ToolReturnPart("f", value, tool_call_id="c1", timestamp=NOW),
            ToolReturnPart("f", {"in": value}, tool_call_id="c2", timestamp=NOW),
            UserPromptPart(value, timestamp=NOW),
        ]
        return ModelRequest(parts=parts)

    @pytest.fixture(params=["memory", "sqlite"])
    async def store(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> AsyncGenerator[Store, None]:
        async with connect(URLS[request.param](tmp_path)) as store:
            yield store
