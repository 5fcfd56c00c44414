"""Sessions over HTTP: begun, found, changed and gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from .scene import Api, serving, settings

PARTS = [
    *("", "/status", "/transcript", "/pending", "/display", "/mode", "/model", "/state"),
    *("/usage", "/follow-ups", "/threads", "/permissions", "/surfaces", "/events"),
]


@pytest.mark.parity("user-demand", 58)
@pytest.mark.parity("computeragent", 49)
@pytest.mark.parity("computeragent", 50)
async def test_a_session_is_begun_under_a_new_id_or_a_given_one(api: Api) -> None:
    made = await api("POST", "/sessions", {"title": "Orders"}, status=201)
    assert made["created"]
    assert made["row"]["title"] == "Orders"
    assert made["row"]["user"] == "ann"
    assert made["row"]["tenant"] == "acme"
    assert made["events"] == f"/v1/sessions/{made['id']}/events"
    assert made["cursor"] == f"{made['row']['log']}.{made['row']['head']}"
    given = await api("POST", "/sessions", {"id": "my-id"}, status=201)
    assert given["id"] == "my-id"
    assert (given["engine"], given["store"]) == ("holdfast", "memory")


@pytest.mark.parity("computeragent", 51)
async def test_an_id_that_cannot_stand_in_a_path_is_refused(api: Api) -> None:
    for id in ("../x", "..", ".", "a/b", "a\\b", "x" * 600, "", "a\nb", "é\x7f"):
        fields = await api.fails("invalid_value", "POST", "/sessions", {"id": id})
        assert fields["field"] == "id"


@pytest.mark.parity("computeragent", 52)
async def test_a_second_session_with_an_id_is_refused(api: Api) -> None:
    await api("POST", "/sessions", {"id": "one"})
    before = await api("GET", "/sessions/one")
    fields = await api.fails("session_exists", "POST", "/sessions", {"id": "one", "title": "x"})
    assert fields["session"] == "one"
    assert await api("GET", "/sessions/one") == before


@pytest.mark.parity("user-demand", 11)
@pytest.mark.parity("computeragent", 52)
async def test_of_many_that_begin_a_session_at_once_one_does(url: str) -> None:
    async with serving(settings(url)) as api:
        asks = [api.ask("POST", "/sessions", {"id": "same"}) for _ in range(8)]
        found = [answer.status_code for answer in await asyncio.gather(*asks)]
        assert sorted(found) == [201, *[409] * 7]


@pytest.mark.parity("mastra-session", 165)
async def test_get_or_create_twice_is_one_session(api: Api) -> None:
    first = await api("PUT", "/sessions/one", {"title": "x"}, status=201)
    again = await api("PUT", "/sessions/one", {"title": "y"}, status=200)
    assert first["row"] == again["row"]
    asks = [api.ask("PUT", "/sessions/two") for _ in range(8)]
    answers = await asyncio.gather(*asks)
    assert sorted(a.status_code for a in answers) == [*[200] * 7, 201]
    assert len({a.json()["row"]["log"] for a in answers}) == 1


@pytest.mark.parity("mastra-session", 166)
async def test_looking_makes_no_session(api: Api) -> None:
    for path in PARTS:
        await api.fails("session_not_found", "GET", f"/sessions/nobody{path}")
    assert (await api("GET", "/sessions"))["items"] == []


@pytest.mark.parity("computeragent", 53)
async def test_what_is_not_to_be_had_is_named_with_what_is(api: Api) -> None:
    assert await api.fails("unknown_engine", "POST", "/sessions", {"engine": "x"}) == {
        "engine": "x",
        "available": ["holdfast"],
    }
    assert await api.fails("unknown_agent", "POST", "/sessions", {"agent": "x"}) == {
        "agent": "x",
        "available": ["shop"],
    }
    wish = {"store": {"kind": "s3"}}
    fields = await api.fails("unknown_store", "POST", "/sessions", wish)
    assert fields == {"kind": "s3", "available": ["memory"]}
    assert (await api("GET", "/sessions"))["items"] == []


@pytest.mark.parity("computeragent", 53)
async def test_a_body_that_does_not_fit_names_the_field(api: Api) -> None:
    wrong: dict[str, Any] = {"title": {"title": 3}, "labels": {"labels": "x"}, "nope": {"nope": 1}}
    for field, body in (*wrong.items(), ("body", [])):
        answer = await api.ask("POST", "/sessions", body)
        assert answer.status_code == 400
        assert answer.json()["error"]["fields"]["field"] == field


@pytest.mark.parity("computeragent", 54)
async def test_a_body_that_is_no_json_is_refused(api: Api) -> None:
    for text in (b"{", b" ", b"nonsense", b'{"id": "a"', b"\xff"):
        headers = {"content-type": "application/json"}
        answer = await api.ask("POST", "/sessions", headers=headers, content=text)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_value")


@pytest.mark.parity("computeragent", 58)
async def test_a_deleted_session_is_gone(url: str) -> None:
    async with serving(settings(url)) as api:
        await api("PUT", "/sessions/one")
        await api("POST", "/sessions/one/messages?wait=true", {"content": "Hello"})
        receipt = await api("DELETE", "/sessions/one", status=200)
        assert receipt["removed"]["logs"] == 1
        await api.fails("session_not_found", "GET", "/sessions/one")
        await api.fails("session_not_found", "DELETE", "/sessions/one")
        anew = await api("PUT", "/sessions/one", status=201)
        assert anew["row"]["head"] == 2


@pytest.mark.parity("user-demand", 45)
async def test_sessions_are_listed_page_by_page(url: str) -> None:
    async with serving(settings(url)) as api:
        for n in range(5):
            await api("PUT", f"/sessions/s{n}", {"labels": ["odd"] if n % 2 else []})
        found, cursor = [], None
        while True:
            tail = f"&cursor={cursor}" if cursor else ""
            page = await api("GET", f"/sessions?limit=2&order=created{tail}")
            found += [row["session"] for row in page["items"]]
            if (cursor := page["cursor"]) is None:
                break
        assert found == ["s4", "s3", "s2", "s1", "s0"]
        odd = await api("GET", "/sessions?label=odd&order=created&total=true")
        assert [row["session"] for row in odd["items"]] == ["s3", "s1"]
        assert odd["total"] == 2


async def test_title_and_metadata_can_be_changed(api: Api) -> None:
    await api("PUT", "/sessions/one", {"metadata": {"a": 1, "b": 2}})
    change = {"title": "New", "metadata": {"c": [3]}, "drop": ["a"]}
    row = (await api("PATCH", "/sessions/one", change))["row"]
    assert (row["title"], row["metadata"]) == ("New", {"b": 2, "c": [3]})


@pytest.mark.parity("mastra-session", 168)
async def test_the_same_id_of_two_tenants_is_two_sessions(api: Api) -> None:
    one = await api("POST", "/sessions", {"id": "same"}, by="ann@acme")
    two = await api("POST", "/sessions", {"id": "same"}, by="ann@other")
    assert one["row"]["log"] != two["row"]["log"]
    await api("POST", "/sessions/same/messages?wait=true", {"content": "Hi"}, by="ann@acme")
    assert (await api("GET", "/sessions/same/transcript", by="ann@other"))["items"] == []


@pytest.mark.parity("computeragent", 81)
async def test_a_session_goes_on_after_a_restart(kept: str) -> None:
    async with serving(settings(kept)) as api:
        item = await api.ask_for_refund("one")
        before = await api("GET", "/sessions/one/events")
    async with serving(settings(kept)) as api:
        after = await api("GET", "/sessions/one/events")
        assert after["items"][: len(before["items"])] == before["items"]
        assert after["log"] == before["log"]
        await api("POST", f"/sessions/one/pending/{item}/approve")
        told = await api.until("/sessions/one/transcript", lambda t: len(t["items"]) == 3)
        assert told["items"][-1]["text"] == "Refunded."


@pytest.mark.parity("computeragent", 100)
async def test_twenty_sessions_at_once_do_not_mix(api: Api) -> None:
    async def talk(n: int) -> Any:
        made = await api("POST", "/sessions", {})
        said = {"content": f"Hello {n}."}
        await api("POST", f"/sessions/{made['id']}/messages?wait=true", said)
        return made["id"], await api("GET", f"/sessions/{made['id']}/transcript")

    found = await asyncio.gather(*(talk(n) for n in range(20)))
    assert len({id for id, _ in found}) == 20
    for n, (_, told) in enumerate(found):
        assert [m["text"] for m in told["items"]] == [f"Hello {n}.", "Good day."]


async def test_sessions_in_another_store_are_found_by_their_id_alone() -> None:
    stores = {"memory": "memory:", "archive": "memory:"}
    async with serving(settings(stores)) as api:
        wish = {"id": "kept", "store": {"kind": "archive"}}
        made = await api("POST", "/sessions", wish, status=201)
        assert made["store"] == "archive"
        assert (await api("GET", "/sessions/kept"))["store"] == "archive"
        assert (await api("GET", "/sessions?store=memory"))["items"] == []
        for path in ("/sessions", "/sessions?store=archive"):
            assert [row["session"] for row in (await api("GET", path))["items"]] == ["kept"]
        await api.fails("session_exists", "POST", "/sessions", {"id": "kept"})
        await api("PUT", "/sessions/plain")
        wish = {"id": "plain", "store": {"kind": "archive"}}
        await api.fails("session_exists", "POST", "/sessions", wish)
        await api("DELETE", "/sessions/kept")
        await api("POST", "/sessions", {"id": "kept"}, status=201)


@pytest.mark.parity("computeragent", "S2")
async def test_health_says_what_there_is_and_needs_no_key(api: Api) -> None:
    health = (await api.ask("GET", "/health", by=None)).json()
    assert health["engines"] == {"holdfast": ["shop"]}
    assert (health["status"], health["stores"]) == ("ok", ["memory"])
    assert health["version"]
    assert (await api.ask("GET", "/ready", by=None)).json() == {
        "ready": True,
        "parts": {"server": "ok", "store": "ok"},
    }
