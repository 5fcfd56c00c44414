"""The contract of adapters, for the OpenAI Agents SDK's session on every kind of store."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import agents  # noqa: F401 - as its users do, before a loop runs
import pytest

from holdfast import Store, Vault, connect
from holdfast.adapters import retries
from holdfast.adapters.openai import HoldfastSession
from holdfast.testing import AdapterContract

from .conftest import URLS


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "PAUSE", 0.001)


@pytest.fixture(params=[*URLS, "vault"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store, None]:
    vault = Vault([Vault.new_key("first")]) if request.param == "vault" else None
    url = URLS["sqlite" if vault else request.param](tmp_path)
    async with connect(url, vault=vault) as store:
        yield store


class TestOpenAI(AdapterContract):
    def open(self, store: Store, session: str) -> HoldfastSession:
        return HoldfastSession(session, store)

    def item(self, value: Any) -> Any:
        if isinstance(value, str):
            return {"content": value, "role": "user"}
        return {"type": "custom_tool_call_output", "call_id": "c", "output": value}

    async def add(self, conversation: HoldfastSession, items: list[Any]) -> None:
        await conversation.add_items(items)

    async def items(self, conversation: HoldfastSession, limit: int | None = None) -> list[Any]:
        return await conversation.get_items(limit)

    async def pop(self, conversation: HoldfastSession) -> Any:
        return await conversation.pop_item()

    async def clear(self, conversation: HoldfastSession) -> None:
        await conversation.clear_session()


class TestOpenAIAnswers(TestOpenAI):
    """The same with items of an answer, of which several are one event."""

    def item(self, value: Any) -> Any:
        if not isinstance(value, str):
            return super().item(value)
        name = value.replace("\0", "")
        call = {"arguments": "{}", "call_id": name, "name": "look", "type": "function_call"}
        return {**call, "id": f"fc_{value}", "status": "completed"}

    @pytest.fixture(params=["memory", "sqlite"])
    async def store(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> AsyncGenerator[Store, None]:
        async with connect(URLS[request.param](tmp_path)) as store:
            yield store
