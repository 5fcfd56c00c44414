"""Deeds that are asked for again at another replica, after the one that did them died before it
said so: they are not done twice, nor to what came after."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from holdfast import connect
from holdfast.server.auth.idempotency import IdempotencyStore, KeyedRequest, request_hash
from tests.sessions import places

from .scene import Api, model, serving, settings
from .test_once import ANN, forget_the_answers


@contextlib.asynccontextmanager
async def replicas(folder: Path) -> AsyncGenerator[tuple[Api, Api, str], None]:
    """Two servers on one store, and the store's address."""
    url = places.url("sqlite", folder)
    one, two = (settings(url, harness={"default_model": model()}) for _ in range(2))
    async with serving(one) as first, serving(two) as second:
        await first("PUT", "/sessions/one")
        yield first, second, url


async def kinds(api: Api, thread: str = "main") -> list[str]:
    page = await api("GET", "/sessions/one/events", params={"thread": thread, "limit": 200})
    return [event["kind"] for event in page["items"]]


async def idle(api: Api, thread: str = "main") -> None:
    path = f"/sessions/one/status?thread={thread}"
    await api.until(path, lambda status: status["phase"] == "idle" and not status["queued"])


@pytest.mark.parametrize(("verb", "body"), [("regenerate", None), ("edit", {"text": "Note that."})])
async def test_a_message_is_asked_again_once(tmp_path: Path, verb: str, body: Any) -> None:
    async with replicas(tmp_path) as (one, two, url):
        await one("POST", "/sessions/one/messages?wait=true", {"content": "Note it."})
        seq = (await kinds(one)).index("message.received") + 1
        path = f"/sessions/one/messages/{seq}/{verb}"
        first = await one("POST", path, body, key="k")
        thread = first["row"]["thread"]
        await idle(one, thread)
        before = await kinds(one, thread)
        assert before.count("tool.started") == 1
        await forget_the_answers(url)
        again = await two("POST", path, body, key="k")
        assert again["row"]["thread"] == thread
        await idle(two, thread)
        assert await kinds(two, thread) == before
        assert len((await two("GET", "/sessions/one/threads"))["items"]) == 2


async def test_an_abort_that_was_done_does_not_stop_the_next_run(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (one, two, url):
        await one("POST", "/sessions/one/messages", {"content": "Slow"})
        await one.until("/sessions/one/status", lambda status: status["run"])
        await one("POST", "/sessions/one/abort", {"reason": "enough"}, key="k")
        await idle(one)
        await forget_the_answers(url)
        await one("POST", "/sessions/one/messages", {"content": "Slow"})
        await one.until("/sessions/one/status", lambda status: status["run"])
        await two("POST", "/sessions/one/abort", {"reason": "enough"}, key="k")
        await idle(one)
        assert (await kinds(one)).count("abort.requested") == 1
        page = await one("GET", "/sessions/one/events", params={"limit": 200})
        ended = [e["data"] for e in page["items"] if e["kind"] == "run.finished"]
        assert [end.get("status", "done") for end in ended] == ["aborted", "done"]


async def test_an_abort_of_one_run_does_not_stop_another(api: Api) -> None:
    await api("PUT", "/sessions/one")
    await api("POST", "/sessions/one/messages", {"content": "Slow"})
    status = await api.until("/sessions/one/status", lambda status: status["run"])
    await api("POST", "/sessions/one/abort", {"run": "another"})
    assert "abort.requested" not in await kinds(api)
    await api("POST", "/sessions/one/abort", {"run": status["run"]})
    assert "abort.requested" in await kinds(api)


async def test_a_thread_that_was_removed_is_removed(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (one, two, url):
        await one("POST", "/sessions/one/threads", {"id": "aside"})
        path = "/sessions/one/threads/aside"
        await one("DELETE", path, key="k")
        await forget_the_answers(url)
        assert (await two.ask("DELETE", path, key="k")).is_success
        await two.fails("session_not_found", "DELETE", path, key="other")


async def test_a_message_that_was_taken_out_of_the_queue_is_taken_out(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (one, two, url):
        item = await one.ask_for_refund("one")
        sent = await one("POST", "/sessions/one/messages", {"content": "And then?"})
        path = f"/sessions/one/follow-ups/{sent['seq']}"
        first = await one("DELETE", path, key="k")
        assert first["items"] == []
        await forget_the_answers(url)
        assert await two("DELETE", path, key="k") == first
        await two.fails("invalid_value", "DELETE", path, key="other")
        assert item


async def test_a_message_that_was_taken_up_is_not_said_to_be_taken_out(tmp_path: Path) -> None:
    """The first who was asked died before it did anything, and then the message had its turn."""
    async with replicas(tmp_path) as (_, two, url):
        sent = await two("POST", "/sessions/one/messages", {"content": "Hello"})
        path = f"/sessions/one/follow-ups/{sent['seq']}"
        hash = request_hash("DELETE", f"/v1{path}", b"", b"")
        async with connect(url) as store:
            await IdempotencyStore(store).same(ANN, KeyedRequest(key="k", hash=hash, session="one"))
        await idle(two)
        await two.fails("invalid_value", "DELETE", path, key="k")
