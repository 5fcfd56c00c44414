"""The app: routes, the edge before them, and the OpenAPI document out of their types."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar, Request, Response, Router
from litestar.config.cors import CORSConfig
from litestar.di import Provide
from litestar.openapi import OpenAPIConfig
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Components, SecurityScheme

from ..harness.workers.signals import told
from ..log.events import new_id
from ..stores.port import wall_clock
from ..wire import Failed
from .auth.audit import AuditRecord
from .http.context import SERVICE, asking
from .http.cors import ASKED, Front
from .http.errors import Answer, answer
from .http.headers import guarded
from .http.middleware import Edge
from .routes import (
    bundles,
    documents,
    events,
    files,
    health,
    messages,
    pending,
    people,
    sessions,
    standing,
    surfaces,
    threads,
)
from .service import Service
from .settings import Settings

MATTERS = (
    sessions,
    messages,
    events,
    pending,
    threads,
    standing,
    surfaces,
    people,
    bundles,
    files,
    health,
)
ROUTES = [handler for matter in MATTERS for handler in matter.HANDLERS]
# What any route may answer, beside what it is for.
FAILURES = {
    400: "the request is not as it should be",
    401: "no valid key",
    403: "the key may not do this",
    404: "there is no such thing, or it is not yours",
    405: "what is there takes other methods",
    408: "the body came too slowly",
    409: "it cannot be done as things are",
    413: "the body is too large",
    415: "the body is of another type",
    422: "the sandbox cannot do it",
    429: "too much at once",
    500: "the server failed",
    501: "an optional package is missing on the server",
    502: "a model failed",
    503: "try again later",
}
UNROUTED = "no_route"  # what an audit record calls a request that no route takes
ABOUT = "Durable sessions for AI agents, over HTTP. Every failure has the same shape."


def create_app(settings: Settings | None = None, **more: Any) -> Litestar:
    """An ASGI app that serves agents: run it, or mount it in another.

        app = create_app(agents=[shop], store="sqlite:shop.db", auth=NoAuth())

    Takes `Settings`, or their fields by name (`InvalidSettings` with every fault). Everything
    is opened when it is first needed; the app's lifespan opens it at once, and closes it. An
    app that is mounted where no lifespan reaches it is closed with `close_app`.
    """
    service = Service(settings if settings is not None else Settings(**more))
    pages, cors = documents.HANDLERS if service.settings.docs else [], _cors(service)
    app = App(
        [Router("/v1", route_handlers=[*map(documented, ROUTES), *pages])],
        dependencies={"ask": Provide(asking, sync_to_thread=False)},
        middleware=[Edge(service)],
        exception_handlers={Exception: _failed},
        lifespan=[_lifespan],
        openapi_config=_openapi(service) if service.settings.docs else None,
        cors_config=cors,
        logging_config=None,
        request_max_body_size=None,
        debug=False,
    )
    app.state[SERVICE] = service
    app.asgi_handler = Front(app.asgi_handler, cors, service.settings.redactor)
    return app


class App(Litestar):
    """An app that leaves the scope alone of whoever it is mounted in."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        mine: Any = {**scope, "state": {**(scope.get("state") or {})}}
        await super().__call__(scope if scope["type"] == "lifespan" else mine, receive, send)


async def close_app(app: Litestar) -> None:
    """Close an app whose lifespan nobody runs. Twice is fine."""
    await service_of(app).aclose()


def service_of(app: Litestar) -> Service:
    """The server behind an app."""
    service: Service = app.state[SERVICE]
    return service


@asynccontextmanager
async def _lifespan(app: Litestar) -> AsyncGenerator[None, None]:
    service = service_of(app)
    await service.start()
    try:
        with told(service.leave):
            yield
    finally:
        await service.aclose()


def _failed(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    scope = request.scope
    state = scope.setdefault("state", {})
    service: Service = request.app.state[SERVICE]
    known = str(state.get("request_id") or new_id())
    done = answer(error, scope, known, service.settings.redactor, service.places.naming)
    state["code"] = done.code
    headers = dict(done.headers)
    if "request_id" not in state:  # no route was found, and so nothing has seen to these
        guards = guarded([], known)
        headers |= {name.decode(): value.decode() for name, value in guards}
        service.audit.put(_unrouted(request, known, done))
    return Response(done.body, status_code=done.status, headers=headers, media_type=None)


def _unrouted(request: Request[Any, Any, Any], id: str, done: Answer) -> AuditRecord:
    """The record of a request that no route takes; nobody has looked who asks."""
    client = request.scope.get("client")
    return AuditRecord(
        at=wall_clock(),
        request=id,
        action=UNROUTED,
        method=str(request.scope.get(ASKED) or request.scope["method"]),
        path=request.scope["path"],
        status=done.status,
        code=done.code,
        address=client[0] if client else None,
    )


def documented(handler: Any) -> Any:
    """A route whose failures stand in the OpenAPI document."""
    failures = {
        status: ResponseSpec(Failed, generate_examples=False, description=words)
        for status, words in FAILURES.items()
    }
    handler.responses = {**failures, **(handler.responses or {})}
    return handler


def _openapi(service: Service) -> OpenAPIConfig:
    scheme = SecurityScheme(type="http", scheme="bearer", description="A key: hk_…")
    return OpenAPIConfig(
        title="Holdfast",
        version=service.version,
        description=ABOUT,
        openapi_router=documents.Nowhere("/v1/docs", route_handlers=[]),
        components=Components(security_schemes={"key": scheme}),
        security=[{"key": []}],
    )


def _cors(service: Service) -> CORSConfig | None:
    origins = [*service.settings.origins]
    if not origins:
        return None
    return CORSConfig(
        allow_origins=origins,
        allow_headers=["authorization", "content-type", "idempotency-key", "last-event-id"],
        expose_headers=["x-request-id", "retry-after"],
    )
