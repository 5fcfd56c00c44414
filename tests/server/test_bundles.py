"""Bundles over HTTP: out of one server, into another, and into no wrong hands."""

from __future__ import annotations

import asyncio
import zipfile
from io import BytesIO
from typing import Any

import pytest

from .scene import Api, Tokens, serving, settings

ZIP = {"content-type": "application/zip"}


async def exported(api: Api, id: str, query: str = "", **more: Any) -> bytes:
    answer = await api.ask("GET", f"/sessions/{id}/bundle{query}", **more)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-bundle-id"].startswith("sha256:")
    return answer.content


async def test_a_session_goes_on_on_another_server(url: str) -> None:
    async with serving(settings()) as here, serving(settings(url)) as there:
        await here("PUT", "/sessions/one", {"title": "Orders"})
        await here("POST", "/sessions/one/messages?wait=true", {"content": "Hi"})
        bundle = await exported(here, "one", "?mode=local&purpose=copy")
        assert zipfile.ZipFile(BytesIO(bundle)).testzip() is None
        shown = await there("POST", "/bundles/validate", headers=ZIP, content=bundle)
        assert (shown["session"], shown["user"], shown["mode"]) == ("one", "ann", "local")
        first = await there("POST", "/bundles", headers=ZIP, content=bundle, status=201)
        again = await there("POST", "/bundles", headers=ZIP, content=bundle)
        assert (first["fresh"], again["fresh"]) == (True, False)
        told = await there("GET", "/sessions/one/transcript")
        assert [m["text"] for m in told["items"]] == ["Hi", "Good day."]
        done = await there("POST", "/sessions/one/messages?wait=true", {"content": "More"})
        assert done["status"] == "done"


async def test_a_session_is_moved_to_another_server_and_goes_on_there_alone(url: str) -> None:
    async with serving(settings(url)) as here, serving(settings()) as there:
        item = await here.ask_for_refund("one")
        path = "/sessions/one/bundle/move?to=there"
        moved = await here.ask("POST", path, key="m")
        assert moved.status_code == 200, moved.text
        assert (await here.ask("POST", path, key="m")).content == moved.content
        fields = await here.fails(
            "session_moved", "POST", "/sessions/one/messages", {"content": "Hi"}
        )
        assert fields["to"] == "there"
        events = (await here("GET", "/sessions/one/events"))["items"]
        assert [e["actor"] for e in events if e["kind"] == "session.moved"] == ["ann"]
        made = await there("POST", "/bundles", headers=ZIP, content=moved.content, status=201)
        assert made["session"] == "one"
        await there("POST", f"/sessions/one/pending/{item}/approve")
        told = await there.until("/sessions/one/transcript", lambda t: len(t["items"]) > 2)
        assert told["items"][-1]["text"] == "Refunded."


async def test_only_those_move_a_session_out_who_may_change_it(api: Api) -> None:
    await api("PUT", "/sessions/one")
    path = "/sessions/one/bundle/move"
    await api.fails("session_not_found", "POST", path, by="bob@acme")
    await api("POST", "/sessions/one/messages", {"content": "Slow"})
    await api.until("/sessions/one/status", lambda s: s["run"])
    await api.fails("lease_held", "POST", path)
    await api("POST", "/sessions/one/abort")
    await api.until("/sessions/one/status", lambda s: s["phase"] == "idle")
    await api("POST", "/sessions/one/messages?wait=true", {"content": "Hi"})
    async with serving(settings(auth=Tokens(("sessions:read", "bundles")))) as other:
        fields = await other.fails("forbidden", "POST", path)
        assert fields["scope"] == "sessions:write"


@pytest.mark.parity("computeragent", "S30")
async def test_a_bundle_that_comes_in_several_times_at_once_is_one_session(url: str) -> None:
    async with serving(settings()) as here, serving(settings(url)) as there:
        await here("PUT", "/sessions/one")
        await here("POST", "/sessions/one/messages?wait=true", {"content": "Hi"})
        bundle = await exported(here, "one", "?mode=local&purpose=copy")
        sent = [there("POST", "/bundles", headers=ZIP, content=bundle) for _ in range(4)]
        made = await asyncio.gather(*sent)
        assert [one["session"] for one in made] == ["one"] * 4
        again = await there("POST", "/bundles", headers=ZIP, content=bundle)
        assert (any(one["fresh"] for one in made), again["fresh"]) == (True, False)
        told = await there("GET", "/sessions/one/transcript")
        assert [m["text"] for m in told["items"]] == ["Hi", "Good day."]
        assert len((await there("GET", "/sessions"))["items"]) == 1


