"""The Claude Agent SDK as an engine of a server: the real CLI, against a stand-in for the API."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import Agent, LogConfig, Store
from holdfast.adapters.claude.engine import claude_engine
from holdfast.log.catalog import Query, Row
from holdfast.server import FileAudit, NoAuth, create_app
from holdfast.server.app import service_of

from ..server.scene import listening
from .messages import standing_in
from .test_provider import tidy

__all__ = ["tidy"]  # a fixture

pytestmark = pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning")


async def theirs(store: Store) -> list[Row]:
    """The SDK's own sessions."""
    return (await store.find(Query(tenant="~claude:main"))).items


async def everything(store: Store, tenant: str) -> str:
    """All events of a tenant, as text."""
    found = ""
    for row in (await store.find(Query(tenant=tenant))).items:
        found += "".join([bytes(event.data).decode() async for event in store.read(row.key)])
    return found


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


async def test_variables_of_a_request_reach_the_sdks_process_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    caplog.set_level(logging.DEBUG)
    work, canary = tmp_path / "work", "sesame-canary-0123456789"
    work.mkdir()
    with standing_in() as api:
        api.more = f" It is {canary}, is it?"
        env = {"ANTHROPIC_BASE_URL": api.url, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        engine = claude_engine(
            [Agent("desk", instructions="Help.")],
            cwd=str(work),
            env={**env, "ANTHROPIC_API_KEY": "the-server-has-one"},
            logging=LogConfig(level="debug"),
        )
        app = await asyncio.to_thread(
            create_app,
            engines={"claude-agent-sdk": engine},
            stores=f"sqlite:{tmp_path}/s.db",
            auth=NoAuth(),
            audit=FileAudit(tmp_path / "audit.jsonl"),
            envs=["ANTHROPIC_API_KEY"],
        )
        answers: list[str] = []
        async with listening(app) as url, httpx.AsyncClient(base_url=url, timeout=60) as http:

            async def ask(method: str, path: str, **more: Any) -> str:
                answers.append((await http.request(method, f"/v1{path}", **more)).text)
                return answers[-1]

            await ask("PUT", "/sessions/mine", json={"envs": {"ANTHROPIC_API_KEY": canary}})
            said = {"content": "Tell."}
            told = await ask("POST", "/sessions/mine/messages?wait=true", json=said)
            assert "It is [redacted], is it?" in told
            api.more = ""
            await ask("PUT", "/sessions/other")
            await ask("POST", "/sessions/other/messages?wait=true", json=said)
            for path in ("", "/events", "/transcript", "/display", "/status"):
                await ask("GET", f"/sessions/mine{path}")
            await ask("GET", "/sessions/mine/events?until=idle")
            store = await service_of(app).places.store()
            logs = [await everything(store, tenant) for tenant in ("main", "~claude:main")]
        assert api.keys == [canary, "the-server-has-one"]
    assert all("[redacted]" in log for log in logs)
    audit = await asyncio.to_thread((tmp_path / "audit.jsonl").read_text)
    for found in (*answers, caplog.text, *logs, audit):
        assert canary not in found
