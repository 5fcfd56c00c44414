"""Requests that mean no good: they get in nowhere, and every refusal has the one shape."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast import wire
from holdfast.errors import HoldfastError, InvalidValue, ServerError
from holdfast.server import MemoryAudit, ServerLimits
from holdfast.server.app import service_of
from holdfast.server.auth.callers import caller
from holdfast.store import Store
from tests.unit.test_errors import ERRORS

from .scene import Api, serving, settings


async def raw(api: Api, request: bytes, *, patience: float = 20.0) -> tuple[int, bytes]:
    """What comes back for these bytes: the status, and all of it."""
    at = urlsplit(api.url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    try:
        writer.write(request)
        await writer.drain()
        async with asyncio.timeout(patience):
            answer = await reader.read()
    finally:
        writer.close()
    return int(answer.split(b" ", 2)[1] or 0), answer


def request(line: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"{line} HTTP/1.1", "Host: localhost", "Authorization: Bearer ann@acme"]
    lines += ["Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


@pytest.mark.parity("computeragent", "S12")
async def test_every_failure_has_the_one_shape(api: Api) -> None:
    await api("PUT", "/sessions/one")
    found: list[tuple[Any, ...]] = [
        (404, "not_found", "GET", "/nothing"),
        (404, "not_found", "POST", "/"),
        (404, "session_not_found", "GET", "/sessions/none"),
        (405, "method_not_allowed", "PUT", "/sessions"),
        (405, "method_not_allowed", "DELETE", "/pending"),
        (405, "method_not_allowed", "TRACE", "/sessions"),
        (400, "invalid_value", "GET", "/sessions?limit=0"),
        (400, "invalid_value", "GET", "/sessions?limit=x"),
        (400, "invalid_value", "GET", "/sessions?cursor=x"),
        (400, "invalid_value", "GET", "/sessions/one/events?after=x.y"),
        (400, "invalid_value", "GET", "/sessions?order=sideways"),
        (400, "unknown_store", "GET", "/sessions?store=s3"),
        (400, "invalid_value", "GET", "/sessions?limt=5"),
        (400, "invalid_value", "GET", "/sessions/one?session_id=two"),
    ]
    for status, code, method, path in found:
        answer = await api.ask(method, path)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (status, code), (method, path)
        assert {*error} == {"code", "message", "fields", "retryable", "docs"}
        assert answer.headers["content-type"] == "application/json"
        raised = wire.error_of(answer.content, status)
        assert (raised.code, str(raised)) == (code, error["message"])
    answer = await api.ask("PUT", "/sessions")
    assert {*answer.headers["allow"].split(", ")} >= {"GET", "POST"}


def test_every_error_comes_back_as_the_class_that_it_was() -> None:
    for error in ERRORS:
        body = json.dumps(json.loads(_encoded(error))).encode()
        again = wire.error_of(body, wire.status_of(error))
        assert (type(again), again.fields) == (type(error), error.fields)
        assert 400 <= wire.status_of(error) < 600


def _encoded(error: HoldfastError) -> bytes:
    import msgspec

    return msgspec.json.encode(wire.failed(error))


def test_what_a_client_does_not_know_is_a_server_error() -> None:
    strange = b'{"error": {"code": "from_the_future", "message": "m", "fields": {"a": 1}}}'
    for body, reason in ((strange, "from_the_future"), (b"<html>", None), (b"", None)):
        error = wire.error_of(body, 418)
        assert isinstance(error, ServerError)
        assert (error.status, error.reason) == (418, reason)
    odd = b'{"error": {"code": "session_not_found", "message": "m", "fields": {"x": 1}}}'
    assert isinstance(wire.error_of(odd, 404), ServerError)


async def test_bodies_that_are_too_large_too_deep_or_of_another_sort() -> None:
    small = ServerLimits(body_bytes=1_000, depth=20, rate=None)
    async with serving(settings(limits=small)) as api:
        await api("PUT", "/sessions/one")
        large = {"content": "x" * 2_000}
        path = "/sessions/one/messages"
        assert await api.fails("request_too_large", "POST", path, large) == {"limit": 1_000}

        async def endless() -> Any:
            for _ in range(50):
                yield b"x" * 100

        headers = {"content-type": "application/json"}
        answer = await api.ask("POST", path, headers=headers, content=endless())
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
        deep = "[" * 21 + "]" * 21
        answer = await api.ask("POST", path, headers=headers, content='{"content":' + deep + "}")
        assert answer.json()["error"]["fields"]["limit"] == 20
        for sort in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            answer = await api.ask("POST", path, headers={"content-type": sort}, content="{}")
            assert (answer.status_code, answer.json()["error"]["code"]) == (
                415,
                "unsupported_media_type",
            )
        assert (await api("GET", "/sessions/one"))["row"]["head"] == 2


async def test_a_deeply_nested_body_costs_nobody_anything(api: Api) -> None:
    headers = {"content-type": "application/json"}
    for deep in (b"[" * 100_000, b'{"a":' * 100_000, b"[" * 5_000 + b"]" * 5_000):
        answer = await api.ask("POST", "/sessions", headers=headers, content=deep)
        assert answer.status_code == 400


async def test_a_body_that_comes_too_slowly_is_not_waited_for() -> None:
    quick = ServerLimits(body_seconds=0.2, rate=None)
    async with serving(settings(limits=quick)) as api:
        half = request("POST /v1/sessions", "Content-Type: application/json", "Content-Length: 99")
        status, answer = await raw(api, half + b'{"id":')
        assert status == 408
        assert b"request_too_slow" in answer
        assert (await api("GET", "/sessions"))["items"] == []


async def test_whoever_leaves_in_the_middle_of_a_body_does_nothing(api: Api) -> None:
    at = urlsplit(api.url)
    _reader, writer = await asyncio.open_connection(at.hostname, at.port)
    half = request("POST /v1/sessions", "Content-Type: application/json", "Content-Length: 99")
    writer.write(half + b'{"id":"half"')
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await api("GET", "/sessions"))["items"] == []


async def test_ids_that_try_to_be_paths_or_headers(api: Api) -> None:
    for id in (
        "..%2f..%2fetc",
        "%2e%2e",
        "a%00b",
        "a%0d%0aSet-Cookie:x=1",
        "~keys",
        "a%2fb",
        "%ff",
    ):
        status, answer = await raw(api, request(f"GET /v1/sessions/{id}"))
        assert status in (400, 404), id
        assert b"\r\nset-cookie" not in answer.lower()
        assert b'"error"' in answer
    # Nor can an id that has been made leave the line it stands in.
    made = await api("POST", "/sessions", {"id": "a%0d%0aX-Evil:1"}, status=201)
    status, answer = await raw(api, request("GET /v1/sessions/a%250d%250aX-Evil:1"))
    assert status == 200
    assert b"\r\nx-evil" not in answer.lower()
    assert made["events"] == "/v1/sessions/a%250d%250aX-Evil%3A1/events"


async def test_a_path_is_taken_as_it_is_or_not_at_all(api: Api) -> None:
    """An empty part is not left out, nor is a slash within one a slash, nor what is no UTF-8
    something else: each would be another session."""
    audit = service_of(api.app).settings.audit
    assert isinstance(audit, MemoryAudit)
    await api("PUT", "/sessions/one")
    await api("PUT", "/sessions/%EF%BF%BD")
    found: list[tuple[str, str, int, bytes]] = [
        ("PUT", "/v1/sessions//events", 404, b"not_found"),
        ("PUT", "/v1//sessions/two", 404, b"not_found"),
        ("PUT", "//v1/sessions/two", 404, b"not_found"),
        ("DELETE", "/v1/sessions/one/", 404, b"not_found"),
        ("GET", "/v1/sessions/", 404, b"not_found"),
        ("GET", "/v1//health", 404, b"not_found"),
        ("GET", "/v1/sessions/one%2fevents", 404, b"not_found"),
        ("GET", "/v1/sessions/%ff", 400, b"invalid_value"),
        ("PUT", "/v1/sessions/a%C3", 400, b"invalid_value"),
        ("DELETE", "/v1/sessions/%FE", 400, b"invalid_value"),
    ]
    for method, path, status, code in found:
        got, answer = await raw(api, request(f"{method} {path}"))
        assert (got, b'{"error":{"code":"' + code in answer) == (status, True), path
    assert {row["session"] for row in (await api("GET", "/sessions"))["items"]} == {"one", "\ufffd"}
    assert audit.records[2].session is None
    assert audit.records[2].status == 404


async def test_headers_that_try_to_be_others(api: Api) -> None:
    line = "POST /v1/sessions"
    body = b"{}"
    sizes = ("Content-Type: application/json", f"Content-Length: {len(body)}")
    odd = request(line, *sizes, "Idempotency-Key: a\x01b", body=body)
    status, _ = await raw(api, odd)
    assert status == 400
    twice = request(line, *sizes, "Content-Length: 5", body=body)
    status, _ = await raw(api, twice)
    assert status == 400
    both = request(line, *sizes, "Transfer-Encoding: chunked", body=b"0\r\n\r\n")
    status, _ = await raw(api, both)
    assert status == 400
    # Who one is cannot be said in any other way.
    headers = {"x-tenant": "other", "x-user": "bob", "x-forwarded-user": "root"}
    await api("PUT", "/sessions/one", headers=headers)
    assert (await api("GET", "/sessions/one"))["row"]["user"] == "ann"
    status, _ = await raw(api, b"GET /v1/health HTTP/1.1\r\nHost: x\r\nA: " + b"x" * 100_000)
    assert status == 400


async def test_cursors_of_others_lead_nowhere(url: str) -> None:
    async with serving(settings(url)) as api:
        for by in ("ann@acme", "bob@acme", "eve@other"):
            for n in range(3):
                await api("PUT", f"/sessions/{by[:3]}{n}", by=by)
        page = await api("GET", "/sessions?limit=1", by="ann@acme")
        for by in ("bob@acme", "eve@other"):
            path = f"/sessions?limit=1&cursor={page['cursor']}"
            fields = await api.fails("invalid_value", "GET", path, by=by)
            assert fields["field"] == "cursor"
        place = (await api("GET", "/sessions/ann0/events", by="ann@acme"))["cursor"]
        path = f"/sessions/eve0/events?after={place}"
        await api.fails("log_replaced", "GET", path, by="eve@other")


async def test_the_servers_own_sessions_are_nobodys(api: Api) -> None:
    await api("POST", "/sessions", {}, key="k")
    for tenant in ("~once:acme", "~keys", "~places:acme"):
        with pytest.raises(InvalidValue):
            caller(tenant, "ann", [])
    listed = await api("GET", "/sessions", by="boss@acme+sessions:all,admin")
    assert len(listed["items"]) == 1


@pytest.mark.parity("computeragent", 98)
async def test_a_store_that_fails_is_told_without_its_secrets() -> None:
    class Failing:
        """A store that tells too much when it fails."""

        def __init__(self, store: Store) -> None:
            self._store = store
            self.broken = False

        def __getattr__(self, name: str) -> Any:
            found = getattr(self._store, name)
            if not self.broken or name in ("aclose", "info"):
                return found

            def fail(*args: Any, **more: Any) -> Any:
                raise RuntimeError("postgresql://user:hunter2-canary@db/x said no")

            return fail

    from holdfast.stores.memory import MemoryStore

    store = Failing(MemoryStore())
    async with serving(settings({"mine": lambda options: store})) as api:
        await api("PUT", "/sessions/one")
        store.broken = True
        answer = await api.ask("GET", "/sessions/one")
        ready = await api.ask("GET", "/ready", by=None)
        store.broken = False
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "server_error")
        assert "canary" not in answer.text
        assert "postgresql" not in answer.text
        assert answer.headers["x-request-id"] in answer.text
        assert ready.status_code == 503
        assert (await api("GET", "/sessions/one"))["id"] == "one"


@pytest.mark.parametrize("body", [b'{"title": "\xff\xfe"}', b'{"\xc3": 1}', b"\xff"])
async def test_a_body_that_is_no_utf_8_is_refused(api: Api, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    answer = await api.ask("POST", "/sessions", headers=headers, content=body)
    assert (answer.status_code, answer.json()["error"]["fields"]["field"]) == (400, "body")


async def test_a_body_that_does_not_come_holds_up_no_end(api: Api) -> None:
    at = urlsplit(api.url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    head = ("Content-Type: application/json", "Content-Length: 100")
    writer.write(request("POST /v1/sessions", *head, body=b"{"))
    await writer.drain()
    service = service_of(api.app)
    async with asyncio.timeout(20):
        while not service.waits:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        service.leave()
        answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 503 ")


@pytest.mark.parametrize("raw", [None, ...])
async def test_servers_that_do_not_tell_the_path_as_it_came(api: Api, raw: Any) -> None:
    """`raw_path` is optional in ASGI: it may be None, or not there. Then a path is what it was
    routed as."""
    await api("PUT", "/sessions/one")

    async def asked(path: str) -> int:
        headers = [(b"host", b"localhost"), (b"authorization", b"Bearer ann@acme")]
        scope: Any = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1"}
        scope |= {"method": "GET", "scheme": "http", "path": path, "query_string": b""}
        scope |= {"root_path": "", "headers": headers, "client": ("127.0.0.1", 1)}
        if raw is not ...:
            scope["raw_path"] = raw
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await api.app(scope, receive, send)
        status: int = sent[0]["status"]
        return status

    found = [await asked(path) for path in ("/v1/health", "/v1/sessions/one", "/v1/nothing")]
    assert found == [200, 200, 404]