async def test_a_bundle_as_json_without_secrets(api: Api) -> None:
    await api("PUT", "/sessions/one")
    said = {"content": "My key is sk-canary0123456789abcdefghij"}
    await api("POST", "/sessions/one/messages?wait=true", said)
    answer = await api.ask("GET", "/sessions/one/bundle?form=json")
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.json()["_type"] == "holdfast_bundle"
    assert "sk-canary" not in answer.text


async def test_no_bundle_of_others_is_given_out_or_taken_in(api: Api) -> None:
    await api("PUT", "/sessions/anns", by="ann@acme")
    for by in ("bob@acme", "ann@other"):
        await api.fails("session_not_found", "GET", "/sessions/anns/bundle", by=by)
    bundle = await exported(api, "anns", "?mode=local&purpose=copy", by="ann@acme")
    ask: Any = {"headers": ZIP, "content": bundle}
    await api.fails("forbidden", "POST", "/bundles?session=mine", by="bob@acme", **ask)
    await api.fails("session_not_found", "GET", "/sessions/mine", by="ann@acme")
    boss = "boss@acme+sessions:all"
    made = await api("POST", "/bundles?session=copied", by=boss, **ask)
    assert made["session"] == "copied"
    # It is Ann's wherever it goes, and in another tenant nobody's of this one.
    assert (await api("GET", "/sessions/copied", by="ann@acme"))["row"]["user"] == "ann"
    await api("POST", "/bundles", by="ann@other", **ask)
    assert (await api("GET", "/sessions/anns", by="ann@other"))["row"]["tenant"] == "other"
    # Nor is a session replaced by one that comes in under its id.
    await api("PUT", "/sessions/anns", by="ann@third")
    await api.fails("session_exists", "POST", "/bundles", by="ann@third", **ask)


async def test_what_is_no_bundle_is_refused_with_its_faults(api: Api) -> None:
    for data in (b"", b"nonsense", b"{}", b"PK\x03\x04" + b"\0" * 100, b'{"_type":"x"}'):
        answer = await api.ask("POST", "/bundles", headers=ZIP, content=data)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["code"] in ("invalid_bundle", "invalid_value")
    assert (await api("GET", "/sessions"))["items"] == []
    await api.fails("invalid_value", "POST", "/bundles?session=a%2Fb", headers=ZIP, content=b"x")


async def test_what_was_allowed_elsewhere_is_brought_by_those_who_may_decide() -> None:
    async with serving(
        settings(auth=Tokens(("sessions:read", "sessions:write", "bundles")))
    ) as api:
        await api("PUT", "/sessions/one")
        rule = {"tool": "refund", "rule": "allow"}
        await api("PUT", "/sessions/one/permissions", rule, by="ann@acme+pending:decide")
        path = "/v1/sessions/one/bundle?mode=local&purpose=copy"
        headers = {"authorization": "Bearer ann@acme"}
        bundle = (await api.client.get(path, headers=headers)).content
        take = "/bundles?session=two"
        fields = await api.fails("forbidden", "POST", take, content=bundle)
        assert fields["scope"] == "pending:decide"
        await api.fails("session_not_found", "GET", "/sessions/two")
        await api("POST", f"{take}&purpose=read", content=bundle)
        by = "ann@acme+pending:decide"
        await api("POST", "/bundles?session=three", content=bundle, by=by)
        assert (await api("GET", "/sessions/three/permissions"))["tools"] == {"refund": "allow"}
    async with serving(settings(two_person=True)) as api:
        fields = await api.fails("forbidden", "POST", take, content=bundle)
        assert fields["scope"] == "admin"


async def test_an_import_that_failed_keeps_no_id_from_others() -> None:
    async with serving(settings({"memory": "memory:", "other": "memory:"})) as api:
        await api("PUT", "/sessions/one")
        await api("POST", "/sessions/one/messages?wait=true", {"content": "Mail ann@shop.example"})
        headers = {"authorization": "Bearer ann@acme"}
        answer = await api.client.get("/v1/sessions/one/bundle", headers=headers)
        take = "/bundles?session=two&store=other"
        by = "ann@acme+sessions:all"
        refused = await api.ask("POST", take, content=answer.content, by=by)
        assert not refused.is_success
        assert (await api("POST", "/sessions", {"id": "two"}))["store"] == "memory"
