"""The surface of a server, seen by a stranger: what headers, document and refusals say."""

from __future__ import annotations

import asyncio
import copy
import stat
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.harness.sandbox import LocalSandbox
from holdfast.server import FileAudit, MemoryAudit, NoAuth, close_app, create_app

from .scene import PATIENCE, Api, serving, settings

CONTENT = "/sessions/one/files/content"
MOUNT = "/agents"
STREAM = "text/event-stream"


# Paths that there are, and those that there are not


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/sessions", "GET, HEAD, OPTIONS, POST"),
        ("/sessions/x", "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"),
        ("/sessions/x/messages", "OPTIONS, POST"),
    ],
)
async def test_options_names_all_that_may_be_asked(api: Api, path: str, allow: str) -> None:
    answer = await api.ask("OPTIONS", path)
    assert (answer.status_code, answer.headers["allow"]) == (204, allow)
    refused = await api.ask("TRACE", path)
    assert (refused.status_code, refused.headers["allow"]) == (405, allow)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere/token=sk-ant-api03-0123456789abcdefghij", 404, "not_found"),
        ("HEAD", "/nowhere", 404, "not_found"),
        ("PATCH", "/sessions", 405, "method_not_allowed"),
    ],
)
async def test_what_no_route_takes_is_answered_and_recorded_like_all_else(
    method: str, path: str, status: int, code: str
) -> None:
    audit = MemoryAudit()
    async with serving(settings(audit=audit)) as api:
        answer = await api.ask(method, path)
        assert answer.status_code == status
        for name in ("x-request-id", "x-content-type-options", "cache-control"):
            assert len(answer.headers.get_list(name)) == 1
    (record,) = audit.records
    assert record.request == answer.headers["x-request-id"]
    assert (record.method, record.status, record.code) == (method, status, code)
    assert (record.action, record.principal) == ("no_route", None)
    assert "0123456789abcdefghij" not in record.path


# Mounted in another


@pytest.fixture
async def host() -> AsyncGenerator[tuple[httpx.AsyncClient, list[Any]], None]:
    """A client of a host that has the app at a path, and the scopes before and after."""
    app = await asyncio.to_thread(create_app, settings())
    scopes: list[Any] = []

    async def mount(scope: Any, receive: Any, send: Any) -> None:
        scope = {**scope, "root_path": MOUNT, "state": {"theirs": 1}}
        kept = {**scope, "state": copy.copy(scope["state"])}
        await app(scope, receive, send)
        scopes.append((kept, scope))

    transport, headers = httpx.ASGITransport(mount), {"authorization": "Bearer ann@acme"}
    async with httpx.AsyncClient(
        transport=transport, base_url=f"http://host{MOUNT}/v1", headers=headers
    ) as http:
        yield http, scopes
    await close_app(app)


async def test_the_document_of_a_mounted_app_says_where_it_is(host: Any) -> None:
    http, _ = host
    document = (await http.get("/openapi.json")).json()
    assert document["servers"] == [{"url": MOUNT}]
    error = (await http.post("/sessions/one/messages")).json()["error"]
    assert f"{MOUNT}/v1/openapi.json" in error["fields"]["remedy"]


async def test_a_mounted_app_leaves_the_scope_of_its_host_alone(host: Any) -> None:
    http, scopes = host
    for path in ("/sessions", "/sessions/nobody", "/nowhere"):
        await http.get(path)
    assert len(scopes) == 3
    for before, after in scopes:
        assert after == before


async def test_the_document_names_bodies_and_streams(api: Api) -> None:
    document = await api("GET", "/openapi.json")
    assert document["servers"] == [{"url": "/"}]
    session = "/v1/sessions/{session_id}"
    put = document["paths"][f"{session}/files/content"]["put"]["requestBody"]
    assert [*put["content"]] == ["application/octet-stream"]
    restore = document["paths"][f"{session}/files/archive"]["put"]["requestBody"]
    assert {*restore["content"]} == {"application/gzip", "application/octet-stream"}
    events = document["paths"][f"{session}/events"]["get"]["responses"]["200"]["content"]
    assert {*events} == {"application/json", STREAM}


# Headers and queries


