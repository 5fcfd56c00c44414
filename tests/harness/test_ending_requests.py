"""A web app that streams a session ends when its server is told to, also while somebody reads."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from holdfast import Agent, Harness
from holdfast.models import ScriptedModel
from tests.servers.process import free_port

PATIENCE = 60.0  # seconds, far beyond what it takes

# As docs/streaming.md has it, with a second route.
APP = """
import json
from contextlib import asynccontextmanager
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route
from holdfast import Agent, Harness
from holdfast.models import offline

agent = Agent("shop", instructions="Help with orders.")

@asynccontextmanager
async def lifespan(app):
    async with Harness(agent, default_model=offline(), store="sqlite:shop.db") as harness:
        app.state.harness = harness
        yield
    print("closed", flush=True)

async def events(request):
    session = await request.app.state.harness.get_or_create(request.path_params["id"])

    async def lines():
        yield "begun\\n"
        async for item in session.subscribe(0):
            yield type(item).__name__ + "\\n"
        yield "ended\\n"

    return StreamingResponse(lines(), media_type="text/plain")

async def display(request):
    session = await request.app.state.harness.get_or_create(request.path_params["id"])

    async def lines():
        yield "begun\\n"
        async for shown in session.display.changes():
            yield "CaughtUp\\n"
        yield "ended\\n"

    return StreamingResponse(lines(), media_type="text/plain")

routes = [Route("/{id}/events", events), Route("/{id}/display", display)]
app = Starlette(routes=routes, lifespan=lifespan)
"""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    (folder / "shop.py").write_text(APP)
    port = free_port()
    words = ["-m", "uvicorn", "shop:app", "--port", str(port), "--log-level", "warning"]
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + PATIENCE
        while not _up(url):
            assert process.poll() is None
            assert time.monotonic() < end, "the server did not come up"
            time.sleep(0.05)
        yield process, url
    finally:
        process.kill()
        process.wait(PATIENCE)
        if process.stdout is not None:
            process.stdout.close()


def _up(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/").status_code == 404
    return False


def _read(url: str, lines: list[str], ready: threading.Event) -> None:
    with httpx.stream("GET", url, timeout=PATIENCE) as stream:
        for line in stream.iter_lines():
            lines.append(line)
            if line == "CaughtUp":
                ready.set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_end_does_so_while_somebody_reads(
    number: signal.Signals, tmp_path: Path
) -> None:
    with served(tmp_path) as (process, url):
        readers = []
        for path in ("events", "display"):
            lines, ready = list[str](), threading.Event()
            reading = threading.Thread(target=_read, args=(f"{url}/c/{path}", lines, ready))
            reading.start()
            readers.append((reading, lines))
            assert ready.wait(PATIENCE)
        process.send_signal(number)
        assert process.wait(PATIENCE) in (0, -number, 128 + number)
        for reading, lines in readers:
            reading.join(PATIENCE)
            assert (lines[0], lines[-1]) == ("begun", "ended")
        assert process.stdout is not None
        said = process.stdout.read()
        assert said.splitlines()[0] == "closed"
        assert "Traceback" not in said


async def test_subscriptions_can_be_ended_and_runs_go_on() -> None:
    agent = Agent("shop", instructions="Help.")
    async with Harness(agent, default_model=ScriptedModel(["hi"], repeat=True)) as harness:
        session = await harness.get_or_create("s")
        before = session.subscribe(0)
        shown = session.display.changes()
        await anext(shown)
        harness.end_subscriptions()
        assert [type(item).__name__ async for item in before] == ["Event", "CaughtUp"]
        assert [display async for display in shown] == []
        assert (await session.send("go")).text == "hi"
        later = [type(item).__name__ async for item in session.subscribe(0)]
        assert later[-1] == "CaughtUp"
        assert len(later) > 2


async def test_a_reader_that_waits_ends_with_the_harness() -> None:
    agent = Agent("shop", instructions="Help.")
    async with Harness(agent, default_model=ScriptedModel(["hi"])) as harness:
        session = await harness.get_or_create("s")
        reading = aiter(session.subscribe(0))
        assert [type(await anext(reading)).__name__ for _ in range(2)] == ["Event", "CaughtUp"]
        waiting = asyncio.create_task(anext(reading, None))
        await asyncio.sleep(0)
    assert await waiting is None
