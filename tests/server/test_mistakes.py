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
        ("", {"titel": "x"}, "titel", f"did you mean 'title'? there are: {SESSION}, id"),
        ("", {"zzz": "x"}, "zzz", f"there are: {SESSION}, id"),
        (
            "",
            {"store": {"kind": "memory", "optins": {}}},
            "store.optins",
            "did you mean 'options'? there are: kind, options",
        ),
        (
            "",
            {"store": "memory"},
            "store",
            'give an object, {"kind": …}; its fields are: kind, options',
        ),
        ("", {"store": {}}, "store.kind", "give it"),
        (
            "/one/messages",
            {"content": ["a", {"dta": ""}]},
            "content[1].dta",
            "did you mean 'data'? there are: data, media_type, name",
        ),
        (
            "/one/messages",
            {"content": "a", "busy": "stear"},
            "busy",
            "did you mean 'steer'? there are: interrupt, queue, reject, steer",
        ),
        (
            "/one/messages",
            {"content": "a", "limits": {"step": 1}},
            "limits",
            "did you mean 'steps'? there are: cost, seconds, steps, tokens",
        ),
        ("/one/messages", {}, "content", "give it"),
        (
            "/one/messages",
            [],
            "body",
            f'give an object, {{"content": …}}; its fields are: {MESSAGE}',
        ),
        ("/one/abort", {"why": "x"}, "why", "there are: reason"),
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
        ("order=activ", "order", "did you mean 'active'? there are: active, created"),
        ("phase=x", "phase", "there are: active, created, expired, suspended"),
        ("limit=x", "limit", "see /v1/openapi.json for what is taken here"),
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
    assert fields["remedy"].startswith("did you mean 'label'? there are: agent, ")


async def test_a_body_that_is_all_optional_may_be_left_out(api: Api) -> None:
    made = await api("POST", "/sessions", status=201)
    assert made["created"]
    assert (await api("GET", f"/sessions/{made['id']}"))["id"] == made["id"]
    again = [await api("POST", "/sessions", status=201, key="k") for _ in range(2)]
    assert again[0] == again[1]
    assert again[0]["id"] != made["id"]
