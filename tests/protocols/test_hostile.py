"""Requests that mean no good, at the endpoints of other protocols: typed answers, and nothing is
written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast import Query
from holdfast.server.app import service_of
from tests.server.scene import ALL, Api, Tokens, serving, settings

CHAT = "/ai-sdk/v7/chat"
HELLO = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}


def chat(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"id": "mine", "messages": [*messages], **more}


def said(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"id": "a1", "role": "assistant", "parts": [*parts], **more}


def file(url: Any) -> dict[str, Any]:
    return {**HELLO, "parts": [{"type": "file", "mediaType": "image/png", "url": url}]}


BAD_CHATS: list[Any] = [
    *([], {}, "chat", None, chat(), chat(1), chat({}), chat({**HELLO, "role": "system"})),
    chat({**HELLO, "id": ""}),
    chat({**HELLO, "id": 7}),
    chat({**HELLO, "role": "tool"}),
    chat({**HELLO, "parts": {}}),
    chat({**HELLO, "parts": [1]}),
    chat({**HELLO, "parts": []}),
    chat({**HELLO, "parts": [{"type": "text"}]}),
    chat({**HELLO, "parts": [{"type": "text", "text": " "}]}),
    chat({**HELLO, "parts": [{"type": "text", "text": 5}]}),
    chat(file("https://example.com/a.png")),
    chat(file("data:image/png;base64,###")),
    chat(file(None)),
    {**chat(HELLO), "id": "../up"},
    {**chat(HELLO), "id": ""},
    {**chat(HELLO), "trigger": "explode"},
    {**chat(HELLO), "agent": "nobody"},
    {**chat(HELLO), "model": "none/at-all"},
    {**chat(HELLO), "thread": "none"},
    chat(said(), trigger="regenerate-message"),
]


async def sessions(api: Api) -> int:
    store = await service_of(api.app).places.store()
    return len((await store.find(Query(tenant="acme"))).items)


@pytest.mark.parametrize("body", BAD_CHATS, ids=[str(n) for n in range(len(BAD_CHATS))])
async def test_a_bad_chat_is_refused_and_nothing_is_written(api: Api, body: Any) -> None:
    answer = await api.ask("POST", CHAT, body)
    assert 400 <= answer.status_code < 500, answer.text
    assert {*answer.json()["error"]} == {"code", "message", "fields", "retryable", "docs"}
    store = await service_of(api.app).places.store()
    rows = (await store.find(Query(tenant="acme"))).items
    assert [row for row in rows if row.run is not None or row.first_message] == []


async def test_a_version_that_is_unknown_is_refused(api: Api) -> None:
    await api.fails("invalid_value", "POST", "/ai-sdk/v4/chat", chat(HELLO))
    await api.fails("invalid_value", "GET", "/ai-sdk/7/chat/mine/messages")
    assert await sessions(api) == 0


async def test_the_sessions_of_others_are_as_if_there_were_none(api: Api) -> None:
    item = await api.ask_for_refund("mine")
    part = {"type": "tool-refund", "toolCallId": item, "state": "approval-responded"}
    approve = {**part, "approval": {"id": item, "approved": True}}
    before = (await api("GET", "/sessions/mine"))["row"]["head"]
    for body in (chat(HELLO), chat(said(approve)), chat(HELLO, trigger="regenerate-message")):
        await api.fails("session_not_found", "POST", CHAT, body, by="bob@acme")
    assert (await api("GET", "/sessions/mine"))["row"]["head"] == before
    await api.fails("session_not_found", "POST", CHAT, chat(said(approve)), by="eve@other")


async def test_items_and_cursors_that_are_foreign_are_refused(api: Api) -> None:
    item = await api.ask_for_refund("mine")
    part = {"type": "tool-refund", "toolCallId": item, "state": "approval-responded"}
    before = (await api("GET", "/sessions/mine"))["row"]["head"]
    for approval in (None, {}, {"id": item}, {"id": item, "approved": "yes"}, {"approved": True}):
        body = chat(said({**part, "approval": approval}))
        await api.fails("invalid_value", "POST", CHAT, body)
    foreign = {**part, "approval": {"id": "other", "approved": True}}
    await api.fails("not_pending", "POST", CHAT, chat(said(foreign)))
    own = {**part, "approval": {"id": item, "approved": True}}
    for cursor, code in (
        ("x", "invalid_value"),
        ("9999", "invalid_value"),
        ("other.3", "log_replaced"),
    ):
        body = chat(said(own, metadata={"cursor": cursor}))
        await api.fails(code, "POST", CHAT, body)
    await api.fails("invalid_value", "POST", CHAT, chat(said({"type": "tool-x"})))
    assert (await api("GET", "/sessions/mine"))["row"]["head"] == before


async def test_who_may_not_decide_does_not_decide(api: Api) -> None:
    scopes = tuple(scope for scope in ALL if scope != "pending:decide")
    async with serving(settings(auth=Tokens(scopes))) as other:
        item = await other.ask_for_refund("mine")
        part = {"type": "tool-refund", "toolCallId": item, "state": "approval-responded"}
        body = chat(said({**part, "approval": {"id": item, "approved": True}}))
        await other.fails("forbidden", "POST", CHAT, body)
        assert len((await other("GET", "/sessions/mine/pending"))["items"]) == 1


@pytest.mark.parametrize("path", [CHAT, "/ag-ui/run"])
async def test_another_origin_is_told_nothing(path: str) -> None:
    async with serving(settings(origins=["https://shop.example"])) as api:
        for origin, told in (("https://shop.example", True), ("https://evil.example", False)):
            asked = {"origin": origin, "access-control-request-method": "POST"}
            answer = await api.client.options(f"/v1{path}", headers=asked)
            allowed = answer.headers.get("access-control-allow-origin") == origin
            assert allowed is told
        answer = await api.ask("POST", path, chat(HELLO), by=None)
        assert answer.json()["error"]["code"] == "unauthorized"


RUN = "/ag-ui/run"
HI = {"id": "m1", "role": "user", "content": "Hello"}


def run(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"threadId": "mine", "runId": "r1", "messages": [*messages], **more}


BAD_RUNS: list[Any] = [
    *([], {}, "run", None, run(1), run({}), {**run(HI), "threadId": "../up"}),
    {**run(HI), "threadId": 7},
    {**run(HI), "runId": ""},
    run({**HI, "content": 7}),
    run({**HI, "content": ""}),
    run({**HI, "content": [{"type": "text"}]}),
    run({**HI, "content": [{"type": "image", "source": {"type": "url", "value": "http://a"}}]}),
    run({**HI, "content": [{"type": "binary", "mimeType": "a/b", "data": "###"}]}),
    run(HI, resume={}),
    run(HI, resume=[{"interruptId": "x", "status": "maybe"}]),
    run(HI, forwardedProps=7),
    run(HI, forwardedProps={"agent": "nobody"}),
    run(HI, forwardedProps={"thread": "none"}),
    run(HI, forwardedProps={"cursor": "x"}),
    run({**HI, "role": "assistant"}),
    run(),
]


@pytest.mark.parametrize("body", BAD_RUNS, ids=[str(n) for n in range(len(BAD_RUNS))])
async def test_a_bad_run_is_refused_and_nothing_is_written(api: Api, body: Any) -> None:
    answer = await api.ask("POST", RUN, body)
    assert 400 <= answer.status_code < 500, answer.text
    assert {*answer.json()["error"]} == {"code", "message", "fields", "retryable", "docs"}
    assert await sessions(api) == 0


async def test_answers_and_cursors_of_a_run_that_are_foreign_are_refused(api: Api) -> None:
    item = await api.ask_for_refund("mine")
    before = (await api("GET", "/sessions/mine"))["row"]["head"]
    own = {"interruptId": item, "status": "resolved", "payload": {"approved": True}}
    for by in ("bob@acme", "eve@other"):
        await api.fails("session_not_found", "POST", RUN, run(resume=[own]), by=by)
    await api.fails("session_not_found", "POST", RUN, run(HI), by="bob@acme")
    foreign = {**own, "interruptId": "other"}
    await api.fails("not_pending", "POST", RUN, run(resume=[foreign]))
    payloads: list[Any] = ["yes", 1, {"approved": "yes"}, {}, []]
    for payload in payloads:
        wrong = {**own, "payload": payload}
        await api.fails("invalid_value", "POST", RUN, run(resume=[wrong]))
    for cursor, code in (("x", "invalid_value"), ("other.3", "log_replaced")):
        body = run(resume=[own], forwardedProps={"cursor": cursor})
        await api.fails(code, "POST", RUN, body)
    text = {"content-type": "text/plain"}
    answer = await api.ask("POST", RUN, content=b"{}", headers=text)
    assert answer.json()["error"]["code"] == "unsupported_media_type"
    assert (await api("GET", "/sessions/mine"))["row"]["head"] == before


async def test_who_may_not_read_is_not_sent_the_conversation() -> None:
    body = {"threadId": "mine", "runId": "r", "messages": []}
    async with serving(settings(auth=Tokens(("sessions:write",)))) as other:
        await other("PUT", "/sessions/mine", {})
        await other.fails("forbidden", "GET", "/sessions/mine/transcript")
        await other.fails("forbidden", "POST", "/ag-ui/run", body)


def tool_call(given: Any) -> dict[str, Any]:
    about = {"name": "send_message", "arguments": {"session": "mine", "content": given}}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": about}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, lambda given: chat({**HELLO, "metadata": given})),
        ("/ag-ui/run", lambda given: {**run(HI), "state": given}),
        ("/mcp", tool_call),
    ],
    ids=["ai-sdk", "ag-ui", "mcp"],
)
async def test_sizes_depths_and_types_of_a_body_are_limited(api: Api, path: str, body: Any) -> None:
    deep: Any = {}
    for _ in range(500):
        deep = {"a": deep}
    await api.fails("invalid_value", "POST", path, body(deep))
    await api.fails("request_too_large", "POST", path, body("x" * (17 << 20)))
    content = json.dumps(body("Hello")).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = await api.ask("POST", path, content=content, headers={"content-type": kind})
        assert answer.json()["error"]["code"] == "unsupported_media_type"
    accept = {"accept": "application/json, text/event-stream"}
    json_type = {"content-type": "application/json", **accept}
    for content in (b"{", b"\xff\xfe", b'{"id": "\\ud800"}', b"[" * 100_000):
        answer = await api.ask("POST", path, content=content, headers=json_type)
        assert 400 <= answer.status_code < 500, answer.text
        assert "error" in answer.json()
    assert await sessions(api) == 0
