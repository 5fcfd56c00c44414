"""Work that nobody waits for: sent, looked at later, sent twice, refused while other work goes on,
and ended although it does not listen."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

import holdfast
from holdfast import Agent, SessionBusy, key, tool
from holdfast.client import Client
from holdfast.harness.loop import cancellation
from holdfast.models.port import Chunk, EndChunk, ModelCall, TextChunk
from holdfast.models.scripted import Say, ScriptedModel, Use

from .scene import PATIENCE, Api, model, serving, settings
from .stream.scene import sent

EVENTS = "/sessions/one/events"
MESSAGES = "/sessions/one/messages"
KINDS = [
    *("session.created", "message.received", "run.started", "model.called"),
    *("message.completed", "run.finished"),
]


async def whole(api: Api, after: str | int = 0, limit: int = 3) -> AsyncGenerator[Any, None]:
    """Pages of events from a cursor on, until the work has ended."""
    async with asyncio.timeout(PATIENCE):
        while True:
            page = await api("GET", EVENTS, params={"after": str(after), "limit": limit})
            yield page
            after = page["cursor"]
            if any(event["kind"] == "run.finished" for event in page["items"]):
                return
            await asyncio.sleep(0.01)


@pytest.mark.parity("computeragent", "S24")
async def test_work_in_the_background_is_looked_at_page_by_page() -> None:
    async with serving(harness={"default_model": model(0.05)}) as api:
        await api("PUT", "/sessions/one")
        task = await api("POST", MESSAGES, {"content": "Slow"}, status=202)
        found = [event async for page in whole(api) for event in page["items"]]
        assert [event["seq"] for event in found] == [*range(1, len(found) + 1)]
        kinds = [event["kind"] for event in found]
        assert [kind for kind in kinds if kind in KINDS] == KINDS
        assert kinds[task["seq"] - 1] == "message.received"
        # What follows the cursor of the answer is the message, and what became of it.
        mine = await api("GET", EVENTS, params={"after": task["cursor"]})
        assert mine["items"] == found[task["seq"] - 1 :]
        late = await api("GET", EVENTS, params={"after": str(len(found) - 1)})
        assert late["items"] == found[-1:]
        assert (late["head"], late["cursor"]) == (len(found), f"{late['log']}.{len(found)}")
        none = await api("GET", EVENTS, params={"after": late["cursor"]})
        assert (none["items"], none["cursor"]) == ([], late["cursor"])


@pytest.mark.parity("computeragent", "S24")
async def test_the_same_work_sent_twice_is_one() -> None:
    slow = model(0.1)
    async with serving(harness={"default_model": slow}) as api:
        await api("PUT", "/sessions/one")
        first = await api("POST", MESSAGES, {"content": "Slow"}, key="task-1", status=202)
        again = await api("POST", MESSAGES, {"content": "Slow"}, key="task-1", status=202)
        assert again == first
        await api.until("/sessions/one/status", lambda status: status["phase"] == "idle")
        last = await api("POST", MESSAGES, {"content": "Slow"}, key="task-1", status=202)
        assert last == first
        page = await api("GET", EVENTS)
        kinds = [event["kind"] for event in page["items"]]
        assert (kinds.count("message.received"), kinds.count("run.started")) == (1, 1)
        assert len(slow.calls) == 1
        other = {"content": "Something else"}
        await api.fails("key_reused", "POST", MESSAGES, other, key="task-1")


@pytest.mark.parity("computeragent", "S24")
async def test_what_is_told_is_in_the_store_before(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'shop.db'}"
    async with serving(settings(url)) as api, holdfast.connect(url) as store:
        await api("PUT", "/sessions/one")
        task = await api("POST", MESSAGES, {"content": "Note it."})
        told = 0
        headers = {"authorization": "Bearer ann@acme", "accept": "text/event-stream"}
        where, query = f"{api.url}/v1{EVENTS}", {"input": task["seq"], "after": task["cursor"]}
        async with (
            httpx.AsyncClient(timeout=PATIENCE) as http,
            http.stream("GET", where, params=query, headers=headers) as answer,
        ):
            async for one in sent(answer.aiter_bytes()):
                if one.name == "event":
                    seq = one.data["seq"]
                    read = store.read(key("one", tenant="acme"), after=seq - 1, before=seq + 1)
                    assert [event.id async for event in read] == [one.data["id"]]
                    told += 1
        assert told > len(KINDS)


@tool
async def wait(context: holdfast.ToolContext) -> str:
    """Wait until somebody stops it."""
    await context.aborted.wait()
    return "stopped"


@pytest.mark.parity("computeragent", "S26")
async def test_a_session_that_is_busy_says_since_when() -> None:
    waits = ScriptedModel.by_input({"Go": Say("", calls=[Use("wait")]), ".": "Good day."})
    agent = Agent("clerk", instructions="Wait.", tools=[wait])
    async with contextlib.AsyncExitStack() as stack:
        made = settings(agents=[agent], harness={"default_model": waits})
        api = await stack.enter_async_context(serving(made))
        client = await stack.enter_async_context(Client(api.url, "ann@acme"))
        session = await client.get_or_create("one")
        await session.post("Go")
        await api.until(EVENTS, lambda page: page["items"][-1]["kind"] == "tool.started")
        (begun,) = await session.events(kinds=("run.started",))
        answer = await api.ask("POST", MESSAGES, {"content": "Now", "busy": "reject"})
        assert answer.status_code == 409
        error = answer.json()["error"]
        assert (error["code"], error["retryable"]) == ("session_busy", True)
        remedy = "wait, or queue the message"
        about = {"session": "one", "run": begun.run, "since": begun.at, "remedy": remedy}
        assert error["fields"] == about
        with pytest.raises(SessionBusy) as refused:
            await session.send("Now", busy="reject")
        assert (refused.value.run, refused.value.since) == (begun.run, begun.at)
        await session.abort()
        assert (await session.wait()).status == "aborted"
        assert (await session.send("Now", busy="reject")).text == "Good day."
        assert [m.text for m in await session.transcript(roles=("user",))] == ["Go", "Now"]


class Stubborn:
    """A model that says a word and then ignores that it is told to stop, until it is let go."""

    ref = "stubborn/model"

    def __init__(self) -> None:
        self.begun, self.free, self.over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stream(self, call: ModelCall) -> AsyncGenerator[Chunk, None]:
        if "Go" not in str(call.messages[-1]):
            yield TextChunk("Good day.")
            yield EndChunk()
            return
        yield TextChunk("Once ")
        try:
            await self.wait()
            yield TextChunk("late words")
        finally:
            self.over.set()

    async def wait(self) -> None:
        self.begun.set()
        while not self.free.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.free.wait()


@pytest.fixture
async def stubborn() -> AsyncGenerator[Stubborn, None]:
    one = Stubborn()
    yield one
    one.free.set()  # or no loop could end


@pytest.mark.parity("computeragent", 93)
@pytest.mark.parametrize("which", ["model", "tool"])
async def test_work_that_does_not_listen_is_ended_without_it(
    stubborn: Stubborn, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellation, "GRACE", 0.1)
    monkeypatch.setattr("holdfast.harness.loop.tool_call.GRACE", 0.1)

    @tool
    async def endless() -> str:
        """Never listens."""
        await stubborn.wait()
        stubborn.over.set()
        return "late words"

    agent = Agent("clerk", instructions="Go on.", tools=[endless])
    calls = ScriptedModel.by_input({"Go": Say("Once ", calls=[Use("endless")]), ".": "Good day."})
    made: Any = stubborn if which == "model" else calls
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(
            serving(settings(agents=[agent], harness={"default_model": made}))
        )
        client = await stack.enter_async_context(Client(api.url, "ann@acme"))
        session = await client.get_or_create("one")
        stream = session.stream("Go")
        reading = asyncio.create_task(_kinds(stream))
        async with asyncio.timeout(PATIENCE):
            await stubborn.begun.wait()
            await api("POST", "/sessions/one/abort")
            assert (await reading)[-1] == "run.finished"  # the stream ends, and says how
        assert (stream.result.status, stream.result.text) == ("aborted", "Once ")
        finished = (await session.events(kinds=("run.finished",)))[-1]
        assert finished.json()["status"] == "aborted"
        async with asyncio.timeout(PATIENCE):
            assert (await session.send("Again")).text == "Good day."
        before = await session.events()
        stubborn.free.set()
        async with asyncio.timeout(PATIENCE):
            await stubborn.over.wait()
            assert (await session.send("And again")).text == "Good day."
        after = await session.events()
        assert after[: len(before)] == before
        assert "late words" not in str([event.json() for event in after])


async def _kinds(stream: Any) -> list[str]:
    return [item.kind async for item in stream if isinstance(item, holdfast.Event)]
