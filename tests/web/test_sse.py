"""`holdfast.web.sse`: the streams of a web app with a real server, killed and started again."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx_sse
import msgspec
import pytest

from holdfast import Agent, Harness, InvalidValue
from holdfast.models import offline
from holdfast.web import sse
from tests.examples.serving import PATIENCE, Served, served
from tests.servers.process import free_port

STARLETTE = """
from contextlib import asynccontextmanager
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from holdfast import Agent, Harness
from holdfast.models import offline
from holdfast.web import sse

harness = Harness(Agent("shop", instructions="Help."), default_model=offline(), store="sqlite:s.db")

@asynccontextmanager
async def lifespan(app):
    async with harness:
        yield

async def events(request):
    session = await harness.get_or_create("c")
    return sse(session, request, after=request.query_params.get("after"))

async def send(request):
    await harness.send("c", (await request.body()).decode())
    return PlainTextResponse("sent")

routes = [Route("/events", events), Route("/send", send, methods=["POST"])]
app = Starlette(routes=routes, lifespan=lifespan)
"""

ASGI = """
from holdfast import Agent, Harness
from holdfast.models import offline
from holdfast.web import sse

harness = Harness(Agent("shop", instructions="Help."), default_model=offline(), store="sqlite:s.db")

async def app(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    session = await harness.get_or_create("c")
    if scope["path"] == "/events":
        return await sse(session, scope)(scope, receive, send)
    if scope["path"] == "/send":
        await session.send((await receive())["body"].decode())
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"sent"})
"""


@contextmanager
def app(source: str, folder: Path) -> Iterator[Served]:
    (folder / "shop.py").write_text(source)
    port = free_port()
    words = ["-m", "uvicorn", "shop:app", "--port", str(port), "--log-level", "warning"]
    with served(words, folder, port) as server:
        yield server


def said(server: Served, text: str) -> None:
    assert httpx.post(f"{server.url}/send", content=text, timeout=PATIENCE).text == "sent"


@contextmanager
def events(
    server: Served, cursor: str | None = None, **query: str
) -> Iterator[Iterator[httpx_sse.ServerSentEvent]]:
    headers = {} if cursor is None else {"Last-Event-ID": cursor}
    with httpx.Client(timeout=PATIENCE) as client:
        target = f"{server.url}/events"
        with httpx_sse.connect_sse(client, "GET", target, headers=headers, params=query) as source:
            assert source.response.headers["cache-control"] == "no-store"
            yield source.iter_sse()


def until(found: Iterator[httpx_sse.ServerSentEvent], name: str) -> list[Any]:
    """The server-sent events up to the first with this name, as (name, id, data)."""
    seen = []
    for one in found:
        if not one.data:
            continue  # `retry:` alone
        seen.append((one.event, one.id, msgspec.json.decode(one.data)))
        if one.event == name:
            return seen
    raise AssertionError(f"the stream ended without {name}: {seen}")


def kinds(seen: list[Any]) -> list[str]:
    return [data["kind"] for name, _, data in seen if name == "event"]


@pytest.mark.parametrize("source", [STARLETTE, ASGI], ids=["starlette", "asgi"])
def test_a_stream_continues_after_the_last_event_id_on_a_restarted_server(
    source: str, tmp_path: Path
) -> None:
    with app(source, tmp_path) as server:
        said(server, "one")
        with events(server) as found:
            seen = until(found, "caught_up")
        assert kinds(seen)[:2] == ["session.created", "message.received"]
        assert kinds(seen)[-1] == "run.finished"
        cursor = seen[-1][1]

        server.restart()
        said(server, "two")
        with events(server, cursor) as found:
            more = until(found, "caught_up")
        assert kinds(more)[0] == "message.received"
        texts = [data["data"].get("text") for name, _, data in more if name == "event"]
        assert "two" in texts
        assert "one" not in texts
        numbers = [data["seq"] for name, _, data in seen + more if name == "event"]
        assert numbers == [*range(1, len(numbers) + 1)]


def test_a_stream_may_begin_at_the_end_of_the_log(tmp_path: Path) -> None:
    with app(STARLETTE, tmp_path) as server:
        said(server, "one")
        with events(server, after="now") as found:
            assert kinds(until(found, "caught_up")) == []


def test_a_stream_ends_when_the_process_is_asked_to_terminate(tmp_path: Path) -> None:
    with app(STARLETTE, tmp_path) as server, events(server) as found:
        until(found, "caught_up")
        server.process.send_signal(signal.SIGTERM)
        name, _, data = until(found, "end")[-1]
        assert (name, data["reason"]) == ("end", "shutdown")
        assert data["cursor"].endswith(".1")
        assert list(found) == []
        server.process.wait(PATIENCE)


@pytest.mark.parametrize("cursor", ["nonsense", "another-log.3"])
def test_a_cursor_that_does_not_belong_to_the_log_is_answered_with_resync(
    cursor: str, tmp_path: Path
) -> None:
    with app(STARLETTE, tmp_path) as server, events(server, cursor) as found:
        assert [name for name, _, _ in until(found, "end")] == ["resync", "end"]


@pytest.mark.parametrize("request_", [None, "GET /", {"type": "websocket"}])
async def test_what_is_not_an_http_request_is_rejected(request_: Any) -> None:
    async with Harness(Agent("shop", instructions="Help."), default_model=offline()) as harness:
        session = await harness.get_or_create("c")
        with pytest.raises(InvalidValue, match="scope of an ASGI app"):
            sse(session, request_)


def test_the_module_needs_no_web_framework() -> None:
    child = """
import importlib.abc, sys

class Others(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {*sys.stdlib_module_names, "msgspec", "holdfast"}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Others())
from holdfast.web import sse
try:
    from holdfast.server import create_app
except Exception as error:
    print(type(error).__name__, error.extra)
"""
    words = [sys.executable, "-c", child]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.stdout.strip() == "MissingExtra server", ended.stderr
