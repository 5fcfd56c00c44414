"""Creates the ASGI app, with its routes, its middleware and the OpenAPI document."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar, Request, Response, Router
from litestar.config.cors import CORSConfig
from litestar.di import Provide
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme

from ..environment import wall_clock
from ..harness import on_shutdown
from ..log.events import new_id
from .auth.audit import AuditRecord
from .console import routes as console
from .console.assets import assets
from .http.context import SERVICE, request_context
from .http.errors import ErrorResponse, answer
from .http.headers import guarded
from .http.middleware import RequestMiddleware
from .http.outer_middleware import ASKED, App, OuterMiddleware
from .protocols import ag_ui, ai_sdk, mcp
from .routes import (
    budgets,
    bundles,
    callers,
    changes,
    documents,
    events,
    files,
    health,
    inspection,
    messages,
    pending,
    people,
    schedules,
    search,
    session_state,
    sessions,
    surfaces,
    threads,
    webhooks,
)
from .service import Service
from .settings import Settings

MODULES = (
    sessions,
    messages,
    events,
    changes,
    pending,
    inspection,
    callers,
    search,
    threads,
    session_state,
    schedules,
    surfaces,
    people,
    budgets,
    webhooks,
    bundles,
    files,
    ai_sdk,
    ag_ui,
    mcp,
    health,
)
ROUTES = [handler for module in MODULES for handler in module.HANDLERS]
UNROUTED = "no_route"  # the action of a request without a route, in audit records
ABOUT = "Durable sessions for AI agents, over HTTP. All error responses have the same shape."


def create_app(settings: Settings | None = None, **more: Any) -> Litestar:
    """Create an ASGI app that serves agents. Run it, or mount it in another app.

        app = create_app(agents=[shop], store="sqlite:shop.db", auth=NoAuth())

    Accepts `Settings`, or its fields as keyword arguments. Raises `InvalidSettings`, which lists
    every invalid setting. The app's lifespan opens and closes its stores; without a lifespan, they
    are opened when first needed, and you close the app with `close_app`.

    ```python
    app = create_app(agents=[agent], store="sqlite:shop.db", auth=SharedSecret(secret))
    ```
    """
    service = Service(settings if settings is not None else Settings(**more))
    pages, cors = documents.HANDLERS if service.settings.docs else [], _cors(service)
    routers = [Router("/v1", route_handlers=[*ROUTES, *pages])]
    if service.settings.console:
        assets()  # read once, before requests are served
        routers.append(Router("/console", route_handlers=console.HANDLERS))
    app = App(
        routers,
        dependencies={"ctx": Provide(request_context, sync_to_thread=False)},
        middleware=[RequestMiddleware(service)],
        exception_handlers={Exception: _failed},
        lifespan=[_lifespan],
        openapi_config=_openapi(service) if service.settings.docs else None,
        cors_config=cors,
        logging_config=None,
        request_max_body_size=None,
        debug=False,
    )
    app.state[SERVICE] = service
    app.asgi_handler = OuterMiddleware(app.asgi_handler, cors, service.settings.redactor)
    return app


async def close_app(app: Litestar) -> None:
    """Close an app that runs without a lifespan. Calling it twice is allowed.

    See [the server](../server.md).
    """
    await service_of(app).aclose()


def service_of(app: Litestar) -> Service:
    """Return the `Service` of an app."""
    service: Service = app.state[SERVICE]
    return service


@asynccontextmanager
async def _lifespan(app: Litestar) -> AsyncGenerator[None, None]:
    service = service_of(app)
    await service.start()
    try:
        with on_shutdown(service.leave):
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
    if "request_id" not in state:  # there is no route, so the middleware did not run
        guards = guarded([], known)
        headers |= {name.decode(): value.decode() for name, value in guards}
        service.audit.put(_unrouted(request, known, done))
    return Response(done.body, status_code=done.status, headers=headers, media_type=None)


def _unrouted(request: Request[Any, Any, Any], id: str, done: ErrorResponse) -> AuditRecord:
    """Return the audit record for a request that matched no route. It has no caller, because such a
    request is not authenticated."""
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


def _openapi(service: Service) -> OpenAPIConfig:
    scheme = SecurityScheme(
        type="http", scheme="bearer", description="An API key, which begins with hk_."
    )
    return OpenAPIConfig(
        title="Holdfast",
        version=service.version,
        description=ABOUT,
        openapi_router=documents.NoLitestarPages("/v1/docs", route_handlers=[]),
        components=Components(security_schemes={"key": scheme}),
        security=[{"key": []}],
    )


def _cors(service: Service) -> CORSConfig | None:
    origins = [*service.settings.origins]
    if not origins:
        return None
    return CORSConfig(
        allow_origins=origins,
        allow_headers=[
            *("authorization", "content-type", "idempotency-key", "last-event-id"),
            *("mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id"),
        ],
        expose_headers=["x-request-id", "retry-after"],
    )
