"""Canaries: secrets that are put in everywhere, and must come out nowhere."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, LogConfig, tool
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.server import ApiKeys, FileAudit, SharedSecret
from holdfast.server.app import service_of

from .scene import serving, settings

SECRET = "canary-shared-secret-0123456789"
URL_PASSWORD = "canary-password-in-url"
TOKEN = "sk-canary0123456789abcdefghij"


@pytest.mark.parity("computeragent", "S28")
@pytest.mark.parity("user-demand", 57, 62)
async def test_canaries_come_out_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    @tool
    async def leak() -> str:
        """Tell a secret."""
        raise ValueError(f"the key is {TOKEN}")

    agent = Agent("leaky", instructions="x", tools=[leak])
    script = ScriptedModel([Say("", calls=[Use("leak")]), "Done."], per_turn=True)
    caplog.set_level(logging.DEBUG)
    audit = tmp_path / "audit.jsonl"
    away = f"postgresql://u:{URL_PASSWORD}@127.0.0.1:1/x"
    stores = {"sqlite": f"sqlite:{tmp_path}/x.db", "postgres": away}
    made = settings(
        stores,
        agents=[agent],
        auth=SharedSecret(SECRET),
        audit=FileAudit(audit),
        harness={"default_model": script, "logging": LogConfig(level="debug")},
    )
    answers: list[str] = []
    async with serving(made) as api:

        async def ask(*args: Any, **more: Any) -> Any:
            answer = await api.ask(*args, by=SECRET, **more)
            answers.append(answer.text + str(answer.headers))
            return answer

        await ask("PUT", "/sessions/one")
        await ask("POST", "/sessions/one/messages?wait=true", {"content": "Hi"})
        for path in ("", "/events", "/transcript", "/display", "/status"):
            await ask("GET", f"/sessions/one{path}")
        await ask("GET", "/sessions?store=postgres")
        await ask("POST", "/sessions", {"store": {"kind": "postgres", "options": {"url": "x"}}})
        await ask("GET", f"/sessions/{TOKEN}")
        await ask("GET", "/sessions", headers={"x-api-key": TOKEN, "cookie": TOKEN})
        await ask("GET", "/health")
        keys = ApiKeys(await service_of(api.app).places.store())
        new = await keys.create(principal="ann")
        answers.append((await api.ask("GET", f"/sessions/{new.key}", by=SECRET)).headers["date"])
        await api.ask("GET", "/sessions", by=new.key)
    ours = [r for r in caplog.records if not r.name.startswith(("httpx", "httpcore"))]
    logged = "\n".join(caplog.handler.format(record) for record in ours)
    assert "holdfast" in logged
    told = "\n".join([*answers, logged])
    written = audit.read_text()
    assert "get_session" in written
    assert SECRET not in told
    assert SECRET not in written
    assert URL_PASSWORD not in told
    assert URL_PASSWORD not in written
    assert TOKEN not in written
    assert new.key[-43:] not in written
    assert TOKEN not in logged
    assert new.key[-43:] not in logged
    # What a caller put into a path comes back to that caller alone.
    assert sum(TOKEN in answer for answer in answers) <= 1
