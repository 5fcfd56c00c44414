"""AG-UI's own agent, of versions 1.0 and 0.0.59, against a server that is killed and restarted."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.console.desk import STORY
from tests.console.server import Office
from tests.servers.process import free_port

from .clients import NodeClient, running

pytestmark = pytest.mark.asyncio(loop_scope="module")
VERSIONS = {"1.0": "@ag-ui/client", "0.0.59": "@ag-ui/client-0"}
_ids = itertools.count(1)

both = pytest.mark.parametrize("version", VERSIONS)


class Person:
    """Somebody with an agent of the protocol."""

    def __init__(self, office: Office, version: str, folder: Path) -> None:
        self.office, self.version, self.folder = office, version, folder
        self.id = f"thread-{next(_ids)}"

    @asynccontextmanager
    async def agent(self, messages: Any = None) -> AsyncGenerator[NodeClient, None]:
        """A fresh agent, for example after the page was loaded again."""
        url = f"{self.office.server.url}/v1/ag-ui/run"
        token = await self.office.key()
        async with running("agent.mjs", VERSIONS[self.version], folder=self.folder) as client:
            about = {"url": url, "token": token, "id": self.id, "messages": messages}
            await client.do("open", about)
            yield client

    async def kinds(self) -> list[str]:
        client = await self.office.client()
        return [event.kind for event in await client.session(self.id).events()]


@pytest.fixture
def person(office: Office, tmp_path: Path, version: str) -> Person:
    return Person(office, version, tmp_path)


def user(text: str) -> dict[str, Any]:
    return {"id": f"u{next(_ids)}", "role": "user", "content": text}


async def ran(agent: NodeClient, **given: Any) -> Any:
    await agent.do("run", given)
    found = await agent.do("wait")
    assert found["failed"] is None
    return found


def texts(found: Any) -> list[str]:
    return [m["content"] for m in found["messages"] if m["role"] == "assistant" and m["content"]]


@both
async def test_a_run_streams_text(person: Person) -> None:
    async with person.agent() as agent:
        found = await ran(agent, message=user("Story"))
        assert texts(found) == [STORY]
        assert found["outcome"]["outcome"] == {"type": "success"}
        assert found["outcome"]["result"]["status"] == "done"
        assert found["events"][0] == "RUN_STARTED"
        found = await ran(agent, message=user("Hello"))
        assert texts(found) == [STORY, "Good day."]
        assert found["outcome"]["result"]["usage"] == {"input_tokens": 812, "output_tokens": 96}


@both
async def test_a_tool_is_shown_with_its_result(person: Person) -> None:
    async with person.agent() as agent:
        found = await ran(agent, message=user("Look 42"))
        _, said, result, last = found["messages"]
        (call,) = said["toolCalls"]
        assert call["function"] == {"name": "lookup", "arguments": '{"order":"42"}'}
        assert (result["role"], result["toolCallId"]) == ("tool", call["id"])
        assert '"delivered"' in result["content"]
        assert last["content"] == "It was delivered."
    async with person.agent() as agent:
        again = await ran(agent)
        assert [m["id"] for m in again["messages"]] == [m["id"] for m in found["messages"]]
        assert texts(again) == texts(found)


@both
@pytest.mark.parametrize("approved", [True, False])
async def test_an_interrupt_is_resumed(person: Person, approved: bool) -> None:
    async with person.agent() as agent:
        found = await ran(agent, message=user("Refund 42"))
        (asked,) = found["interrupts"]
        assert (asked["reason"], asked["metadata"]["risk"]) == ("approval", "medium")
        entry = {"interruptId": asked["id"], "status": "resolved"}
        found = await ran(agent, resume=[{**entry, "payload": {"approved": approved}}])
        assert found["interrupts"] == []
        assert texts(found) == ["I can refund that.", "The refund is on its way."]
        (result,) = [m for m in found["messages"] if m["role"] == "tool"]
        if approved:
            assert result["content"] == "refunded 1999 cents of order 42"
        decisions = [one["value"] for one in found["customs"] if one["name"] == "decision"]
        assert [made["outcome"] for made in decisions] == ["approved" if approved else "denied"]
    assert (await person.kinds()).count("tool.started") == int(approved)


@both
async def test_a_tool_is_answered_by_the_client(person: Person) -> None:
    async with person.agent() as agent:
        found = await ran(agent, message=user("Ask"))
        (asked,) = found["interrupts"]
        assert asked["reason"] == "question"
        messages = found["messages"]
    answer = {"id": "r1", "role": "tool", "toolCallId": asked["toolCallId"], "content": "Monday"}
    async with person.agent([*messages, answer]) as agent:
        found = await ran(agent)
        assert texts(found) == ["Thank you."]


@both
async def test_the_state_is_shown_and_its_changes(person: Person) -> None:
    client = await person.office.client()
    session = await client.get_or_create(person.id)
    await session.state.update({"visits": 1})
    async with person.agent() as agent:
        found = await ran(agent, message=user("Hello"))
        assert found["state"] == {"visits": 1}
        await agent.do("run", {"message": user("Story")})
        await agent.until(lambda found: len(texts(found)) == 2)
        await session.state.update({"a/b": [1]})
        found = await agent.do("wait")
        assert found["state"] == {"visits": 1, "a/b": [1]}
        assert "STATE_DELTA" in found["events"]


@both
async def test_a_stream_survives_a_killed_server(person: Person) -> None:
    server = person.office.server
    async with person.agent() as agent:
        await agent.do("run", {"message": user("Story")})
        found = await agent.until(texts)
        await server.kill()
        found = await agent.do("wait")
        assert found["failed"] is not None
        assert texts(found) != [STORY]
        server.move(free_port())
        await server.start()
    for messages in (found["messages"], None):  # with what the client has, and in a fresh one
        async with person.agent(messages) as agent:
            found = await ran(agent)
            assert [m["role"] for m in found["messages"]] == ["user", "assistant"]
            assert texts(found) == [STORY]
    assert (await person.kinds()).count("message.received") == 1


@both
async def test_an_interrupt_waits_while_the_server_is_killed(person: Person) -> None:
    server = person.office.server
    async with person.agent() as agent:
        await ran(agent, message=user("Refund 42"))
    await server.kill()
    server.move(free_port())
    await server.start()
    async with person.agent() as agent:
        found = await ran(agent)  # reattach
        (asked,) = found["interrupts"]
        assert texts(found) == ["I can refund that."]
        entry = {"interruptId": asked["id"], "status": "resolved", "payload": {"approved": True}}
        found = await ran(agent, resume=[entry])
        assert texts(found) == ["I can refund that.", "The refund is on its way."]
        (result,) = [m for m in found["messages"] if m["role"] == "tool"]
        assert result["content"] == "refunded 1999 cents of order 42"
    assert (await person.kinds()).count("tool.started") == 1


@both
async def test_a_cursor_continues_after_what_the_client_has(person: Person) -> None:
    async with person.agent() as agent:
        found = await ran(agent, message=user("Look 42"))
        cursor = next(one["value"] for one in found["customs"] if one["name"] == "cursor")
    async with person.agent() as agent:
        again = await ran(agent, forwardedProps={"cursor": cursor})
        assert [m["id"] for m in again["messages"]] == [m["id"] for m in found["messages"]]
        assert again["events"].count("TOOL_CALL_START") == 0
        assert again["events"].count("TOOL_CALL_RESULT") == 1


@both
async def test_a_failure_is_an_error_of_the_run(person: Person) -> None:
    async with person.agent() as agent:
        await agent.do("run", {"message": user("Fail")})
        found = await agent.do("wait")
        assert found["outcome"]["code"] == "model_failed"
