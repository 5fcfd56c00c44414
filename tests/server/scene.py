"""A server on a port of this machine, the shop that it serves, and short words to ask it with."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from importlib import import_module
from typing import Any

import httpx
import uvicorn
from litestar import Litestar

from holdfast import Agent, LogConfig, Mode, ToolContext, tool
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.server import (
    Caller,
    HoldfastEngine,
    MemoryAudit,
    RequestCredentials,
    ServerLimits,
    Settings,
    create_app,
)
from holdfast.server.app import service_of
from tests.servers.process import free_port

from . import signatures

signatures.share()
# Litestar imports this with the first OpenAPI document of a process, and that reads folders.
import_module("litestar._openapi.schema_generation.examples")
PATIENCE = 30.0  # seconds; only a hang takes so long
ALL = (
    *("sessions:read", "sessions:write", "pending:decide", "people:erase", "bundles"),
    *("files:read", "files:write"),
)


@tool(category="payments", approval="ask")
async def refund(order: str, cents: int = 100) -> str:
    """Refund an order."""
    return f"refunded {cents} of {order}"


@tool
async def note(text: str, context: ToolContext) -> str:
    """Keep a note."""
    await context.update_state(note=text)
    return "kept"


def shop() -> Agent:
    return Agent(
        "shop",
        instructions="Help with orders.",
        tools=[refund, note],
        modes=[Mode("counter"), Mode("office")],
        state={"visits": 1},
    )


def model(delay: float = 0.0) -> ScriptedModel:
    return ScriptedModel.by_input(
        {
            "Refund": [Say("Let me see.", calls=[Use("refund", order="42")]), "Refunded."],
            "Note": [Say("", calls=[Use("note", text="hello")]), "Noted."],
            "Slow": Say("one two three four five six seven eight", delay=delay or 0.2),
            ".": Say("Good day.", usage={"input_tokens": 7, "output_tokens": 3}),
        }
    )


class Tokens:
    """Knows people by tokens such as `ann@acme`, and lets them do the usual."""

    def __init__(self, scopes: tuple[str, ...] = ALL) -> None:
        self.scopes = scopes

    async def authenticate(self, shown: RequestCredentials) -> Caller | None:
        principal, at, tenant = (shown.bearer() or "").partition("@")
        tenant, plus, more = tenant.partition("+")
        if not (at and principal and tenant):
            return None
        scopes = {*self.scopes, *(more.split(",") if plus else ())}
        return Caller(tenant=tenant, principal=principal, scopes=frozenset(scopes))


def settings(stores: Any = "memory:", **more: Any) -> Settings:
    harness = {"default_model": model(), "logging": LogConfig(level="silent")}
    harness.update(more.pop("harness", {}))
    given = {
        "agents": [shop()],
        "auth": Tokens(),
        "audit": MemoryAudit(),
        "limits": ServerLimits(rate=None),
        "grace": 5.0,
        **more,
    }
    return Settings(stores=stores, harness=harness, **given)


class Uvicorn(uvicorn.Server):
    """uvicorn that leaves the signals of the test alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: Any = None) -> None:
        service_of(self.config.loaded_app).leave()  # as a signal would
        await super().shutdown(sockets)


@contextlib.asynccontextmanager
async def listening(app: Litestar, port: int = 0) -> AsyncGenerator[str, None]:
    """An app behind a port; its address."""
    port = port or free_port()
    config = uvicorn.Config(
        app, port=port, log_level="critical", lifespan="on", ws="none", proxy_headers=False
    )
    server = Uvicorn(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        assert not task.done(), task.exception()
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await task


class Api:
    """Asks a server as somebody, with `ann@acme` unless another is named."""

    def __init__(self, url: str, client: httpx.AsyncClient, app: Litestar) -> None:
        self.url, self.client, self.app = url, client, app

    async def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        status: int | None = None,
        by: str = "ann@acme",
        key: str | None = None,
        **more: Any,
    ) -> Any:
        """The JSON of the answer, which has this status."""
        answer = await self.ask(method, path, body, by=by, key=key, **more)
        wanted = status if status is not None else True
        found = answer.status_code if status is not None else answer.is_success
        assert found == wanted, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        by: str | None = "ann@acme",
        key: str | None = None,
        **more: Any,
    ) -> httpx.Response:
        headers = dict(more.pop("headers", {}))
        if by is not None:
            headers["authorization"] = f"Bearer {by}"
        if key is not None:
            headers["idempotency-key"] = key
        if body is not None:
            more["json"] = body
        return await self.client.request(method, f"/v1{path}", headers=headers, **more)

    async def fails(self, code: str, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """The fields of a failure, which has this code."""
        answer = await self.ask(method, path, body, **more)
        error = answer.json()["error"]
        assert error["code"] == code, f"{method} {path}: {answer.status_code} {answer.text}"
        assert {*error} == {"code", "message", "fields", "retryable", "docs"}
        return error["fields"]

    async def until(self, path: str, true: Callable[[Any], Any], **more: Any) -> Any:
        """What is at a path, once it is so."""
        async with asyncio.timeout(PATIENCE):
            while True:
                found = await self("GET", path, **more)
                if true(found):
                    return found
                await asyncio.sleep(0.02)

    async def answered(
        self, status: int, method: str, path: str, body: Any = None, **more: Any
    ) -> httpx.Response:
        """The first answer with this status; until then it is asked again."""
        async with asyncio.timeout(PATIENCE):
            while True:
                answer = await self.ask(method, path, body, **more)
                if answer.status_code == status:
                    return answer
                await asyncio.sleep(0.02)

    async def ask_for_refund(self, id: str, **more: Any) -> str:
        """Begin a session that waits for a person; the item."""
        await self("PUT", f"/sessions/{id}", **more)
        waiting = await self(
            "POST", f"/sessions/{id}/messages?wait=true", {"content": "Refund it."}, **more
        )
        assert waiting["status"] == "waiting"
        item: str = waiting["pending"][0]["id"]
        return item


@contextlib.asynccontextmanager
async def serving(made: Settings | None = None, **more: Any) -> AsyncGenerator[Api, None]:
    """A server, and a way to ask it."""
    app = await asyncio.to_thread(create_app, made or settings(**more))
    async with listening(app) as url, httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
        yield Api(url, client, app)


def engine(app: Litestar) -> HoldfastEngine:
    found = service_of(app).engines["holdfast"]
    assert isinstance(found, HoldfastEngine)
    return found
