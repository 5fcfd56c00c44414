"""Routes for the health and readiness of the server. They need no key."""

from __future__ import annotations

import logging
from typing import Any

from litestar import Request, Response, get
from litestar.openapi.datastructures import ResponseSpec

from ...errors import HoldfastError
from ...log.events import Key
from ...wire import Health, Readiness
from ..http.context import SERVICE
from ..placement.write_check import PATIENCE
from ..service import Service

LOGGER = logging.getLogger("holdfast.server")
PUBLIC = {"public": True}


@get("/health", opt=PUBLIC, operation_id="health", security=[])
async def health(request: Request[Any, Any, Any]) -> Health:
    """Return the version of the server, and the names of its engines, agents, loaders and
    stores."""
    service: Service = request.app.state[SERVICE]
    return Health(
        status="closing" if service.closed else "ok",
        version=service.version,
        engines={name: engine.agents for name, engine in service.engines.items()},
        loaders=service.loaders,
        stores=service.places.kinds,
    )


@get(
    "/ready",
    opt=PUBLIC,
    operation_id="ready",
    security=[],
    responses={503: ResponseSpec(Readiness, description="The server is not ready.")},
)
async def ready(request: Request[Any, Any, Any]) -> Response[Readiness]:
    """Return whether the server accepts requests and its default store can be read and written.
    Responds with 200, or with 503 and the reason."""
    service: Service = request.app.state[SERVICE]
    parts = {"server": "closing" if service.closed else "ok", "store": await _store(service)}
    right = all(part == "ok" for part in parts.values())
    return Response(Readiness(ready=right, parts=parts), status_code=200 if right else 503)


async def _store(service: Service) -> str:
    async def look() -> None:
        store = await service.places.store()
        await store.row(Key("main", "ready", "main"))

    try:
        await service.places.lookups.within(PATIENCE, look)
    except HoldfastError as error:
        return error.code
    except TimeoutError:
        return "no answer"
    except Exception as error:  # a custom store may raise anything
        LOGGER.error("the store is not ready: %s", type(error).__name__)
        return "failed"
    return await service.writing.works()


HANDLERS: list[Any] = [health, ready]
