"""`Idempotency-Key`: the same request twice is one, whatever happens between the two."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from holdfast import Harness, Key, LogConfig, NewEvent, Query, Scope, connect
from holdfast.server import Caller, MemoryAudit
from holdfast.server.app import service_of
from holdfast.server.auth.idempotency import (
    IdempotencyStore,
    KeyedRequest,
    StoredResponse,
    name,
    request_hash,
)
from tests.sessions import places

from .scene import PATIENCE, Api, model, serving, settings, shop

ANN = Caller(tenant="acme", principal="ann", scopes=frozenset())


@pytest.mark.parity("user-demand", 33)
async def test_fifty_at_once_are_one(url: str) -> None:
    async with serving(settings(url)) as api:
        await api("PUT", "/sessions/one")
        path, said = "/sessions/one/messages", {"content": "Hello"}
        asks = [api.ask("POST", path, said, key="m") for _ in range(50)]
        asks += [api.ask("POST", "/sessions", {"title": "x"}, key="s") for _ in range(50)]
        answers = await asyncio.gather(*asks)
        assert {(a.status_code, a.content) for a in answers[:50]} == {(202, answers[0].content)}
        assert {(a.status_code, a.content) for a in answers[50:]} == {(201, answers[50].content)}
        await api.until("/sessions/one/status", lambda s: s["phase"] == "idle")
        told = await api("GET", "/sessions/one/transcript")
        assert [m["text"] for m in told["items"]] == ["Hello", "Good day."]
        assert len((await api("GET", "/sessions"))["items"]) == 2


async def test_two_replicas_do_it_once(kept: str) -> None:
    async with serving(settings(kept)) as one, serving(settings(kept)) as two:
        await one("PUT", "/sessions/one")
        both = [one, two] * 10
        asks = [api.ask("POST", "/sessions", {}, key="s") for api in both]
        said = {"content": "Hello"}
        asks += [api.ask("POST", "/sessions/one/messages", said, key="m") for api in both]
        asks += [api.ask("POST", "/sessions/one/threads", {}, key="t") for api in both]
        answers = await asyncio.gather(*asks)
        for first in (0, 20, 40):
            found = answers[first : first + 20]
            assert len({(a.status_code, a.content) for a in found}) == 1
            assert found[0].is_success
        assert len((await two("GET", "/sessions"))["items"]) == 2
        assert len((await two("GET", "/sessions/one/threads"))["items"]) == 2


@pytest.mark.parity("user-demand", 33)
async def test_another_request_with_the_key_is_refused_and_does_nothing(api: Api) -> None:
    await api("PUT", "/sessions/one")
    path = "/sessions/one/messages"
    await api("POST", path, {"content": "Hello"}, key="k")
    others: list[dict[str, Any]] = [
        {"content": "Other"},
        {"content": "Hello", "busy": "steer"},
        {"content": "Hello", "metadata": {"a": 1}},
        {"content": "Hello", "limits": {"steps": 3}},
    ]
    for other in others:
        assert await api.fails("key_reused", "POST", path, other, key="k") == {"key": "k"}
    await api("PATCH", "/sessions/one", {"title": "A"}, key="t")
    await api.fails("key_reused", "PATCH", "/sessions/one", {"title": "B"}, key="t")
    await api.fails("key_reused", "PUT", "/sessions/two", {"title": "A"}, key="t")
    assert (await api("GET", "/sessions/one"))["row"]["title"] == "A"
    await api.fails("session_not_found", "GET", "/sessions/two")


@pytest.mark.parity("user-demand", 33)
async def test_the_answer_is_the_same_after_a_restart(tmp_path: Path) -> None:
    for kind in ("file", "sqlite"):
        (tmp_path / kind).mkdir()
        url = places.url(kind, tmp_path / kind)
        async with serving(settings(url)) as api:
            item = await api.ask_for_refund("one")
            asks: list[tuple[Any, ...]] = [
                ("POST", "/sessions", {}),
                ("POST", "/sessions/one/messages", {"content": "More"}),
                ("POST", f"/sessions/one/pending/{item}/approve", {"reason": "fine"}),
                ("POST", "/sessions/one/threads", {"title": "Aside"}),
                ("PATCH", "/sessions/one/state", {"set": {"a": 1}}),
                ("POST", f"/sessions/one/pending/{item}/deny", {}),
            ]
            first = [await api.ask(*ask, key=f"k{n}") for n, ask in enumerate(asks)]
        async with serving(settings(url)) as api:
            again = [await api.ask(*ask, key=f"k{n}") for n, ask in enumerate(asks)]
            assert [a.status_code for a in first] == [201, 202, 200, 201, 200, 409]
            assert [a.content for a in again] == [a.content for a in first]
            assert [a.status_code for a in again] == [a.status_code for a in first]
            threads = (await api("GET", "/sessions/one/threads"))["items"]
            assert len(threads) == 2


async def test_a_key_is_its_callers_own(api: Api) -> None:
    one = await api("POST", "/sessions", {}, key="same", by="ann@acme")
    two = await api("POST", "/sessions", {}, key="same", by="bob@acme")
    three = await api("POST", "/sessions", {}, key="same", by="ann@other")
    assert len({one["id"], two["id"], three["id"]}) == 3


async def test_a_failure_is_answered_again_as_it_was(api: Api) -> None:
    await api.fails("session_not_found", "PATCH", "/sessions/one", {"title": "A"}, key="p")
    await api("PUT", "/sessions/one")
    await api.fails("session_not_found", "PATCH", "/sessions/one", {"title": "A"}, key="p")
    await api("PATCH", "/sessions/one", {"title": "A"}, key="q")


async def test_a_key_that_is_none_is_refused(api: Api) -> None:
    for key in ("x" * 256, "a\tb"):
        fields = await api.fails("invalid_value", "POST", "/sessions", {}, key=key)
        assert fields["field"] == "Idempotency-Key"


async def test_work_that_was_left_half_done_is_done_once(url: str) -> None:
    """The process that did it died between the deed and the answer."""
    async with connect(url) as store:
        once = IdempotencyStore(store)
        asked = KeyedRequest(key="k", hash="h", session="s")
        done: list[bool] = []

        async def dies(record: str, again: bool) -> StoredResponse:
            done.append(again)
            raise ConnectionError

        async def works(record: str, again: bool) -> StoredResponse:
            done.append(again)
            return StoredResponse(hash="h", status=201, body=record.encode())

        with pytest.raises(ConnectionError):
            await once.do(ANN, asked, dies)
        where = Key("~once:acme", name(ANN, "k"), "main")
        lease = await store.acquire(where, "thief", ttl=0.001, steal="the process died")
        await store.release(lease)
        answer = await once.do(ANN, asked, works)
        assert done == [False, True]  # it is told that it may have been begun before
        assert await once.do(ANN, asked, dies) == answer
        assert done == [False, True]


async def test_a_duplicate_that_waits_for_another_replica_is_answered_at_the_end(
    kept: str,
) -> None:
    body = b'{"title":"A"}'
    hash = request_hash("PATCH", "/v1/sessions/one", b"", body)
    begun, done = asyncio.Event(), asyncio.Event()

    async def works(record: str, again: bool) -> StoredResponse:
        begun.set()
        await done.wait()
        return StoredResponse(hash=hash, status=200)

    async with serving(settings(kept)) as api, connect(kept) as store:
        await api("PUT", "/sessions/one")
        asked = KeyedRequest(key="k", hash=hash, session="one")
        other = asyncio.create_task(IdempotencyStore(store).do(ANN, asked, works))
        service = service_of(api.app)
        headers = {"content-type": "application/json"}
        async with asyncio.timeout(PATIENCE):
            await begun.wait()
            again = api.ask("PATCH", "/sessions/one", key="k", content=body, headers=headers)
            waiting = asyncio.create_task(again)
            while not service.waits:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            service.leave()
            answer = await waiting
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (503, "harness_closed")
        assert error["retryable"]
        done.set()
        assert (await other).status == 200


async def test_half_done_deeds_are_found_again(tmp_path: Path) -> None:
    """Each deed was done by a process that died before it answered; asked again, it is not done
    twice, and the answer is what it would have been."""
    url = places.url("sqlite", tmp_path)
    async with serving(settings(url)) as api:
        item = await api.ask_for_refund("one")
        asks: dict[str, tuple[Any, ...]] = {
            "create": ("POST", "/sessions", {"id": "mine"}),
            "approve": ("POST", f"/sessions/one/pending/{item}/approve", {}),
            "thread": ("POST", "/sessions/one/threads", {"title": "Aside"}),
            "fork": ("POST", "/sessions/one/threads/fork", {"at": 1}),
        }
        first = {key: await api(*ask, key=key) for key, ask in asks.items()}
        await forget_the_answers(url)
        for key, ask in asks.items():
            again = await api(*ask, key=key)
            for field in ("id", "thread", "item", "outcome", "by"):
                assert again.get(field) == first[key].get(field), key
        gone = ("DELETE", "/sessions/mine")
        await api(*gone, key="gone")
        await forget_the_answers(url)
        await api(*gone, key="gone", status=200)
        assert len((await api("GET", "/sessions/one/threads"))["items"]) == 3


async def forget_the_answers(url: str) -> None:
    """As if each process had died before it wrote its answer down: the record is begun anew up to
    where it had come."""
    async with connect(url) as store:
        page = await store.find(Query(tenant="~once:acme"))
        for row in page.items:
            kept = [
                event async for event in store.read(row.key) if event.kind != "request.answered"
            ]
            await store.delete(Scope(row.tenant, row.session))
            events = [NewEvent(kind=e.kind, data=e.data, id=e.id) for e in kept]
            await store.append(row.key, events, create=True)


async def test_answers_go_with_what_they_are_about(url: str) -> None:
    async with serving(settings(url)) as api:
        await api("PUT", "/sessions/one", key="a")
        await api("PATCH", "/sessions/one", {"title": "A"}, key="b")
        await api("PUT", "/sessions/two", key="c")
        await api("DELETE", "/sessions/one", key="d")
        async with connect(url) if url != "memory:" else _store(api) as store:
            left = await store.find(Query(tenant="~once:acme"))
            assert len(left.items) == 2  # of the deletion itself, and of the other session
            once = IdempotencyStore(store)
            assert await once.sweep("acme") == 0
            assert await once.sweep("acme", older=-60) == 2


def _store(api: Api) -> Any:
    @contextlib.asynccontextmanager
    async def opened() -> Any:
        yield await service_of(api.app).places.store()

    return opened()


async def test_the_library_and_the_server_do_not_mistake_each_others_keys(tmp_path: Path) -> None:
    url = places.url("sqlite", tmp_path)
    async with serving(settings(url)) as api:
        await api("PUT", "/sessions/one")
        await api("POST", "/sessions/one/messages?wait=true", {"content": "Hello"}, key="k")
        quiet = LogConfig(level="silent")
        async with Harness(
            shop(), default_model=model(), store=url, tenant="acme", logging=quiet
        ) as harness:
            session = await harness.open("one")
            await session.send("Hello", key="k")
            assert len(await session.transcript()) == 4


async def test_the_answer_that_made_a_session_goes_with_it(url: str) -> None:
    async with serving(settings(url)) as api:
        audit = service_of(api.app).settings.audit
        body = {"id": "one", "title": "canary"}
        first = await api("POST", "/sessions", body, key="s")
        assert isinstance(audit, MemoryAudit)
        assert audit.records[-1].session == "one"
        await api("DELETE", "/sessions/one")
        store = await service_of(api.app).places.store()
        assert (await store.find(Query(tenant="~once:acme"))).items == []
        second = await api("POST", "/sessions", body, key="s")
        assert second["cursor"] != first["cursor"]
        await api("GET", "/sessions/one")
