"""What is wrong with a request: the field is named, and what is taken in its place."""

from __future__ import annotations

from typing import Any

import pytest

from .scene import Api

SESSION = "agent, engine, store, user, title, workspace, labels, metadata, source, files, envs"

MESSAGE = "content, busy, metadata, model, limits"


@pytest.mark.parametrize(
    ("path", "body", "field", "remedy"),
    [
        ("", {"titel": "x"}, "titel", f"did you mean 'title'? Available: {SESSION}, id"),
        ("", {"zzz": "x"}, "zzz", f"use one of {SESSION}, id"),
        (
            "",
            {"store": {"kind": "memory", "optins": {}}},
            "store.optins",
            "did you mean 'options'? Available: kind, options",
        ),
        (
            "",
            {"store": "memory"},
            "store",
            'send an object, {"kind": …}, with the fields kind, options',
        ),
        ("", {"store": {}}, "store.kind", "this field is required"),
        (
            "/one/messages",
            {"content": ["a", {"dta": ""}]},
            "content[1].dta",
            "did you mean 'data'? Available: data, media_type, name",
        ),
        (
            "/one/messages",
            {"content": "a", "busy": "stear"},
            "busy",
            "did you mean 'steer'? Available: interrupt, queue, reject, steer",
        ),
        (
            "/one/messages",
            {"content": "a", "limits": {"step": 1}},
            "limits",
            "did you mean 'steps'? Available: cost, seconds, steps, tokens",
        ),
        ("/one/messages", {}, "content", "this field is required"),
        (
            "/one/messages",
            [],
            "body",
            f'send an object, {{"content": …}}, with the fields {MESSAGE}',
        ),
        ("/one/abort", {"why": "x"}, "why", "use one of reason, run"),
    ],
)
async def test_a_body_is_refused_by_its_field(
    api: Api, path: str, body: Any, field: str, remedy: str
) -> None:
    await api("PUT", "/sessions/one")
    fields = await api.fails("invalid_value", "POST", f"/sessions{path}", body)
    assert (fields["field"], fields["remedy"]) == (field, remedy)


@pytest.mark.parametrize(
    ("query", "field", "remedy"),
    [
        ("order=activ", "order", "did you mean 'active'? Available: active, created"),
        ("phase=x", "phase", "use one of active, created, expired, suspended"),
        ("limit=x", "limit", "pass a whole number from 1 to 100"),
        ("limit=101", "limit", "pass a whole number from 1 to 100"),
        ("total=x", "total", "pass true or false"),
        ("user=", "user", "pass a string of 1 to 400 characters"),
    ],
)
async def test_a_parameter_is_refused_with_its_choices(
    api: Api, query: str, field: str, remedy: str
) -> None:
    fields = await api.fails("invalid_value", "GET", f"/sessions?{query}")
    assert (fields["field"], fields["remedy"]) == (field, remedy)


async def test_a_parameter_that_there_is_not_is_guessed(api: Api) -> None:
    fields = await api.fails("invalid_value", "GET", "/sessions?lable=x")
    assert fields["field"] == "lable"
    assert fields["remedy"].startswith("did you mean 'label'? Available: active_from, ")


async def test_a_body_that_is_all_optional_may_be_left_out(api: Api) -> None:
    made = await api("POST", "/sessions", status=201)
    assert made["created"]
    assert (await api("GET", f"/sessions/{made['id']}"))["id"] == made["id"]
    again = [await api("POST", "/sessions", status=201, key="k") for _ in range(2)]
    assert again[0] == again[1]
    assert again[0]["id"] != made["id"]


@pytest.mark.parametrize(
    ("path", "problem", "remedy"),
    [
        ("/pending?wait=zz", "is not a number (query)", "pass a number from 0 to 3600"),
        ("/sessions?total=zz", "is not true or false (query)", "pass true or false"),
        ("/sessions?limit=0", "is too small (query)", "pass a whole number from 1 to 100"),
        (
            f"/sessions?cursor={'x' * 1001}",
            "is too long (query)",
            "pass a string of 1 to 1000 characters",
        ),
        (
            "/sessions/one/bundle?upto=zz",
            "is not a whole number (query)",
            "pass a whole number from ",
        ),
    ],
)
async def test_what_is_wanted_of_a_parameter_is_said_in_words(
    api: Api, path: str, problem: str, remedy: str
) -> None:
    fields = await api.fails("invalid_value", "GET", path)
    assert fields["problem"] == problem
    assert fields["remedy"].startswith(remedy)


async def test_what_is_wanted_of_a_field_is_said_in_words(api: Api) -> None:
    await api("PUT", "/sessions/one")
    path = "/sessions/one/messages"
    fields = await api.fails("invalid_value", "POST", path, {"content": 5})
    assert (fields["field"], fields["problem"]) == ("content", "is a number (body)")
    assert fields["remedy"] == "pass a string or a list"
    fields = await api.fails("invalid_value", "POST", "/sessions", {"title": ""})
    assert (fields["problem"], fields["remedy"]) == (
        "is too short (body)",
        "pass a string of 1 to 400 characters or null",
    )


@pytest.mark.parametrize("last", [rb"NaN", rb'"\ud800"'])
async def test_a_bad_body_with_a_long_name_gets_a_short_answer(api: Api, last: bytes) -> None:
    await api("PUT", "/sessions/one")
    body = b'{"%b":[%b%b]}' % (b"k" * 20_000, b"0," * 10_000, last)
    ask: Any = {"headers": {"content-type": "application/json"}, "content": body}
    answer = await api.ask("POST", "/sessions/one/messages", **ask)
    assert answer.status_code == 400
    assert len(answer.content) < 4_000


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (rb'{"content":"\ud800"}', "content"),
        (rb'{"content":"\ude00 and more"}', "content"),
        (rb'{"content":["a","\ud800\u0041"]}', "content[1]"),
        (rb'{"content":"a","metadata":{"x":{"y":"\ud800"}}}', "metadata.x.y"),
        (rb'{"content":"a","metadata":{"\ud800":1}}', "metadata"),
    ],
)
async def test_half_of_a_character_is_told_with_its_place(
    api: Api, body: bytes, field: str
) -> None:
    await api("PUT", "/sessions/one")
    ask: Any = {"headers": {"content-type": "application/json"}, "content": body}
    for key in (None, "k"):
        fields = await api.fails("invalid_value", "POST", "/sessions/one/messages", key=key, **ask)
        assert fields["field"] == field
        assert "surrogate" in fields["problem"]
        assert fields["remedy"]
    assert (await api("GET", "/sessions/one/transcript"))["items"] == []


async def test_a_body_that_ends_too_soon_is_told_so(api: Api) -> None:
    ask: Any = {"headers": {"content-type": "application/json"}, "content": b'{"title":"a'}
    fields = await api.fails("invalid_value", "POST", "/sessions", **ask)
    assert (fields["field"], fields["problem"]) == ("body", "is incomplete JSON")
