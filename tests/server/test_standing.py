"""Mode, model, state, usage, display, rules, threads and surfaces over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.values.display import from_json

from .scene import Api, serving, settings


async def test_mode_and_model_can_be_seen_and_changed(api: Api) -> None:
    await api("PUT", "/sessions/one")
    assert await api("GET", "/sessions/one/mode") == {
        "mode": "counter",
        "modes": ["counter", "office"],
        "changed": False,
    }
    switched = await api("PUT", "/sessions/one/mode", {"mode": "office", "text": "Hi"}, key="k")
    assert switched["changed"]
    assert switched["mode"] == "office"
    await api.until("/sessions/one/transcript", lambda t: len(t["items"]) == 2)
    await api.fails("invalid_value", "PUT", "/sessions/one/mode", {"mode": "garden"})
    chosen = await api("PUT", "/sessions/one/model", {"model": "scripted/demo"})
    assert (chosen["chosen"], chosen["changed"]) == ("scripted/demo", True)
    cleared = await api("PUT", "/sessions/one/model", {"model": None})
    assert cleared["chosen"] is None
    await api.fails("invalid_value", "PUT", "/sessions/one/model", {"model": "nonsense"})


async def test_the_user_state_is_changed_by_entries(api: Api) -> None:
    await api("PUT", "/sessions/one")
    path = "/sessions/one/state"
    assert (await api("GET", path))["state"] == {"visits": 1}
    asks = [api("PATCH", path, {"set": {f"k{n}": n}}) for n in range(5)]
    await asyncio.gather(*asks)
    state = (await api("PATCH", path, {"drop": ["k0", "visits"]}))["state"]
    assert state == {f"k{n}": n for n in range(1, 5)}
    assert (await api("PUT", path, {"state": {"a": [1]}}))["state"] == {"a": [1]}
    fields = await api.fails("invalid_value", "PATCH", path, {"set": {"big": "x" * 20_000}})
    assert fields["limit"]
    assert (await api("GET", path))["state"] == {"a": [1]}


async def test_usage_and_display_are_those_of_the_library(api: Api) -> None:
    await api("PUT", "/sessions/one")
    await api("POST", "/sessions/one/messages?wait=true", {"content": "Hi"})
    usage = await api("GET", "/sessions/one/usage")
    assert usage["thread"]["input_tokens"] == usage["session"]["input_tokens"] == 7
    answer = await api.ask("GET", "/sessions/one/display")
    shown = from_json(answer.content)
    assert (shown.session, shown.phase) == ("one", "idle")
    assert shown.message is not None
    assert shown.message.text == "Good day."


async def test_rules_and_grants(api: Api) -> None:
    await api("PUT", "/sessions/one")
    path = "/sessions/one/permissions"
    await api("PUT", path, {"tool": "refund", "rule": "deny"})
    seen = await api("PUT", path, {"category": "payments", "rule": "allow"})
    assert (seen["tools"], seen["categories"]) == ({"refund": "deny"}, {"payments": "allow"})
    assert (await api("PUT", path, {"tool": "refund", "rule": None}))["tools"] == {}
    granted = await api("POST", "/sessions/one/grants", {"tool": "refund"})
    assert granted["granted_tools"] == ["refund"]
    assert (await api("DELETE", "/sessions/one/grants"))["granted_tools"] == []
    await api.fails("invalid_value", "PUT", path, {"rule": "deny"})


@pytest.mark.parity("computeragent", 89)
async def test_a_rule_decides_without_a_person_and_is_written_down(api: Api) -> None:
    await api("PUT", "/sessions/one")
    await api("PUT", "/sessions/one/permissions", {"tool": "refund", "rule": "deny"})
    said = {"content": "Refund it."}
    done = await api("POST", "/sessions/one/messages?wait=true", said)
    assert done["status"] == "done"
    events = (await api("GET", "/sessions/one/events"))["items"]
    ended = next(e for e in events if e["kind"] == "tool.finished")
    assert ended["data"]["outcome"] == "denied"


async def test_threads_are_made_forked_renamed_listed_and_removed(url: str) -> None:
    async with serving(settings(url)) as api:
        await api("PUT", "/sessions/one")
        await api("POST", "/sessions/one/messages?wait=true", {"content": "Hi"})
        made = await api("POST", "/sessions/one/threads", {"id": "aside", "title": "Aside"})
        assert (made["thread"], made["created"]) == ("aside", True)
        assert made["events"].endswith("?thread=aside")
        await api.fails("session_exists", "POST", "/sessions/one/threads", {"id": "aside"})
        await api("POST", "/sessions/one/messages?wait=true&thread=aside", {"content": "Psst"})
        fork = await api("POST", "/sessions/one/threads/fork", {"title": "Fork"})
        told = await api("GET", f"/sessions/one/transcript?thread={fork['thread']}")
        assert [m["text"] for m in told["items"]] == ["Hi", "Good day."]
        renamed = await api("PATCH", "/sessions/one/threads/aside", {"title": "Other"})
        assert renamed["row"]["title"] == "Other"
        forks = await api("GET", "/sessions/one/threads?forks=true")
        assert [row["thread"] for row in forks["items"]] == [fork["thread"]]
        await api("DELETE", "/sessions/one/threads/aside", status=204)
        await api.fails("session_not_found", "GET", "/sessions/one?thread=aside")
        await api.fails("invalid_value", "DELETE", "/sessions/one/threads/main")
        told = await api("GET", "/sessions/one/transcript")
        assert [m["text"] for m in told["items"]] == ["Hi", "Good day."]


@pytest.mark.parity("user-demand", 75)
async def test_a_message_finds_its_session_by_the_surface_it_came_by(url: str) -> None:
    async with serving(settings(url)) as api:
        inbound: Any = {"surface": "slack", "address": "D1", "id": "m1"}
        asks = [api("POST", "/resolve", inbound) for _ in range(5)]
        found = await asyncio.gather(*asks)
        assert len({view["id"] for view in found}) == 1
        id = found[0]["id"]
        done = await api("POST", f"/sessions/{id}/messages?wait=true", {"content": "Hi"})
        assert done["status"] == "done"
        other = await api("POST", "/sessions", {})
        path, place = f"/sessions/{other['id']}/surfaces", {"surface": "slack", "address": "D1"}
        fields = await api.fails("surface_taken", "POST", path, place)
        assert fields["session"] == id
        moved = await api("POST", path, {**place, "move": True})
        assert moved["items"] == [{**place, "detail": {}}] or moved["items"][0]["address"] == "D1"
        assert (await api("GET", f"/sessions/{id}/surfaces"))["items"] == []
        assert (await api("POST", "/resolve", {**place, "id": "m2"}))["id"] == other["id"]
        assert (await api("DELETE", f"{path}?surface=slack&address=D1"))["items"] == []


async def test_a_surface_of_somebody_else_is_neither_taken_nor_named(api: Api) -> None:
    place = {"surface": "slack", "address": "D1"}
    theirs = await api("POST", "/resolve", place, by="bob@acme")
    mine = await api("POST", "/sessions", {}, by="ann@acme")
    for body in (place, {**place, "move": True}):
        answer = await api.ask("POST", f"/sessions/{mine['id']}/surfaces", body)
        assert answer.json()["error"]["code"] == "surface_taken"
        assert theirs["id"] not in answer.text
    answer = await api.ask("POST", "/resolve", place, by="ann@acme")
    assert answer.status_code == 409
    assert theirs["id"] not in answer.text
    assert (
        len((await api("GET", f"/sessions/{theirs['id']}/surfaces", by="bob@acme"))["items"]) == 1
    )
