"""The app wherever it runs: under `holdfast serve`, in several processes, mounted in another."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from litestar import Litestar, asgi
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast.cli.app import run as cli
from holdfast.errors import InvalidSettings
from holdfast.server import NoAuth, ServerLimits, close_app, create_app
from holdfast.server.app import service_of
from holdfast.server.processes import bound
from tests import forks
from tests.servers.process import free_port

from .scene import PATIENCE, engine, listening, model, serving, settings

ROOT = Path(__file__).parents[2]
PROGRAM = """
from holdfast import Agent, Harness, LogConfig, tool
from holdfast.models.scripted import Say, ScriptedModel, Use

@tool(approval="ask")
async def refund(order: str) -> str:
    "Refund an order."
    return f"refunded {order}"

def shop(**settings):
    model = ScriptedModel.by_input({
        "Refund": [Say("Let me see.", calls=[Use("refund", order="42")]), "Refunded."],
        "Slow": Say("one two three four five six seven eight nine ten", delay=0.3),
        ".": "Good day.",
    })
    agent = Agent("shop", instructions="Help.", tools=[refund])
    return Harness(agent, default_model=model, logging=LogConfig(level="silent"), **settings)
"""


class Served:
    """`holdfast serve` as a child process."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        port: int | None = None,
        program: str = PROGRAM,
        agent: str | None = "shop=shop:shop",
        auth: str | None = "none",
    ) -> None:
        (folder / "shop.py").write_text(program)
        self.port = free_port() if port is None else port
        self.url = f"http://127.0.0.1:{self.port}"
        words = ["serve", "--port", str(self.port)]
        if agent is not None:  # else all of it stands in a file
            words.append(agent)
            words += [] if "--store" in options else ["--store", "sqlite:x.db"]
        if auth is not None and "--auth" not in options:
            words += ["--auth", auth]
        self.process = forks.popen(
            *("-m", "holdfast.cli", *words, *options),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def ready(self) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            assert self.process.poll() is None, self.said()
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/v1/ready").status_code == 200:
                    return
            time.sleep(0.05)
        raise AssertionError("the server did not come up")

    def said(self) -> str:
        assert self.process.stdout is not None
        said: bytes = self.process.stdout.read()
        return said.decode()

    def ended(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(60)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextlib.contextmanager
def served(folder: Path, *options: str, port: int | None = None) -> Iterator[Served]:
    server = Served(folder, *options, port=port)
    try:
        server.ready()
        yield server
    finally:
        server.close()


@pytest.mark.parity("user-demand", 71)
@pytest.mark.parity("computeragent", 81)
def test_a_server_that_is_told_to_end_ends_its_streams_and_hands_over(tmp_path: Path) -> None:
    with served(tmp_path, "--grace", "1") as one:
        httpx.put(f"{one.url}/v1/sessions/c", json={})
        httpx.post(f"{one.url}/v1/sessions/c/messages", json={"content": "Slow"})
        headers = {"accept": "text/event-stream"}
        with httpx.stream("GET", f"{one.url}/v1/sessions/c/events", headers=headers) as stream:
            text = ""
            for chunk in stream.iter_text():
                if "event: delta" in text + chunk and not text.endswith("told"):
                    one.process.send_signal(signal.SIGTERM)
                text += chunk
        assert '"reason":"shutdown"' in text
        assert one.process.wait(60) == 0
    with served(tmp_path, port=one.port) as two:
        end = time.monotonic() + 60
        told: list[Any] = []
        while len(told) < 2 or told[-1].get("interrupted"):
            assert time.monotonic() < end, told
            answer = httpx.get(f"{two.url}/v1/sessions/c/transcript")
            told = answer.json()["items"] if answer.is_success else []
            time.sleep(0.05)
        assert told[0]["text"] == "Slow"
        assert told[-1]["text"].endswith("ten")


def test_a_killed_server_leaves_everything_to_the_next(tmp_path: Path) -> None:
    with served(tmp_path) as one:
        httpx.put(f"{one.url}/v1/sessions/c", json={})
        said = {"content": "Refund it."}
        waiting = httpx.post(f"{one.url}/v1/sessions/c/messages?wait=true", json=said).json()
        os.killpg(one.process.pid, signal.SIGKILL)
    with served(tmp_path) as two:
        item = waiting["pending"][0]["id"]
        done = httpx.post(f"{two.url}/v1/sessions/c/pending/{item}/approve").json()
        assert done["outcome"] == "approved"


def test_several_workers_serve_one_store_with_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(["keys", "create", "ann", "--store", f"sqlite:{tmp_path}/x.db", "--json"]) == 0
    key = json.loads(capsys.readouterr().out)["key"]
    headers = {"authorization": f"Bearer {key}"}
    with served(tmp_path, "--workers", "2", "--auth", "keys") as one:
        assert httpx.get(f"{one.url}/v1/sessions").status_code == 401
        for n in range(4):  # each on a connection of its own, so that both are asked
            made_now = httpx.put(f"{one.url}/v1/sessions/s{n}", json={}, headers=headers)
            assert made_now.status_code == 201
            said = {"content": "Hi"}
            path = f"{one.url}/v1/sessions/s{n}/messages?wait=true"
            assert httpx.post(path, json=said, headers=headers).json()["text"] == "Good day."
        assert one.ended() == 0


def test_keys_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ["--store", f"sqlite:{tmp_path}/x.db", "--tenant", "acme"]

    def keys(*words: str) -> str:
        assert cli(["keys", *words, *store]) == 0
        return capsys.readouterr().out

    made = json.loads(keys("create", "ann", "--json"))
    assert made["key"].startswith("hk_")
    assert made["principal"] == "ann"
    listed = keys("list")
    assert made["id"] in listed
    assert made["key"] not in listed
    assert json.loads(keys("list", "--json"))[0]["id"] == made["id"]
    turned = json.loads(keys("rotate", made["id"], "--grace", "1h", "--json"))
    assert turned["key"] != made["key"]
    assert turned["id"] == made["id"]
    assert "revoked" in keys("revoke", made["id"])
    assert "revoked" in keys("list")
    assert cli(["keys", "create", "bob", "--scope", "everything", *store]) == 1
    assert "is not a scope" in capsys.readouterr().err


def test_what_cannot_be_served_is_said_before_anything_is_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "corner.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def refused(*words: str) -> tuple[int, str]:
        return cli(["serve", *words, "--store", "sqlite:x.db"]), capsys.readouterr().err

    code, said = refused("corner:shop", "--host", "0.0.0.0", "--auth", "none")
    assert code == 1
    assert "allows only loopback addresses" in said
    code, said = refused("nowhere:agent")
    assert code == 1
    assert "nowhere" in said
    code, said = refused()
    assert code == 2
    assert "module:name" in said


# Mounted


@contextlib.asynccontextmanager
async def mounted(outer: str) -> AsyncGenerator[httpx.AsyncClient, None]:
    inner = await asyncio.to_thread(create_app, settings())
    app: Any = Starlette(routes=[Mount("/agents", app=cast(Any, inner))])
    if outer == "litestar":
        place = asgi("/agents", is_mount=True, copy_scope=True)(inner)
        app = Litestar([place], logging_config=None)
    transport = httpx.ASGITransport(app)
    headers = {"authorization": "Bearer ann@acme"}
    try:
        async with httpx.AsyncClient(
            transport=transport, base_url="http://app", headers=headers
        ) as client:
            yield client
    finally:
        await close_app(inner)
        await close_app(inner)


@pytest.mark.parametrize("outer", ["litestar", "starlette"])
async def test_an_app_can_be_mounted_where_no_lifespan_reaches_it(outer: str) -> None:
    async with mounted(outer) as client:
        made = await client.put("/agents/v1/sessions/one", json={})
        assert made.status_code == 201, made.text
        path = "/agents/v1/sessions/one/messages?wait=true"
        done = await client.post(path, json={"content": "Hi"})
        assert done.json()["text"] == "Good day."
        nothing = await client.get("/agents/v1/nothing")
        assert nothing.json()["error"]["code"] == "not_found"


async def test_a_closed_server_says_so() -> None:
    app = await asyncio.to_thread(create_app, settings())
    async with listening(app) as url, httpx.AsyncClient(base_url=url) as client:
        service_of(app).leave()
        answer = await client.get("/v1/sessions", headers={"authorization": "Bearer ann@acme"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "harness_closed")
        assert (await client.get("/v1/ready")).status_code == 503
        assert (await client.get("/v1/health")).json()["status"] == "closing"


async def test_whoever_waits_is_answered_when_the_server_goes() -> None:
    slow = settings(harness={"default_model": model(0.5)})
    async with serving(slow) as api:
        await api("PUT", "/sessions/one")
        said = {"content": "Slow"}
        asked = api("POST", "/sessions/one/messages?wait=true", said, status=202)
        waiting = asyncio.create_task(asked)
        await api.until("/sessions/one/status", lambda s: s["run"])
        service_of(api.app).leave()
        assert (await waiting)["seq"] == 3


# Sessions that nobody uses


@pytest.mark.parity("computeragent", 60, 61)
async def test_a_session_that_nobody_uses_is_closed_and_opens_again() -> None:
    quick = ServerLimits(idle_seconds=0.05, rate=None)
    async with serving(settings(limits=quick)) as api:
        await api("PUT", "/sessions/one")
        await api("POST", "/sessions/one/messages?wait=true", {"content": "Hi"})
        harness = engine(api.app).harnesses[0]
        async with asyncio.timeout(PATIENCE):
            while harness.get("one") is not None:  # noqa: ASYNC110 - it does not tell
                await asyncio.sleep(0.01)
        await api("POST", "/sessions/one/messages?wait=true", {"content": "More"})
        told = await api("GET", "/sessions/one/transcript")
        assert len(told["items"]) == 4


async def test_a_session_at_work_is_not_closed() -> None:
    quick = ServerLimits(idle_seconds=0.05, rate=None)
    slow = settings(limits=quick, harness={"default_model": model(0.15)})
    async with serving(slow) as api:
        await api("PUT", "/sessions/one")
        await api("POST", "/sessions/one/messages", {"content": "Slow"})
        told = await api.until("/sessions/one/transcript", lambda t: len(t["items"]) == 2)
        assert told["items"][-1]["text"].endswith("eight")
        kinds = [e["kind"] for e in (await api("GET", "/sessions/one/events"))["items"]]
        assert "run.resumed" not in kinds


async def test_work_of_a_tenant_is_taken_up_before_anybody_asks(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/x.db"
    one = settings(url, harness={"default_model": model(5.0)}, grace=0.0)
    async with serving(one) as api:
        await api("PUT", "/sessions/one")
        await api("POST", "/sessions/one/messages", {"content": "Slow"})
        await api.until("/sessions/one/status", lambda s: s["run"])
    async with serving(settings(url, tenants=["acme"])) as api:
        store = await service_of(api.app).places.store()
        from holdfast import key

        async with asyncio.timeout(PATIENCE):
            while True:
                row = await store.row(key("one", tenant="acme"))
                if row is not None and row.run == "done":
                    break
                await asyncio.sleep(0.02)


async def test_a_server_without_auth_serves_its_own_machine() -> None:
    async with serving(settings(auth=NoAuth())) as api:
        made = await api.client.put("/v1/sessions/one", json={})
        assert made.json()["row"]["user"] == "local"


CONFIG = """
[agents]
shop = "shop:shop"
[stores]
sqlite = "sqlite:x.db"
[auth]
kind = "none"
[audit]
sink = "log"
"""


def test_a_server_says_what_it_is_told_to_log(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text(CONFIG)
    (tmp_path / "shop.py").write_text(PROGRAM)
    port = free_port()
    words = ["serve", "--config", "server.toml", "--port", str(port)]
    server = Served.__new__(Served)
    server.port, server.url = port, f"http://127.0.0.1:{port}"
    server.process = forks.popen(
        *("-m", "holdfast.cli", *words),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        server.ready()
        httpx.put(f"{server.url}/v1/sessions/c", json={})
        assert server.ended() == 0
        said = server.said()
    finally:
        server.close()
    assert said.startswith(f"serving {server.url}/v1 from server.toml")
    records = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert [record["session"] for record in records] == ["c"]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_port_that_is_taken_is_said_in_one_clear_error(tmp_path: Path, workers: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = Served(tmp_path, "--workers", workers, port=port)
        try:
            assert server.process.wait(60) == 1
            said = server.said()
        finally:
            server.close()
    assert f"cannot listen on 127.0.0.1:{port} (Address already in use)" in said
    assert "--port" in said
    assert "serving" not in said
    assert "Traceback" not in said


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_a_host_that_is_not_this_machine_is_said_in_one_clear_error(host: str) -> None:
    with pytest.raises(InvalidSettings, match=f"cannot listen on {host}:0 .* --host"):
        bound(host, 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_that_it_serves_is_said_when_it_does(tmp_path: Path, host: str) -> None:
    server = Served(tmp_path, "--host", host, port=0)
    try:
        assert server.process.stdout is not None
        first = server.process.stdout.readline().decode()
        url = first.split()[1]
        assert httpx.get(f"{url}/ready", timeout=PATIENCE).status_code == 200
        assert url.startswith(f"http://{host}:")
        assert server.ended() == 0
    finally:
        server.close()


def test_what_cannot_be_served_is_not_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.toml"
    file.write_text("[agents]\n")
    assert cli(["serve", "--config", str(file)]) != 0
    assert "serving" not in capsys.readouterr().err
    for option in (["--auth", "none"], ["--model", "x/y"], ["--sandbox", str(tmp_path)]):
        assert cli(["serve", "--config", str(file), *option]) != 0
        assert "--config" in capsys.readouterr().err
