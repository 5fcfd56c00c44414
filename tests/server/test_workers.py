"""Processes of a server, and what becomes of them: workers whose parent is killed, what several of
them cannot share, and the port of one that ends."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import httpx
import pytest

from holdfast.cli.app import run as cli

from .scene import PATIENCE
from .test_serve import PROGRAM, Served, served

PATIENT = """
import asyncio
import pathlib
from holdfast import Agent, Harness, tool
from holdfast.models.scripted import Say, ScriptedModel, Use

@tool
async def wait() -> str:
    "Wait until there is a file."
    while not await asyncio.to_thread(pathlib.Path("go").exists):
        await asyncio.sleep(0.05)
    return "there it is"

def shop(**settings):
    model = ScriptedModel([Say("", calls=[Use("wait")]), "Done."])
    agent = Agent("shop", instructions="Help.", tools=[wait])
    return Harness(agent, default_model=model, **settings)
"""
STREAM = {"accept": "text/event-stream"}
CONFIG = """
[agents]
shop = "corner_envs:shop"
[stores]
sqlite = "sqlite:x.db"
[auth]
kind = "none"
[server]
envs = ["TOKEN"]
"""


def gone(server: Served) -> None:
    """Wait until nobody listens any more."""
    end = time.monotonic() + 2 * PATIENCE
    while time.monotonic() < end:
        try:
            httpx.get(f"{server.url}/v1/health")
        except httpx.ConnectError:
            return
        except httpx.TransportError:
            pass  # of a worker on its way out
        time.sleep(0.05)
    raise AssertionError("somebody still listens")


def test_workers_end_in_good_order_when_their_parent_is_killed(tmp_path: Path) -> None:
    with served(tmp_path, "--workers", "2", "--grace", "1") as one:
        httpx.put(f"{one.url}/v1/sessions/c", json={})
        url = f"{one.url}/v1/sessions/c/events"
        with httpx.stream("GET", url, headers=STREAM, timeout=2 * PATIENCE) as stream:
            text = ""
            for chunk in stream.iter_text():
                if "caught_up" not in text and "caught_up" in text + chunk:
                    one.process.kill()  # the parent, and no other
                text += chunk
        assert '"reason":"shutdown"' in text
        gone(one)
    with served(tmp_path, port=one.port) as two:
        assert httpx.get(f"{two.url}/v1/sessions/c").status_code == 200


def test_variables_and_several_workers_are_refused_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "corner_envs.py").write_text(PROGRAM)
    (tmp_path / "server.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert cli(["serve", "--config", "server.toml", "--workers", "2"]) == 1
    said = capsys.readouterr().err
    assert "they are kept in the memory of one process" in said
    assert "--workers 1" in said
    assert "serving" not in said


def test_a_server_that_ends_refuses_connections_before_it_is_gone(tmp_path: Path) -> None:
    one = Served(tmp_path, "--grace", "120", program=PATIENT)
    try:
        one.ready()
        httpx.put(f"{one.url}/v1/sessions/c", json={})
        httpx.post(f"{one.url}/v1/sessions/c/messages", json={"content": "Go"})
        url = f"{one.url}/v1/sessions/c/events"
        with httpx.stream("GET", url, headers=STREAM, timeout=2 * PATIENCE) as stream:
            text = ""
            for chunk in stream.iter_text():
                if "tool.started" not in text and "tool.started" in text + chunk:
                    one.process.send_signal(signal.SIGTERM)
                text += chunk
        assert '"reason":"shutdown"' in text
        gone(one)
        assert one.process.poll() is None  # the run goes on to a safe point
        (tmp_path / "go").touch()
        assert one.process.wait(2 * PATIENCE) == 0
    finally:
        one.close()
