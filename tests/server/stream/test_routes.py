"""Events and the inbox over HTTP: pages, cursors, and who may see what."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from litestar import Litestar

from holdfast import NewEvent, Sessions, connect, key
from holdfast.server import Caller, RequestCredentials, ServerLimits, close_app, create_app

from .scene import PATIENCE, harness

USUAL = frozenset({"sessions:read", "sessions:write", "pending:decide"})


class Names:
    """Everybody is who they say they are; the boss sees all."""

    async def authenticate(self, shown: RequestCredentials) -> Caller | None:
        name = shown.bearer()
        if name is None:
            return None
        more = {"sessions:all"} if name == "boss" else set()
        tenant = "elsewhere" if name == "stranger" else "main"
        return Caller(tenant=tenant, principal=name, scopes=USUAL | more)


def clerk(store: Any, tenant: str) -> Any:
    return harness(store, tenant=tenant)


@asynccontextmanager
async def asked(app: Litestar, name: str) -> AsyncGenerator[httpx.AsyncClient, None]:
    """A way to the app for somebody."""
    served: Any = app
    transport = httpx.ASGITransport(served)
    headers = {"authorization": f"Bearer {name}"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost/v1", headers=headers
    ) as http:
        yield http


@pytest.fixture
async def app() -> AsyncGenerator[Litestar, None]:
    def make() -> Litestar:
        limits = ServerLimits(rate=None)
        return create_app(agents={"clerk": clerk}, stores="memory:", auth=Names(), limits=limits)

    made = await asyncio.to_thread(make)
    yield made
    await close_app(made)


async def test_events_over_http_have_their_defaults_written_out(app: Litestar) -> None:
    async with asked(app, "ann") as http:
        await http.put("/sessions/s")
        await http.post("/sessions/s/messages?wait=true", json={"content": "Good day?"})
        page = (await http.get("/sessions/s/events")).json()
        stream = (await http.get("/sessions/s/events?until=idle")).text
    (ended,) = [event["data"] for event in page["items"] if event["kind"] == "run.finished"]
    assert ended == {"status": "done", "due": None, "error": None, "code": None, "stack": None}
    told = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: ")]
    assert [event for event in told if "seq" in event] == page["items"]


async def test_events_come_page_by_page_and_the_pages_join(app: Litestar) -> None:
    async with asked(app, "ann") as http:
        await http.put("/sessions/s")
        await http.post("/sessions/s/messages?wait=true", json={"content": "Good day?"})
        whole = (await http.get("/sessions/s/events")).json()
        found: list[Any] = []
        after = "0"
        while True:
            page = (
                await http.get("/sessions/s/events", params={"after": after, "limit": 2})
            ).json()
            assert page["head"] == whole["head"]
            if not page["items"]:
                break
            assert len(page["items"]) <= 2
            found += page["items"]
            after = page["cursor"]
        assert found == whole["items"]
        assert [event["seq"] for event in found] == [*range(1, whole["head"] + 1)]
        now = (await http.get("/sessions/s/events?after=now")).json()
        assert (now["items"], now["cursor"]) == ([], after)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("after=other.1", "log_replaced"),
        ("after=99", "invalid_value"),
        ("after=nonsense", "invalid_value"),
        ("limit=0", "invalid_value"),
        ("until=never", "invalid_value"),
        ("input=0", "invalid_value"),
        ("thread=none", "session_not_found"),
    ],
)
async def test_what_cannot_be_is_refused_with_a_reason(
    app: Litestar, query: str, code: str
) -> None:
    async with asked(app, "ann") as http:
        await http.put("/sessions/s")
        answer = await http.get(f"/sessions/s/events?{query}")
        assert 400 <= answer.status_code < 500
        assert answer.json()["error"]["code"] == code


@pytest.mark.parametrize("accept", ["*/*", None, "text/html, */*;q=0.8"])
async def test_who_says_where_a_stream_ends_asks_for_one(app: Litestar, accept: str | None) -> None:
    async with asked(app, "ann") as http:
        if accept is None:
            del http.headers["accept"]
        else:
            http.headers["accept"] = accept
        await http.put("/sessions/s")
        sent = await http.post("/sessions/s/messages", json={"content": "Good day?"})
        for query in ("until=idle", f"input={sent.json()['seq']}"):
            answer = await http.get(f"/sessions/s/events?{query}")
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert "event: end" in answer.text
        page = await http.get("/sessions/s/events")
        assert page.json()["items"]
        answer = await http.get(
            "/sessions/s/events?until=idle", headers={"accept": "application/json"}
        )
        error = answer.json()["error"]
        assert (answer.status_code, error["fields"]["field"]) == (400, "until")
        assert "Accept: text/event-stream" in error["message"]


async def test_an_input_that_is_no_message_is_refused_before_the_stream_begins(
    app: Litestar,
) -> None:
    async with asked(app, "ann") as http:
        await http.put("/sessions/s")
        headers = {"accept": "text/event-stream"}
        answer = await http.get("/sessions/s/events?input=1", headers=headers)
        assert answer.status_code == 400
        assert answer.json()["error"]["fields"]["field"] == "input"


@pytest.mark.parity("user-demand", 26)
async def test_events_and_the_inbox_are_shown_to_those_whose_they_are(app: Litestar) -> None:
    async with (
        asked(app, "ann") as ann,
        asked(app, "bob") as bob,
        asked(app, "boss") as boss,
        asked(app, "stranger") as stranger,
    ):
        for http, name in ((ann, "a"), (bob, "b")):
            await http.put(f"/sessions/{name}")
            await http.post(f"/sessions/{name}/messages?wait=true", json={"content": "Pay."})
        cursor = (await ann.get("/sessions/a/events")).json()["cursor"]
        for http in (bob, stranger):
            for accept in ("application/json", "text/event-stream"):
                answer = await http.get(
                    "/sessions/a/events", params={"after": cursor}, headers={"accept": accept}
                )
                nobody = await http.get(
                    "/sessions/nobody/events", params={"after": cursor}, headers={"accept": accept}
                )
                assert (answer.status_code, nobody.status_code) == (404, 404)
                told = answer.json()["error"], nobody.json()["error"]
                assert told[0]["code"] == told[1]["code"] == "session_not_found"

        async def seen(http: httpx.AsyncClient, **query: Any) -> list[str]:
            page = (await http.get("/pending", params=query)).json()
            return [item["session"] for item in page["items"]]

        assert await seen(ann) == ["a"]
        assert await seen(bob) == ["b"]
        assert await seen(boss) == ["a", "b"]
        assert await seen(boss, session="b") == ["b"]
        assert await seen(boss, what="question") == []
        assert await seen(stranger) == []
        first = (await boss.get("/pending", params={"limit": 1})).json()
        assert [item["session"] for item in first["items"]] == ["a"]
        assert await seen(boss, limit=1, cursor=first["cursor"]) == ["b"]


async def test_a_session_that_has_expired_can_still_be_read() -> None:
    async with connect("memory:") as store:

        def make() -> Litestar:
            stores = {"kept": lambda options: store}
            return create_app(agents={"clerk": clerk}, stores=stores, auth=Names())

        made = await asyncio.to_thread(make)
        async with asyncio.timeout(PATIENCE), made.lifespan(), asked(made, "ann") as http:
            await http.put("/sessions/s")
            await store.append(key("s"), [NewEvent.of("session.touched", {})])
            await Sessions(store).expire("s")
            assert (await http.get("/sessions/s/events")).json()["head"] >= 3
            headers = {"accept": "text/event-stream"}
            answer = await http.get("/sessions/s/events?until=idle", headers=headers)
            assert "event: caught_up" in answer.text
            assert '"reason":"finished"' in answer.text
