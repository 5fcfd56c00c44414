"""The route that tells a client who it is."""

from __future__ import annotations

from typing import Any

from litestar import get

from ...wire import Me
from ..auth.callers import SCOPES
from ..http.context import Context
from .parameters import READ


@get("/me", opt=READ, operation_id="get_me")
async def me(ctx: Context) -> Me:
    """Return the principal, tenant and scopes of the caller, and which agents and stores the server
    has."""
    caller, service = ctx.caller, ctx.service
    return Me(
        principal=caller.principal,
        tenant=caller.tenant,
        scopes=[scope for scope in SCOPES if caller.may(scope)],
        key=caller.key,
        two_person=service.settings.two_person,
        version=service.version,
        agents=sorted({name for engine in service.engines.values() for name in engine.agents}),
        stores=service.places.kinds,
    )


HANDLERS: list[Any] = [me]
