"""An app within another, in a uvicorn of its own: it ends when it is told to, also while somebody
reads a stream."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.servers.process import free_port

from .scene import PATIENCE

# As docs/server.md has it.
HOST = """
from contextlib import asynccontextmanager
from starlette.applications import Starlette
from starlette.routing import Mount
from holdfast import Agent
from holdfast.models import offline
from holdfast.server import NoAuth, create_app

agents = create_app(
    agents=[Agent("shop", instructions="Help.")],
    stores="sqlite:x.db",
    auth=NoAuth(),
    harness={"default_model": offline()},
)

@asynccontextmanager
async def lifespan(app):
    async with agents.lifespan():
        yield

app = Starlette(routes=[Mount("/agents", app=agents)], lifespan=lifespan)
"""


@contextlib.contextmanager
def hosted(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    (folder / "host.py").write_text(HOST)
    port = free_port()
    words = ["-m", "uvicorn", "host:app", "--port", str(port), "--log-level", "warning"]
    process = subprocess.Popen(
        [sys.executable, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    url = f"http://127.0.0.1:{port}/agents/v1"
    try:
        end = time.monotonic() + 2 * PATIENCE
        while not _ready(url):
            assert process.poll() is None
            assert time.monotonic() < end, "the server did not come up"
            time.sleep(0.05)
        yield process, url
    finally:
        process.kill()
        process.wait(PATIENCE)
        if process.stdout is not None:
            process.stdout.close()


def _ready(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(f"{url}/ready").status_code == 200
    return False


def test_a_host_ends_while_somebody_reads_a_stream(tmp_path: Path) -> None:
    with hosted(tmp_path) as (process, url):
        assert httpx.put(f"{url}/sessions/c", json={}).status_code == 201
        text, accept = "", {"accept": "text/event-stream"}
        patience = 2 * PATIENCE
        with httpx.stream(
            "GET", f"{url}/sessions/c/events", headers=accept, timeout=patience
        ) as stream:
            for chunk in stream.iter_text():
                if "caught_up" not in text and "caught_up" in text + chunk:
                    process.send_signal(signal.SIGTERM)
                text += chunk
        assert '"reason":"shutdown"' in text
        assert process.wait(2 * PATIENCE) in (0, -signal.SIGTERM)
        assert process.stdout is not None
        assert b"Traceback" not in process.stdout.read()
