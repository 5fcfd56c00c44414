"""The AI SDK's own chat, of versions 5 and 7, against a server that is killed and restarted."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest

from tests.console.desk import STORY
from tests.console.server import Office
from tests.servers.process import free_port

from .clients import NodeClient, running

pytestmark = pytest.mark.asyncio(loop_scope="module")
VERSIONS = {"v7": "ai", "v5": "ai-5"}
_ids = itertools.count(1)

both = pytest.mark.parametrize("version", VERSIONS)


class Person:
    """Somebody with a chat of the SDK."""

    def __init__(self, office: Office, version: str, token: str, folder: Path) -> None:
        self.office, self.version, self.token, self.folder = office, version, token, folder
        self.id = f"chat-{next(_ids)}"

    @asynccontextmanager
    async def chat(self, messages: Any = None) -> AsyncGenerator[NodeClient, None]:
        """A fresh chat, for example after the page was loaded again."""
        api = f"{self.office.server.url}/v1/ai-sdk/{self.version}/chat"
        async with running("chat.mjs", VERSIONS[self.version], folder=self.folder) as client:
            about = {"api": api, "token": self.token, "id": self.id, "messages": messages}
            await client.do("open", about)
            yield client

    async def history(self) -> Any:
        """The messages that a page loads before it begins."""
        return (await self.ask("GET", f"/ai-sdk/{self.version}/chat/{self.id}/messages"))["items"]

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"authorization": f"Bearer {self.token}"}
        async with httpx.AsyncClient(headers=headers, timeout=60) as client:
            url = f"{self.office.server.url}/v1{path}"
            found = await client.request(method, url, json=body)
        assert found.is_success, found.text
        return found.json() if found.content else None

    async def kinds(self) -> list[str]:
        found = await self.ask("GET", f"/sessions/{self.id}/events")
        return [event["kind"] for event in found["items"]]


Begin: TypeAlias = Callable[[str], Any]


@pytest.fixture
def begin(office: Office, tmp_path: Path) -> Begin:
    async def person(version: str) -> Person:
        return Person(office, version, await office.key(), tmp_path)

    return person


def texts(message: Any) -> list[str]:
    return [part["text"] for part in message["parts"] if part["type"] == "text"]


def said(found: Any) -> list[str]:
    """What the assistant has said, if it is its turn."""
    message = found["messages"][-1]
    return texts(message) if message["role"] == "assistant" else []


def tools(message: Any) -> list[Any]:
    return [part for part in message["parts"] if part["type"].startswith("tool-")]


def data(message: Any, name: str) -> list[Any]:
    return [part["data"] for part in message["parts"] if part["type"] == f"data-{name}"]


async def answered(client: NodeClient, op: str, value: Any = None) -> Any:
    await client.do(op, value)
    await client.do("wait")
    found = await client.until(lambda found: found["status"] in ("ready", "error"))
    assert found["errors"] == []
    return found


@both
async def test_a_chat_streams_text_and_its_usage(begin: Begin, version: str) -> None:
    person = await begin(version)
    async with person.chat() as chat:
        found = await answered(chat, "send", {"text": "Story"})
        user, said = found["messages"]
        assert (user["role"], said["role"]) == ("user", "assistant")
        assert texts(said) == [STORY]
        found = await answered(chat, "send", {"text": "Hello"})
        assert texts(found["messages"][-1]) == ["Good day."]
        about = found["messages"][-1]["metadata"]
        assert about["usage"] == {"input_tokens": 812, "output_tokens": 96}
        assert (about["status"], about["session"]) == ("done", person.id)
        assert [one["id"] for one in await person.history()] == [
            one["id"] for one in found["messages"]
        ]


@both
async def test_a_tool_is_shown_with_its_input_and_output(begin: Begin, version: str) -> None:
    person = await begin(version)
    async with person.chat() as chat:
        found = await answered(chat, "send", {"text": "Look 42"})
        said = found["messages"][-1]
        (tool,) = tools(said)
        assert (tool["type"], tool["state"]) == ("tool-lookup", "output-available")
        assert (tool["input"], tool["output"]["state"]) == ({"order": "42"}, "delivered")
        assert texts(said) == ["Let me look.", "It was delivered."]
        found = await answered(chat, "send", {"text": "Look 0"})
        assert tools(found["messages"][-1])[0]["state"] == "output-error"
        for shown, kept in zip(found["messages"], await person.history(), strict=True):
            wanted = [(p["type"], p.get("text"), p.get("state")) for p in shown["parts"]]
            assert [(p["type"], p.get("text"), p.get("state")) for p in kept["parts"]] == wanted


async def decided(chat: NodeClient, version: str, tool: Any, approved: bool) -> Any:
    """Approve or deny a call, as clients of each version do."""
    if version == "v7":
        response = {"id": tool["approval"]["id"], "approved": approved, "reason": "as ann says"}
        await chat.do("approve", response)
    else:
        output = {"approved": approved, "reason": "as ann says"}
        name = tool["type"].removeprefix("tool-")
        given = {"tool": name, "toolCallId": tool["toolCallId"], "output": output}
        await chat.do("output", given)
    return await chat.until(
        lambda found: found["status"] in ("ready", "error") and texts(found["messages"][-1])[1:]
    )


@both
@pytest.mark.parametrize("approved", [True, False])
async def test_a_call_is_approved_or_denied(begin: Begin, version: str, approved: bool) -> None:
    person = await begin(version)
    async with person.chat() as chat:
        found = await answered(chat, "send", {"text": "Refund 42"})
        (tool,) = tools(found["messages"][-1])
        wanted = "approval-requested" if version == "v7" else "input-available"
        assert tool["state"] == wanted
        (item,) = data(found["messages"][-1], "pending")
        assert (item["what"], item["call"]) == ("approval", tool["toolCallId"])
        found = await decided(chat, version, tool, approved)
        assert found["errors"] == []
        said = found["messages"][-1]
        assert len(found["messages"]) == 2
        assert texts(said) == ["I can refund that.", "The refund is on its way."]
        (tool,) = tools(said)
        if approved:
            assert tool["output"] == "refunded 1999 cents of order 42"
        else:
            assert tool["state"] == ("output-denied" if version == "v7" else "output-error")
        (made,) = data(said, "decision")
        assert (made["outcome"], made["by"]) == ("approved" if approved else "denied", "ann")
        kinds = await person.kinds()
        assert kinds.count("pending.settled") == 1
        assert kinds.count("tool.started") == int(approved)


@both
async def test_a_question_is_answered_with_the_output_of_its_call(
    begin: Begin, version: str
) -> None:
    person = await begin(version)
    async with person.chat() as chat:
        found = await answered(chat, "send", {"text": "Ask"})
        (tool,) = tools(found["messages"][-1])
        (item,) = data(found["messages"][-1], "pending")
        assert item["what"] == "question"
        given = {"tool": "ask_user", "toolCallId": tool["toolCallId"], "output": "Monday"}
        await chat.do("output", given)
        found = await chat.until(
            lambda found: found["status"] == "ready" and texts(found["messages"][-1])
        )
        assert texts(found["messages"][-1]) == ["Thank you."]


async def test_a_vote_is_shown_until_everybody_has_agreed(begin: Begin) -> None:
    person = await begin("v7")
    async with person.chat() as chat:
        found = await answered(chat, "send", {"text": "Wire 900"})
        (tool,) = tools(found["messages"][-1])
        await chat.do("approve", {"id": tool["approval"]["id"], "approved": True})
        found = await chat.until(
            lambda found: found["status"] == "ready" and data(found["messages"][-1], "vote")
        )
        assert found["messages"][-1]["metadata"]["status"] == "waiting"
        client = await person.office.client("bea")
        session = client.session(person.id)
        await session.approve(tool["approval"]["id"])
        await session.wait()
    async with person.chat(await person.history()) as chat:
        found = await chat.do("state")
        assert texts(found["messages"][-1]) == ["Done."]


@both
async def test_a_stopped_run_keeps_what_was_said(begin: Begin, version: str) -> None:
    person = await begin(version)
    async with person.chat() as chat:
        await chat.do("send", {"text": "Story"})
        await chat.until(said)
        await chat.do("stop")
        await chat.do("wait")
        await person.ask("POST", f"/sessions/{person.id}/abort", {})
        found = await answered(chat, "send", {"text": "Hello"})
        assert texts(found["messages"][-1]) == ["Good day."]
    history = await person.history()
    assert len(history) == 4
    (kept,) = texts(history[1])
    assert STORY.startswith(kept)
    assert kept != STORY


@both
async def test_a_message_is_sent_again_or_otherwise(begin: Begin, version: str) -> None:
    person = await begin(version)
    async with person.chat() as chat:
        await answered(chat, "send", {"text": "Hello"})
        found = await answered(chat, "send", {"text": "Look 42"})
        first = found["messages"][-1]["id"]
        found = await answered(chat, "regenerate")
        assert len(found["messages"]) == 4
        assert found["messages"][-1]["id"] != first
        assert texts(found["messages"][-1]) == ["Let me look.", "It was delivered."]
        edited = {"text": "Story", "messageId": found["messages"][2]["id"]}
        found = await answered(chat, "send", edited)
        assert len(found["messages"]) == 4
        assert texts(found["messages"][-1]) == [STORY]
        assert [m["id"] for m in await person.history()] == [m["id"] for m in found["messages"]]
    assert (await person.kinds()).count("thread.rewound") == 2


@both
async def test_a_fresh_client_resumes_a_run(begin: Begin, version: str) -> None:
    person = await begin(version)
    async with person.chat() as chat:
        await chat.do("send", {"text": "Story"})
        await chat.until(said)
    async with person.chat(await person.history()) as chat:
        found = await answered(chat, "resume")
        assert [message["role"] for message in found["messages"]] == ["user", "assistant"]
        assert texts(found["messages"][-1]) == [STORY]
        found = await answered(chat, "resume")  # nothing runs: 204
        assert len(found["messages"]) == 2
    assert (await person.kinds()).count("message.received") == 1


@both
async def test_a_stream_survives_a_killed_server(begin: Begin, version: str) -> None:
    person = await begin(version)
    server = person.office.server
    async with person.chat() as chat:
        await chat.do("send", {"text": "Story"})
        await chat.until(said)
        await server.kill()
        found = await chat.until(lambda found: found["status"] == "error")
        partial = found["messages"]
        server.move(free_port())
        await server.start()
    async with person.chat(partial[:1]) as chat:
        found = await answered(chat, "resume")
        assert [message["role"] for message in found["messages"]] == ["user", "assistant"]
        assert texts(found["messages"][-1]) == [STORY]
        parts = [part["type"] for part in found["messages"][-1]["parts"]]
        assert parts.count("text") == 1
    assert [texts(message) for message in await person.history()] == [["Story"], [STORY]]


@both
async def test_an_approval_waits_while_the_server_is_killed(begin: Begin, version: str) -> None:
    person = await begin(version)
    server = person.office.server
    async with person.chat() as chat:
        found = await answered(chat, "send", {"text": "Refund 42"})
        before = found["messages"]
    await server.kill()
    server.move(free_port())
    await server.start()
    for messages in (before, await person.history()):
        (tool,) = tools(messages[-1])
        assert tool["state"] in ("approval-requested", "input-available")
    async with person.chat(before) as chat:
        found = await decided(chat, version, tool, True)
        assert found["errors"] == []
        (tool,) = tools(found["messages"][-1])
        assert tool["output"] == "refunded 1999 cents of order 42"
        assert texts(found["messages"][-1]) == ["I can refund that.", "The refund is on its way."]
    kinds = await person.kinds()
    assert (kinds.count("tool.started"), kinds.count("tool.finished")) == (1, 1)


@both
async def test_a_failure_is_an_error_of_the_chat(begin: Begin, version: str) -> None:
    person = await begin(version)
    async with person.chat() as chat:
        await chat.do("send", {"text": "Fail"})
        found = await chat.until(lambda found: found["status"] == "error")
        assert found["errors"] == ["model_failed: The model call failed."]
        assert texts(found["messages"][-1]) == ["Let me"]


async def test_a_file_is_sent_and_comes_back(begin: Begin) -> None:
    person = await begin("v7")
    url = "data:image/png;base64,aGVsbG8="
    async with person.chat() as chat:
        file = {"type": "file", "mediaType": "image/png", "filename": "a.png", "url": url}
        found = await answered(chat, "send", {"text": "Hello", "files": [file]})
        assert texts(found["messages"][-1]) == ["Good day."]
    (_, shown) = (await person.history())[0]["parts"]
    assert (shown["mediaType"], shown["filename"]) == ("image/png", "a.png")
    assert shown["url"].startswith(f"/v1/sessions/{person.id}/blobs/")
