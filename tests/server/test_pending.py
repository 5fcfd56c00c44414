"""Deciding over HTTP: by those who may, once, and written down."""

from __future__ import annotations

import asyncio

import pytest

from .scene import ALL, Api, Tokens, serving, settings


@pytest.mark.parity("computeragent", 82, 86)
async def test_an_approval_lets_the_call_be_made_as_it_was_asked(url: str) -> None:
    async with serving(settings(url)) as api:
        item = await api.ask_for_refund("one")
        waiting = (await api("GET", "/sessions/one/pending"))["items"]
        assert [(one["id"], one["tool"], one["arguments"]) for one in waiting] == [
            (item, "refund", {"order": "42"})
        ]
        decision = await api("POST", f"/sessions/one/pending/{item}/approve", {"reason": "ok"})
        assert (decision["outcome"], decision["by"]) == ("approved", "ann")
        told = await api.until("/sessions/one/transcript", lambda t: len(t["items"]) == 3)
        outcome = told["items"][1]["calls"][0]["outcome"]
        assert outcome["result"] == "refunded 100 of 42"
        events = (await api("GET", "/sessions/one/events"))["items"]
        settled = next(e for e in events if e["kind"] == "pending.settled")
        assert (settled["actor"], settled["data"]["channel"]) == ("ann", "http")
        assert settled["at"] > 0


@pytest.mark.parity("computeragent", 83)
async def test_a_call_can_be_approved_with_other_arguments(api: Api) -> None:
    item = await api.ask_for_refund("one")
    other = {"arguments": {"order": "43", "cents": 5}}
    await api("POST", f"/sessions/one/pending/{item}/approve", other)
    told = await api.until("/sessions/one/transcript", lambda t: len(t["items"]) == 3)
    assert told["items"][1]["calls"][0]["outcome"]["result"] == "refunded 5 of 43"


@pytest.mark.parity("computeragent", 84)
async def test_a_denial_reaches_the_model_with_its_reason_and_the_run_goes_on(api: Api) -> None:
    item = await api.ask_for_refund("one")
    await api("POST", f"/sessions/one/pending/{item}/deny", {"reason": "too much"})
    told = await api.until("/sessions/one/transcript", lambda t: len(t["items"]) == 3)
    outcome = told["items"][1]["calls"][0]["outcome"]
    assert outcome["outcome"] == "denied"
    assert "too much" in str(outcome)
    assert told["items"][2]["text"] == "Refunded."


@pytest.mark.parity("computeragent", 85)
async def test_an_item_is_decided_once_and_an_unknown_one_not_at_all(api: Api) -> None:
    item = await api.ask_for_refund("one")
    path = "/sessions/one/pending"
    fields = await api.fails("not_pending", "POST", f"{path}/nothing/approve")
    assert fields["pending"] == [item]
    verbs = ["approve", "deny"] * 4
    answers = await asyncio.gather(*(api.ask("POST", f"{path}/{item}/{v}") for v in verbs))
    assert sorted(a.status_code for a in answers) == [200, *[409] * 7]
    fields = await api.fails("already_decided", "POST", f"{path}/{item}/approve")
    assert fields["by"] == "ann"


@pytest.mark.parity("computeragent", 88)
async def test_stopping_a_run_that_waits_settles_what_it_asked(api: Api) -> None:
    item = await api.ask_for_refund("one")
    await api("POST", "/sessions/one/abort")
    await api.until("/sessions/one/status", lambda s: s["run"] is None)
    assert (await api("GET", "/sessions/one/pending"))["items"] == []
    await api.fails("already_decided", "POST", f"/sessions/one/pending/{item}/approve")


@pytest.mark.parity("computeragent", 87)
async def test_an_item_can_be_given_a_time_and_then_expires_into_its_own_outcome(api: Api) -> None:
    item = await api.ask_for_refund("one")
    path = f"/sessions/one/pending/{item}"
    (left,) = (await api("POST", f"{path}/extend", {"seconds": 1000}))["items"]
    assert left["expires"] is not None
    (left,) = (await api("POST", f"{path}/extend", {"seconds": None}))["items"]
    assert left["expires"] is None
    await api("POST", f"{path}/extend", {"seconds": 0.05})
    await api.until("/sessions/one/pending", lambda p: not p["items"])
    fields = await api.fails("already_decided", "POST", f"{path}/approve")
    assert fields["outcome"] == "expired"


async def test_deciding_needs_its_own_scope() -> None:
    scopes = tuple(scope for scope in ALL if scope != "pending:decide")
    async with serving(settings(auth=Tokens(scopes))) as api:
        item = await api.ask_for_refund("one")
        for verb in ("approve", "deny", "answer", "extend"):
            fields = await api.fails("forbidden", "POST", f"/sessions/one/pending/{item}/{verb}")
            assert fields["scope"] == "pending:decide"
        rule = {"tool": "refund", "rule": "allow"}
        await api.fails("forbidden", "PUT", "/sessions/one/permissions", rule)
        await api.fails("forbidden", "POST", "/sessions/one/grants", {"tool": "refund"})
        assert len((await api("GET", "/sessions/one/pending"))["items"]) == 1


async def test_with_two_persons_who_asked_does_not_decide() -> None:
    async with serving(settings(two_person=True)) as api:
        item = await api.ask_for_refund("one")
        path = f"/sessions/one/pending/{item}/approve"
        await api.fails("forbidden", "POST", path)
        # Somebody who may see all, but has sent the message, is a requester as well.
        boss = "boss@acme+sessions:all"
        said = {"content": "Refund it."}
        await api("PUT", "/sessions/two", by="ann@acme")
        waiting = await api("POST", "/sessions/two/messages?wait=true", said, by=boss)
        asked = waiting["pending"][0]["id"]
        await api.fails("forbidden", "POST", f"/sessions/two/pending/{asked}/approve", by=boss)
        decision = await api("POST", path, by=boss)
        assert decision["by"] == "boss"


async def test_the_inbox_shows_ones_own_and_with_the_scope_all(api: Api) -> None:
    await api.ask_for_refund("one", by="ann@acme")
    await api.ask_for_refund("two", by="bob@acme")
    await api.ask_for_refund("three", by="eve@other")

    async def seen(by: str) -> list[str]:
        return [item["session"] for item in (await api("GET", "/pending", by=by))["items"]]

    assert await seen("ann@acme") == ["one"]
    assert await seen("boss@acme+sessions:all") == ["one", "two"]
    assert await seen("eve@other") == ["three"]
