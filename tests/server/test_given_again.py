"""Requests that begin a session, made again under their key: variables, which only a process
remembers, are given again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent
from holdfast.harness.sandbox import LocalSandbox
from holdfast.models.scripted import Say, ScriptedModel, Use

from .loading.test_sessions import shell
from .scene import Api, serving

TOKEN = "canary-7f3a9c"


def served(folder: Path) -> Any:
    speaks = ScriptedModel.by_input(
        {".": [Say("", calls=[Use("shell", command="echo got ${#TOKEN}")]), "Done."]}
    )
    return serving(
        stores=f"sqlite:{folder}/x.db",
        agents=[Agent("shop", instructions="Help.", tools=[shell])],
        harness={"default_model": speaks, "sandbox": LocalSandbox(folder / "places")},
        envs=["TOKEN"],
    )


@pytest.mark.parametrize(("method", "path"), [("PUT", "/sessions/one"), ("POST", "/sessions")])
async def test_the_same_request_gives_them_again(method: str, path: str, tmp_path: Path) -> None:
    body = {"envs": {"TOKEN": TOKEN}}
    async with served(tmp_path) as api:
        first = await api(method, path, body, status=201, key="k")
    async with served(tmp_path) as api:
        assert await api(method, path, body, status=201, key="k") == first
        session = f"/sessions/{first['id']}"
        await api("POST", f"{session}/messages?wait=true", {"content": "Go"})
        assert "got 13" in (await api.ask("GET", f"{session}/events")).text
        assert len((await api("GET", "/sessions"))["items"]) == 1


@pytest.mark.parametrize("key", [None, "k"])
async def test_an_id_that_is_too_long_is_named(api: Api, key: str | None) -> None:
    refused = await api.fails("invalid_value", "PUT", f"/sessions/{'x' * 600}", {}, key=key)
    assert refused["field"] == "session_id"


@pytest.mark.parametrize(("method", "path"), [("PUT", "/sessions/one"), ("POST", "/sessions")])
async def test_a_request_that_says_nothing_is_answered_the_same(
    method: str, path: str, api: Api
) -> None:
    ask: Any = {"headers": {"content-type": "application/json"}, "content": b"null", "key": "k"}
    first = await api(method, path, status=201, **ask)
    assert await api(method, path, status=201, **ask) == first


async def test_what_was_answered_stays_so_where_they_cannot_be_given_any_more(
    tmp_path: Path,
) -> None:
    body = {"envs": {"TOKEN": TOKEN}}
    async with served(tmp_path) as api:
        first = await api("PUT", "/sessions/one", body, status=201, key="k")
    other = Agent("other", instructions="Help.")
    async with serving(stores=f"sqlite:{tmp_path}/x.db", agents=[other]) as api:
        assert await api("PUT", "/sessions/one", body, status=201, key="k") == first
