"""What readers are told of a session that is removed or moved, and what is left to see of one that
no agent here serves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast import Agent

from .scene import PATIENCE, Api, serving, settings

STREAM = {"accept": "text/event-stream"}
ZIP = {"content-type": "application/zip"}


@asynccontextmanager
async def ending(api: Api, path: str) -> AsyncGenerator[asyncio.Task[Any], None]:
    """A reader of a stream who has caught up; the task gives what `end` says."""
    ready = asyncio.Event()

    async def read() -> Any:
        headers = {**STREAM, "authorization": "Bearer ann@acme"}
        last = ""
        async with api.client.stream("GET", f"/v1{path}", headers=headers) as stream:
            assert stream.status_code == 200
            async for line in stream.aiter_lines():
                if line == "event: caught_up":
                    ready.set()
                last = line.removeprefix("data: ") if line.startswith("data: ") else last
        return json.loads(last)

    task = asyncio.create_task(read())
    try:
        async with asyncio.timeout(PATIENCE):
            await ready.wait()
            yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parity("user-demand", 27)
async def test_readers_of_a_session_that_is_deleted_are_told_not_to_come_back(kept: str) -> None:
    async with serving(settings(kept)) as here, serving(settings(kept)) as there:
        await here.ask_for_refund("one")
        await here("POST", "/sessions/one/threads", {"id": "side"})
        events = "/sessions/one/events"
        async with (
            ending(here, events) as mine,
            ending(here, f"{events}?thread=side") as side,
            ending(there, events) as theirs,
        ):
            await here("DELETE", "/sessions/one")
            for task in (mine, side, theirs):
                assert await task == {"reason": "deleted"}


async def test_readers_of_a_thread_that_is_deleted_are_told_so(kept: str) -> None:
    async with serving(settings(kept)) as here, serving(settings(kept)) as there:
        await here("PUT", "/sessions/one")
        await here("POST", "/sessions/one/threads", {"id": "side"})
        events = "/sessions/one/events?thread=side"
        async with ending(here, events) as mine, ending(there, events) as theirs:
            await here("DELETE", "/sessions/one/threads/side")
            assert await mine == await theirs == {"reason": "deleted"}


async def test_readers_of_a_person_that_is_erased_are_told_so(api: Api) -> None:
    await api("PUT", "/sessions/one")
    async with ending(api, "/sessions/one/events") as mine:
        await api("DELETE", "/people/ann?reason=asked")
        assert await mine == {"reason": "deleted"}


async def of_another(here: Api, lab: Api) -> tuple[str, Any]:
    """A session `one` of the agent `shop`, moved to another server: what waits in it, and what
    that server said."""
    item = await here.ask_for_refund("one")
    moved = await here.ask("POST", "/sessions/one/bundle/move?to=lab")
    return item, await lab("POST", "/bundles", headers=ZIP, content=moved.content)


async def test_what_no_agent_here_serves_can_be_read_and_removed(url: str) -> None:
    agents = [Agent("lab", instructions="Measure.")]
    async with serving(settings()) as here, serving(settings(url, agents=agents)) as lab:
        _, done = await of_another(here, lab)
        assert "'shop'" in done["warnings"][0]
        assert "lab" in done["warnings"][0]
        shown = await lab("GET", "/sessions/one")
        assert (shown["engine"], shown["row"]["agent"]) == ("", "shop")
        assert (await lab("PUT", "/sessions/one"))["row"] == shown["row"]
        status = await lab("GET", "/sessions/one/status")
        assert (status["agent"], status["phase"]) == ("shop", "waiting_approval")
        assert status["pending"] == 1
        events = (await lab("GET", "/sessions/one/events"))["items"]
        assert [one["seq"] for one in events] == [*range(1, status["head"] + 1)]
        told = await lab("GET", "/sessions/one/transcript")
        assert told["items"][0]["text"] == "Refund it."
        again = await lab.ask("GET", "/sessions/one/bundle")
        assert again.status_code == 200
        changed = await lab("PATCH", "/sessions/one", {"metadata": {"seen": True}})
        assert changed["row"]["metadata"] == {"seen": True}
        async with ending(lab, "/sessions/one/events") as reader:
            removed = await lab("DELETE", "/sessions/one")
            assert removed["removed"]["logs"] == 1
            assert await reader == {"reason": "deleted"}
        await lab.fails("session_not_found", "GET", "/sessions/one")


async def test_what_needs_an_agent_says_so_and_changes_nothing() -> None:
    agents = [Agent("lab", instructions="Measure.")]
    async with serving(settings()) as here, serving(settings(agents=agents)) as lab:
        item, _ = await of_another(here, lab)
        for method, path, body in (
            ("POST", "/messages", {"content": "Hi"}),
            ("POST", f"/pending/{item}/approve", {"arguments": {"order": "7"}}),
            ("POST", "/abort", None),
            ("PATCH", "", {"title": "Other", "metadata": {"seen": True}}),
            ("GET", "/events?until=idle", None),
        ):
            fields = await lab.fails("unknown_agent", method, f"/sessions/one{path}", body)
            assert (fields["agent"], fields["available"]) == ("shop", ["lab"])
        assert "metadata" not in (await lab("GET", "/sessions/one"))["row"]


async def test_an_import_that_is_served_has_no_warnings() -> None:
    async with serving(settings()) as here, serving(settings()) as there:
        _, done = await of_another(here, there)
        assert done["warnings"] == []


async def test_what_was_moved_says_so_and_has_nothing_that_waits(api: Api) -> None:
    item = await api.ask_for_refund("one")
    moved = await api.ask("POST", "/sessions/one/bundle/move?to=there")
    assert moved.status_code == 200
    status = await api("GET", "/sessions/one/status")
    assert (status["phase"], status["run"], status["pending"]) == ("sealed", None, 0)
    row = (await api("PUT", "/sessions/one"))["row"]
    assert row["sealed"] == "there"
    assert "run" not in row
    assert "pending" not in row
    assert (await api("GET", "/sessions"))["items"] == [row]
    assert (await api("GET", "/sessions/one/pending"))["items"] == []
    assert (await api("GET", "/pending"))["items"] == []
    display = await api("GET", "/sessions/one/display")
    assert (display["phase"], "pending" in display) == ("sealed", False)
    fields = await api.fails("session_moved", "POST", f"/sessions/one/pending/{item}/approve")
    assert fields["to"] == "there"


async def test_what_was_moved_to_one_place_is_not_moved_to_another(api: Api) -> None:
    await api("PUT", "/sessions/one")
    path = "/sessions/one/bundle/move"
    first = await api.ask("POST", path)
    assert (await api.ask("POST", path)).content == first.content
    fields = await api.fails("session_moved", "POST", f"{path}?to=elsewhere")
    assert fields["to"] == (await api("GET", "/sessions/one"))["row"]["sealed"] == "a bundle"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/sessions", {"metadata": {"holdfast.source": {"name": "mine"}}}),
        ("PUT", "/sessions/new", {"metadata": {"holdfast.source": {"name": "mine"}}}),
        ("PUT", "/sessions/one", {"metadata": {"holdfast.source": {"name": "mine"}}}),
        ("PATCH", "/sessions/one", {"title": "T", "metadata": {"holdfast.source": 1}}),
        ("PATCH", "/sessions/one", {"title": "T", "drop": ["holdfast.source"]}),
        ("POST", "/sessions/one/messages", {"content": "Hi", "metadata": {"holdfast.source": 1}}),
        ("POST", "/sessions/one/steer", {"content": "Hi", "metadata": {"holdfast.source": 1}}),
        ("POST", "/sessions/one/follow-ups", {"content": "H", "metadata": {"holdfast.source": 1}}),
    ],
)
async def test_names_of_metadata_that_the_server_writes_are_its_own(
    api: Api, method: str, path: str, body: Any
) -> None:
    before = await api("PUT", "/sessions/one", {"metadata": {"holdfast": 1}})
    fields = await api.fails("invalid_value", method, path, body)
    assert fields["field"].endswith(".holdfast.source")
    assert fields["remedy"]
    assert (await api("GET", "/sessions"))["items"] == [before["row"]]


async def test_what_is_given_out_of_a_person_is_all_of_it_also_where_it_was_moved(api: Api) -> None:
    item = await api.ask_for_refund("one")
    await api.ask("POST", "/sessions/one/bundle/move?to=there")
    lines = (await api.ask("GET", "/people/ann")).text.splitlines()
    (row,) = [found for line in lines if (found := json.loads(line).get("row")) is not None]
    assert (row["sealed"], row["run"], [*row["pending"]]) == ("there", "waiting", [item])
