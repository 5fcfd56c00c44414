"""What stands before the routing, and who a server without keys answers."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.server import Caller, MemoryAudit, NoAuth, RequestCredentials, ServerLimits

from .scene import PATIENCE, Api, serving, settings

PAGE = "http://127.0.0.1:8001"


def preflight(origin: str, **headers: str) -> dict[str, str]:
    return {"origin": origin, "access-control-request-method": "POST", **headers}


async def test_a_page_that_may_not_ask_is_refused_in_the_shape_of_all_failures() -> None:
    async with serving(settings(origins=[PAGE])) as api:
        for path in ("/sessions", "/nowhere"):
            foreign = preflight("https://evil.example")
            answer = await api.ask("OPTIONS", path, headers=foreign, by=None)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (403, "forbidden")
            assert "--origin" in error["message"]
            assert PAGE not in answer.text
            assert answer.headers["content-type"] == "application/json"
            assert "access-control-allow-origin" not in answer.headers
            assert answer.headers["x-request-id"]
        more = preflight(PAGE, **{"access-control-request-headers": "content-type, x-mine"})
        fields = await api.fails("invalid_value", "OPTIONS", "/sessions", headers=more, by=None)
        assert fields["field"] == "x-mine"
        assert "idempotency-key" in fields["remedy"]


async def test_a_page_that_may_ask_is_told_so() -> None:
    async with serving(settings(origins=[PAGE])) as api:
        asks = preflight(PAGE, **{"access-control-request-headers": "Content-Type, Accept"})
        answer = await api.ask("OPTIONS", "/sessions", headers=asks, by=None)
        assert answer.status_code == 204
        assert answer.headers["access-control-allow-origin"] == PAGE
        answer = await api.ask("POST", "/sessions", {}, headers={"origin": PAGE})
        assert answer.status_code == 201
        assert answer.headers["access-control-allow-origin"] == PAGE


async def test_without_keys_those_of_this_machine_are_told_why_they_are_refused() -> None:
    async with serving(settings(auth=NoAuth())) as api:
        for headers in ({"origin": "https://evil.example"}, {"host": "evil.example"}):
            answer = await api.ask("GET", "/sessions", headers=headers, by=None)
            message = answer.json()["error"]["message"]
            assert answer.status_code == 401
            for word in ("this machine", "keys", "--origin"):
                assert word in message
            assert "127.0.0.1" not in answer.text
            assert "evil" not in answer.text
        passed = {"x-forwarded-for": "10.0.0.7", "host": "evil.example"}
        answer = await api.ask("GET", "/sessions", headers=passed, by=None)
        message = answer.json()["error"]["message"]
        assert message == "this server accepts no requests from other machines or through a proxy"


async def test_with_keys_nobody_is_told_more(api: Api) -> None:
    answer = await api.ask("GET", "/sessions", headers={"origin": "https://evil.example"}, by=None)
    assert answer.json()["error"]["message"] == "a valid key is required"


@pytest.mark.parametrize(
    "path", ["/health", "/ready", "/openapi.json", "/sessions", "/sessions/one", "/sessions/no"]
)
async def test_head_is_answered_as_get_is_without_a_body(api: Api, path: str) -> None:
    await api("PUT", "/sessions/one")
    got, head = await api.ask("GET", path), await api.ask("HEAD", path)
    assert head.status_code == got.status_code
    assert head.content == b""
    for name in ("content-type", "content-length"):
        assert head.headers[name] == got.headers[name]
    assert head.headers["x-request-id"]


async def test_head_needs_what_get_needs_and_other_methods_stay_refused(api: Api) -> None:
    assert (await api.ask("HEAD", "/sessions", by=None)).status_code == 401
    assert (await api.ask("HEAD", "/sessions/one/messages")).status_code == 405
    answer = await api.ask("DELETE", "/health")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")


async def test_head_of_a_stream_ends_and_leaves_nothing_open() -> None:
    stream = {"accept": "text/event-stream"}
    async with serving(settings(limits=ServerLimits(rate=None, streams=1))) as api:
        await api("PUT", "/sessions/one")
        for _ in range(3):
            async with asyncio.timeout(PATIENCE):
                while True:
                    answer = await api.ask("HEAD", "/sessions/one/events", headers=stream)
                    if answer.status_code != 429:  # the one before has not let go yet
                        break
                    await asyncio.sleep(0.01)
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")


async def test_whoever_lets_people_in_and_writes_it_down_is_told_what_was_asked() -> None:
    asked: list[str] = []

    class Seeing(NoAuth):
        async def authenticate(self, shown: RequestCredentials) -> Caller | None:
            asked.append(shown.method)
            return await super().authenticate(shown)

    audit = MemoryAudit()
    async with serving(settings(auth=Seeing(), audit=audit)) as api:
        for method in ("GET", "HEAD"):
            answer = await api.ask(method, "/sessions", by=None)
            assert answer.status_code == 200
    assert asked == ["GET", "HEAD"]
    assert [record.method for record in audit.records] == ["GET", "HEAD"]
