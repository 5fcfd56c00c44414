"""MCP: the client of the Python SDK, over HTTP and over stdio."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from holdfast.wire import mcp as protocol
from tests.console.desk import STORY
from tests.console.server import Office
from tests.node import node, node_modules
from tests.server.scene import Api, Tokens, serving, settings

INSPECTOR = Path(__file__).parent / "inspector"


@asynccontextmanager
async def over_http(url: str, token: str) -> AsyncGenerator[Client, None]:
    headers = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(f"{url}/v1/mcp", http_client=http)  # type: ignore[arg-type]
        async with Client(transport) as client:
            yield client


@asynccontextmanager
async def over_stdio(url: str, token: str) -> AsyncGenerator[Client, None]:
    words = ["-m", "holdfast.cli", "mcp", "--url", url]
    env = {**os.environ, "HOLDFAST_KEY": token}
    started = StdioServerParameters(command=sys.executable, args=words, env=env)
    async with Client(stdio_client(started)) as client:
        yield client


async def called(client: Client, name: str, **arguments: Any) -> Any:
    done = await client.call_tool(name, arguments)
    assert not done.is_error, done.content
    return done.structured_content


async def refused(client: Client, name: str, **arguments: Any) -> str:
    done = await client.call_tool(name, arguments)
    assert done.is_error
    text: str = done.content[0].text  # type: ignore[union-attr]
    return text.partition(":")[0]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("connected", [over_http, over_stdio])
async def test_a_client_reads_and_steers_sessions(office: Office, connected: Any) -> None:
    token = await office.key()
    people = await office.client()
    await people.get_or_create("one")
    async with connected(office.server.url, token) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {*protocol.TOOLS}
        listed = await called(client, "list_sessions")
        assert [row["session"] for row in listed["items"]] == ["one"]
        waiting = await called(client, "send_message", session="one", content="Refund 42")
        assert waiting["status"] == "waiting"
        (item,) = (await called(client, "list_pending"))["items"]
        made = await called(client, "approve", session="one", item=item["id"], reason="fine")
        assert (made["outcome"], made["by"]) == ("approved", "ann")
        await people.session("one").wait()
        found = await called(client, "read_session", session="one")
        assert found["items"][-1]["text"] == "The refund is on its way."
        found = await called(client, "search_sessions", query="refund")
        assert {hit["session"] for hit in found["hits"]} == {"one"}
        asked = await called(client, "send_message", session="one", content="Ask")
        (item,) = asked["pending"]
        await called(client, "answer", session="one", item=item["id"], answer="Monday")
        await people.session("one").wait()
        uris = [str(one.uri) for one in (await client.list_resources()).resources]
        assert uris == ["holdfast://sessions/one", "holdfast://sessions/one/transcript"]
        (read,) = (await client.read_resource(uris[1])).contents
        assert json.loads(read.text)["items"][-1]["text"] == "Thank you."
        again = await refused(client, "deny", session="one", item=item["id"])
        assert again == "already_decided"


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_the_inspector_reads_and_steers_sessions(office: Office, transport: str) -> None:
    token = await office.key()
    await (await office.client()).get_or_create("one")
    url = office.server.url
    target = [f"{url}/v1/mcp", "--transport", "http", "--header", f"Authorization: Bearer {token}"]
    if transport == "stdio":
        target = [sys.executable, "-m", "holdfast.cli", "mcp", "--url", url]
        target += ["-e", f"HOLDFAST_KEY={token}"]
    tools = await inspected(target, "tools/list")
    assert {tool["name"] for tool in tools["tools"]} == {*protocol.TOOLS}
    said = ("--tool-name", "send_message", "--tool-arg", "session=one", "content=Hello")
    done = await inspected(target, "tools/call", *said)
    assert done["structuredContent"]["text"] == "Good day."
    listed = await inspected(target, "resources/list")
    assert len(listed["resources"]) == 2


async def inspected(target: list[str], method: str, *words: str) -> Any:
    """Return what the MCP inspector prints."""
    modules = await asyncio.to_thread(node_modules, INSPECTOR)
    clients = modules / "@modelcontextprotocol" / "inspector" / "clients"
    started = await asyncio.create_subprocess_exec(
        *(str(node()), str(clients / "launcher" / "build" / "index.js"), "--cli"),
        *(*target, "--method", method, "--connect-timeout", "60000", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(started.communicate(), 60)
    assert started.returncode == 0, err.decode()
    return json.loads(out)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_client_continues_after_the_server_was_killed(office: Office) -> None:
    token, server = await office.key(), office.server
    people = await office.client()
    await people.get_or_create("one")

    async def send() -> None:
        async with over_http(server.url, token) as client:
            await called(client, "send_message", session="one", content="Story")

    sending = asyncio.create_task(send())
    await until_started(people.session("one"))
    await server.kill()
    with pytest.raises((ExceptionGroup, MCPError)):  # this client ends with its connection
        await asyncio.wait_for(sending, 60)
    await server.start()
    async with over_http(server.url, token) as client:
        await people.session("one").wait()
        found = await called(client, "read_session", session="one")
        assert [item["text"] for item in found["items"]] == ["Story", STORY]
        waiting = await called(client, "send_message", session="one", content="Refund 42")
        (item,) = waiting["pending"]
        await server.kill()
        await server.start()
        made = await called(client, "approve", session="one", item=item["id"])
        assert made["outcome"] == "approved"
    await people.session("one").wait()
    kinds = [event.kind for event in await people.session("one").events()]
    assert (kinds.count("message.received"), kinds.count("tool.started")) == (2, 1)


async def until_started(session: Any) -> None:
    """Wait until a run has begun."""
    async with asyncio.timeout(60):
        while True:
            if "run.started" in [event.kind for event in await session.events()]:
                return
            await asyncio.sleep(0.02)


async def test_calls_that_mean_no_good_are_refused(api: Api) -> None:
    item = await api.ask_for_refund("mine")
    before = (await api("GET", "/sessions/mine"))["row"]["head"]
    async with over_http(api.url, "bob@acme") as client:
        for name, more in (
            ("read_session", {}),
            ("send_message", {"content": "Hello"}),
            ("approve", {"item": item}),
            ("deny", {"item": item}),
            ("answer", {"item": item, "answer": 1}),
        ):
            for session in ("mine", "none"):
                assert await refused(client, name, session=session, **more) == "session_not_found"
        assert await refused(client, "read_session", session="../../health") == "not_found"
        assert await refused(client, "read_session") == "invalid_value"
        assert await refused(client, "read_session", session="x", limit=0) == "invalid_value"
        assert await refused(client, "list_sessions", tenant="other") == "invalid_value"
        assert await refused(client, "list_sessions", cursor="x") == "invalid_value"
        assert await refused(client, "drop_table") == "invalid_value"
        for uri in ("holdfast://sessions/mine", "holdfast://sessions/", "file:///etc/passwd"):
            with pytest.raises(MCPError):
                await client.read_resource(uri)
        assert (await client.list_resources()).resources == []
    assert (await api("GET", "/sessions/mine"))["row"]["head"] == before


async def test_each_tool_needs_the_scope_of_its_request() -> None:
    reader = settings(auth=Tokens(("sessions:read",)))
    async with serving(reader) as api, over_http(api.url, "ann@acme") as client:
        assert (await called(client, "list_sessions"))["items"] == []
        for name, more in (
            ("send_message", {"content": "Hello"}),
            ("approve", {"item": "x"}),
            ("answer", {"item": "x", "answer": 1}),
        ):
            assert await refused(client, name, session="x", **more) == "forbidden"


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b"[]", 400), (b"7", 400), (b"null", 400), (b'{"jsonrpc": "2.0"}', 400)],
)
async def test_what_is_no_message_is_refused(api: Api, body: bytes, status: int) -> None:
    accept = {"accept": "application/json, text/event-stream"}
    json_type = {"content-type": "application/json", **accept}
    answer = await api.ask("POST", "/mcp", content=body, headers=json_type)
    assert answer.status_code == status, answer.text
    assert "error" in answer.json()
    text = {"content-type": "text/plain", **accept}
    assert (await api.ask("POST", "/mcp", content=body, headers=text)).status_code == 415
    assert (await api.ask("POST", "/mcp", content=body, by=None)).status_code == 401
    assert (await api.ask("GET", "/mcp")).status_code == 405