@pytest.mark.parametrize(
    ("accept", "query", "kind"),
    [
        (f"{STREAM};q=0, application/json", "", "application/json"),
        ("application/json, */*;q=0.1", "", "application/json"),
        (f"application/json;q=0.5, {STREAM};q=0.9", "?until=idle", STREAM),
        ("*/*", "?until=idle", STREAM),
        ("Text/Event-Stream", "?until=idle", STREAM),
    ],
)
async def test_a_stream_comes_to_those_who_take_one(
    api: Api, accept: str, query: str, kind: str
) -> None:
    await api("PUT", "/sessions/one")
    path = f"/sessions/one/events{query}"
    answer = await api.ask("GET", path, headers={"accept": accept})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(kind)


@pytest.mark.parametrize("accept", [f"{STREAM};q=0, */*", f"{STREAM};q=0.0", "text/*;q=0, */*"])
async def test_who_takes_no_stream_gets_none_by_asking_for_its_end(api: Api, accept: str) -> None:
    await api("PUT", "/sessions/one")
    path = "/sessions/one/events?until=idle"
    fields = await api.fails("invalid_value", "GET", path, headers={"accept": accept})
    assert fields["field"] == "until"


async def test_a_packed_body_is_refused_and_not_taken_as_it_is(api: Api) -> None:
    packed = {"content-encoding": "gzip"}
    answer = await api.ask("POST", "/sessions", {"id": "one"}, headers=packed)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (415, "unsupported_media_type")
    assert error["fields"]["found"] == "gzip"
    assert "Content-Encoding" in error["message"]
    assert (await api("GET", "/sessions"))["items"] == []
    plain = {"content-encoding": "identity"}
    await api("POST", "/sessions", {"id": "one"}, headers=plain, status=201)


async def test_two_keys_are_none(api: Api) -> None:
    headers = [("authorization", "Bearer ann@acme")]
    headers += [("idempotency-key", key) for key in ("a", "b")]
    answer = await api.client.post("/v1/sessions", json={"id": "one"}, headers=headers)
    assert (answer.status_code, answer.json()["error"]["fields"]["field"]) == (
        400,
        "Idempotency-Key",
    )
    assert (await api("GET", "/sessions"))["items"] == []


async def test_a_parameter_is_given_once_unless_it_is_a_list(api: Api) -> None:
    await api("PUT", "/sessions/one")
    for query in ("limit=1&limit=2", "user=ann&limit=2&user=ann"):
        fields = await api.fails("invalid_value", "GET", f"/sessions?{query}")
        assert fields["field"] in ("limit", "user")
        assert fields["problem"] == "occurs twice"
    await api("POST", "/sessions/one/threads", {"id": "side"})
    answer = await api.ask("GET", "/sessions/one/bundle?form=json&threads=main&threads=side")
    assert [one["thread"] for one in answer.json()["threads"]] == ["main", "side"]


# Files


@pytest.fixture
async def files(tmp_path: Path) -> AsyncGenerator[Api, None]:
    async with serving(harness={"sandbox": LocalSandbox(tmp_path / "places")}) as api:
        await api("PUT", "/sessions/one")
        await api("PUT", CONTENT, content=b"x", params={"path": "a/b.txt"})
        yield api


@pytest.mark.parametrize(
    ("header", "body"),
    [
        (f"content-length: {(16 << 20) + 1}", b""),
        ("transfer-encoding: chunked", b"100000\r\n" + bytes(1 << 20) + b"\r\n"),
    ],
    ids=["said", "seen"],
)
async def test_a_file_that_is_too_large_is_refused_before_all_of_it_is_there(
    files: Api, header: str, body: bytes
) -> None:
    address = httpx.URL(files.url)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    path, key = f"/v1{CONTENT}?path=large", "authorization: Bearer ann@acme"
    head = [f"PUT {path} HTTP/1.1", f"host: {address.host}", key, header]
    try:
        async with asyncio.timeout(PATIENCE):
            writer.write("\r\n".join([*head, "", ""]).encode())
            for _ in range(17):  # the body never ends
                writer.write(body)
            answer = (await reader.readuntil(b"\r\n")).decode()
    finally:
        writer.close()
    assert " 413 " in answer
    await files.fails("no_such_file", "GET", CONTENT, params={"path": "large"})


