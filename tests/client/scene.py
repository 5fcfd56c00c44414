"""A server in the test's own process, and the agent that it serves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import uvicorn
from litestar import Litestar

from holdfast import Agent, Mode, tool
from holdfast.client import Client, Patience
from holdfast.harness.telemetry.logs import LogConfig
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.server import ServerLimits, SharedSecret, create_app
from holdfast.server.app import service_of

from ..servers.process import free_port

PATIENCE = 30.0
SECRET = "a secret of sixteen letters"
STORY = " ".join(f"word{n} é\u2028\U0001f600" for n in range(60))
QUICK = Patience(connect=2.0, answer=10.0, silence=10.0, total=20.0)


@tool(approval="ask", category="money")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def clerk() -> Agent:
    return Agent(
        "clerk", instructions="Obey.", tools=[pay], modes=[Mode("counter"), Mode("office")]
    )


def model(delay: float = 0.0) -> ScriptedModel:
    return ScriptedModel.by_input(
        {
            "Pay.": [Say("I pay.", calls=[Use("pay", amount=5)]), "Paid."],
            "Tell a story.": Say(STORY, delay=delay, usage={"input_tokens": 7}),
            ".": "Good day.",
        }
    )


def app(
    stores: Any = "memory:", *, delay: float = 0.0, ttl: float = 15.0, **settings: Any
) -> Litestar:
    harness = {
        "default_model": model(delay),
        "logging": LogConfig(level="silent"),
        "ttl": ttl,
        **settings.pop("harness", {}),
    }
    settings.setdefault("auth", SharedSecret(SECRET))
    settings.setdefault("limits", ServerLimits(rate=None))
    return create_app(agents=[clerk()], stores=stores, harness=harness, **settings)


class Server(uvicorn.Server):
    """Serves an app; what it streams ends before it waits for connections to end."""

    def __init__(self, app: Litestar, port: int) -> None:
        config = uvicorn.Config(app, port=port, log_level="critical", lifespan="on")
        super().__init__(config)
        self._app = app

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: Any = None) -> None:
        service_of(self._app).streams.close()
        await super().shutdown(sockets)


@contextlib.asynccontextmanager
async def serving(app: Litestar, port: int | None = None) -> AsyncGenerator[str, None]:
    """An app behind a port of this machine; the address."""
    port = port or free_port()
    server = Server(app, port)
    task = asyncio.create_task(server.serve())
    while not server.started:
        assert not task.done(), task.exception()
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await task


@contextlib.asynccontextmanager
async def connected(stores: str = "memory:", **settings: Any) -> AsyncGenerator[Client, None]:
    """A server, and a client of it."""
    made = await asyncio.to_thread(app, stores, **settings)
    async with serving(made) as url, Client(url, SECRET, patience=QUICK) as one:
        yield one
