"""The Claude Agent SDK as an engine of a server: the real CLI, against a stand-in for the API."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from holdfast import Agent, Store
from holdfast.adapters.claude.engine import claude_engine
from holdfast.catalog import Query, Row
from holdfast.server import NoAuth, create_app
from holdfast.server.app import service_of

from ..server.scene import listening
from .messages import standing_in
from .test_provider import tidy

__all__ = ["tidy"]  # a fixture

pytestmark = pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning")


async def theirs(store: Store) -> list[Row]:
    """The SDK's own sessions."""
    return (await store.find(Query(tenant="~claude:main"))).items


async def test_a_session_is_driven_by_the_sdk_and_goes_on_in_another_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    work = tmp_path / "work"
    work.mkdir()
    with standing_in() as api:
        env = {
            "ANTHROPIC_BASE_URL": api.url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        for number, text in enumerate(("My cat is called Ada.", "And now?"), 1):
            desk = Agent("desk", instructions="Help with pets.")
            engine = claude_engine([desk], cwd=str(work), env=env)
            app = await asyncio.to_thread(
                create_app,
                engines={"claude-agent-sdk": engine},
                stores=f"sqlite:{tmp_path}/s.db",
                auth=NoAuth(),
            )
            async with listening(app) as url, httpx.AsyncClient(base_url=url) as http:
                await http.put("/v1/sessions/pets", json={"engine": "claude-agent-sdk"})
                said = await http.post(
                    "/v1/sessions/pets/messages?wait=true", json={"content": text}, timeout=60
                )
                assert (said.json()["status"], said.json()["text"]) == ("done", f"Answer {number}.")
                store = await service_of(app).places.store()
                assert len(await theirs(store)) == 1
                if number == 2:
                    assert (await http.delete("/v1/sessions/pets")).status_code == 200
                    assert await theirs(store) == []
        told = " ".join(api.texts()[-1])
    assert "Ada" in told
    assert "And now?" in told