@pytest.mark.parametrize(
    ("method", "path", "more", "named", "word"),
    [
        ("PUT", "/content", {"params": {"path": "a/b.txt/c"}, "content": b"x"}, "a/b.txt/c", "Not"),
        ("PUT", "/content", {"params": {"path": "a"}, "content": b"x"}, "a", "regular"),
        ("POST", "/move", {"body": {"path": "a/b.txt", "to": "a"}}, "a", "exists"),
        ("DELETE", "", {"params": {"path": "a"}}, "a", "all=true"),
    ],
)
async def test_what_a_folder_refuses_names_the_path(
    files: Api, method: str, path: str, more: Any, named: str, word: str
) -> None:
    more = dict(more)
    fields = await files.fails(
        "sandbox_failed", method, f"/sessions/one/files{path}", more.pop("body", None), **more
    )
    assert fields["path"] == named
    assert word in fields["problem"]
    told = await files.ask("GET", CONTENT, params={"path": "a/b.txt"})
    assert told.content == b"x"


async def test_a_file_that_is_not_there_is_named_where_it_is_to_be_moved(files: Api) -> None:
    body = {"path": "nothing", "to": "new/x"}
    fields = await files.fails("no_such_file", "POST", "/sessions/one/files/move", body)
    assert fields["path"] == "nothing"
    tree = await files("GET", "/sessions/one/files/tree")
    assert [one["path"] for one in tree["entries"]] == ["a"]


async def test_a_folder_goes_with_what_is_in_it_when_that_is_asked_for(files: Api) -> None:
    await files("DELETE", "/sessions/one/files?path=a&all=true", status=204)
    assert (await files("GET", "/sessions/one/files/tree"))["entries"] == []


async def test_what_lies_too_deep_for_an_archive_is_named(files: Api) -> None:
    deep = "/".join(["d"] * 40)
    await files("POST", "/sessions/one/files/folders", {"path": deep}, status=204)
    fields = await files.fails("invalid_value", "GET", "/sessions/one/files/archive")
    assert (fields["field"], fields["limit"]) == ("depth", 32)
    assert "/".join(["d"] * 33) in fields["problem"]


# Words


async def test_a_bound_that_is_told_stands_in_the_fields_too(api: Api) -> None:
    fields = await api.fails("invalid_value", "GET", "/sessions?limit=1000")
    assert (fields["field"], fields["limit"]) == ("limit", 100)
    fields = await api.fails("invalid_value", "GET", f"/sessions?label={'x' * 401}")
    assert (fields["field"], fields["limit"]) == ("label", 400)


async def test_a_run_that_cannot_be_is_no_filter(api: Api) -> None:
    fields = await api.fails("invalid_value", "GET", "/sessions?run=bogus")
    assert fields["field"] == "run"
    assert "waiting" in fields["remedy"]
    await api.ask_for_refund("one")
    for run, found in (("waiting", 1), ("done", 0)):
        assert len((await api("GET", f"/sessions?run={run}"))["items"]) == found


async def test_a_cursor_past_the_end_is_told_so(api: Api) -> None:
    await api("PUT", "/sessions/one")
    fields = await api.fails("invalid_value", "GET", "/sessions/one/events?after=999")
    assert fields["problem"].startswith("999 is past the end of the log")


async def test_behind_a_proxy_nobody_is_told_to_bring_a_key_that_there_is_not() -> None:
    async with serving(settings(auth=NoAuth())) as api:
        headers = {"x-forwarded-for": "10.0.0.7"}
        answer = await api.ask("GET", "/sessions", headers=headers, by=None)
        assert answer.status_code == 401
        assert "proxy" in answer.json()["error"]["message"]
        assert "key" not in answer.json()["error"]["message"]


@pytest.mark.parametrize("content", ["", "   ", "\n", [], [""], [" ", "\t"]])
async def test_a_message_that_says_nothing_begins_no_run(api: Api, content: Any) -> None:
    await api("PUT", "/sessions/one")
    for path in ("messages", "steer", "follow-ups"):
        body = {"content": content}
        fields = await api.fails("invalid_value", "POST", f"/sessions/one/{path}", body)
        assert (fields["field"], bool(fields["remedy"])) == ("content", True)
    assert (await api("GET", "/sessions/one/transcript"))["items"] == []
    part = {"data": "aGk=", "media_type": "text/plain"}
    await api("POST", "/sessions/one/messages", {"content": ["", part]}, status=202)


async def test_an_audit_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with serving(settings(audit=FileAudit(path))) as api:
        await api("GET", "/sessions")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().count("\n") == 1
