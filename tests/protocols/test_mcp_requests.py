"""The requests that a call of an MCP tool makes: by the same caller, and within the same limits."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.server import Caller, RequestCredentials, ServerLimits
from tests.server.scene import ALL, Api, serving, settings

ACCEPT = {"accept": "application/json, text/event-stream"}


class Gateway:
    """Knows people by headers that a gateway adds."""

    async def authenticate(self, shown: RequestCredentials) -> Caller | None:
        user, tenant = shown.headers.get("x-user"), shown.headers.get("x-tenant", "main")
        return Caller(tenant=tenant, principal=user, scopes=frozenset(ALL)) if user else None


async def call(api: Api, name: str, headers: Any = None, **arguments: Any) -> Any:
    """The result of a call of a tool."""
    about = {"name": name, "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": about}
    answer = await api.ask("POST", "/mcp", body, headers={**ACCEPT, **(headers or {})})
    return answer.json()


async def test_a_caller_is_the_same_in_the_request_of_a_tool() -> None:
    ann = {"x-user": "ann", "x-tenant": "acme"}
    async with serving(settings(auth=Gateway())) as api:
        await api("PUT", "/sessions/mine", {}, headers=ann)
        found = await call(api, "list_sessions", ann)
        rows = found["result"]["structuredContent"]["items"]
        assert [row["session"] for row in rows] == ["mine"]
        bob = {"x-user": "bob", "x-tenant": "other"}
        assert (await call(api, "list_sessions", bob))["result"]["structuredContent"]["items"] == []


async def test_calls_that_wait_leave_room_for_other_requests() -> None:
    limits = ServerLimits(rate=None, concurrent=1, streams=4)
    async with serving(settings(limits=limits)) as api:
        await api("PUT", "/sessions/mine", {})
        waiting = asyncio.create_task(
            call(api, "send_message", session="mine", content="Slow", wait=True)
        )
        await api.until("/sessions/mine", lambda found: found["row"].get("run") is not None)
        await api("GET", "/sessions/mine")
        assert "result" in await waiting
