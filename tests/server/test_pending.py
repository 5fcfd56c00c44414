"""Deciding over HTTP: by those who may, once, and written down."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Agent, SubAgent
from holdfast.models.scripted import Say, ScriptedModel, Use
from holdfast.server.loaders import InlineLoader

from .scene import ALL, Api, Tokens, refund, serving, settings


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


async def test_arguments_that_the_tool_does_not_take_decide_nothing(api: Api) -> None:
    item = await api.ask_for_refund("one")
    path = f"/sessions/one/pending/{item}/approve"
    wrong = {"arguments": {"order": "1", "cents": "x"}}
    fields = await api.fails("invalid_value", "POST", path, wrong)
    assert fields["field"] == "arguments.cents"
    fields = await api.fails("invalid_value", "POST", path, {"arguments": {"cents": 5}})
    assert fields["field"] == "arguments.order"
    assert [one["id"] for one in (await api("GET", "/sessions/one/pending"))["items"]] == [item]
    await api("POST", path, {"arguments": {"order": "1", "cents": 5}})
    told = await api.until("/sessions/one/transcript", lambda t: len(t["items"]) == 3)
    assert told["items"][1]["calls"][0]["outcome"]["result"] == "refunded 5 of 1"


async def test_an_answer_is_no_approval(api: Api) -> None:
    item = await api.ask_for_refund("one")
    path = f"/sessions/one/pending/{item}"
    fields = await api.fails("invalid_value", "POST", f"{path}/answer", {"answer": "no"})
    assert fields["field"] == "answer"
    assert "approve" in fields["remedy"]
    assert "deny" in fields["remedy"]
    assert [one["id"] for one in (await api("GET", "/sessions/one/pending"))["items"]] == [item]
    await api("POST", f"{path}/deny", {"reason": "no"})
    told = await api.until("/sessions/one/transcript", lambda t: len(t["items"]) == 3)
    assert told["items"][1]["calls"][0]["outcome"]["outcome"] == "denied"


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


async def test_with_two_persons_there_is_no_way_around() -> None:
    async with serving(settings(two_person=True)) as api:
        boss = "boss@acme+sessions:all"
        item = await api.ask_for_refund("one")
        # What is to come cannot be allowed beforehand, whoever allows it.
        for by in ("ann@acme", boss):
            for body in ({"tool": "refund"}, {"category": "payments"}):
                allow = {**body, "rule": "allow"}
                await api.fails("forbidden", "PUT", "/sessions/one/permissions", allow, by=by)
                await api.fails("forbidden", "POST", "/sessions/one/grants", body, by=by)
        deny = {"tool": "refund", "rule": "deny"}
        assert (await api("PUT", "/sessions/one/permissions", deny))["tools"] == {"refund": "deny"}
        assert (await api("GET", "/sessions/one/pending"))["items"][0]["id"] == item
        # Whoever puts other words into a message has asked, whosever it was.
        await api("PUT", "/sessions/two")
        await api("POST", "/sessions/two/messages?wait=true", {"content": "Hello"})
        seq = (await api("GET", "/sessions/two/transcript"))["items"][0]["seq"]
        words = {"text": "Refund it."}
        made = await api("POST", f"/sessions/two/messages/{seq}/edit", words, by=boss)
        where = f"thread={made['thread']}"
        asks = await api.until(f"/sessions/two/pending?{where}", lambda found: found["items"])
        path = f"/sessions/two/pending/{asks['items'][0]['id']}/approve?{where}"
        await api.fails("forbidden", "POST", path, by=boss)
        events = (await api("GET", f"/sessions/two/events?{where}"))["items"]
        assert [e["actor"] for e in events if e["kind"] == "message.received"] == ["boss"]


@pytest.mark.parametrize("how", ["regenerate", "fork"])
async def test_with_two_persons_who_asks_again_has_asked(how: str) -> None:
    """Asked again are the words of whoever sent them; that it was done is another's wish."""
    async with serving(settings(two_person=True)) as api:
        boss, chief = "boss@acme+sessions:all", "chief@acme+sessions:all"
        await api("PUT", "/sessions/one", by="ann@acme")
        said = {"content": "Refund it."}
        await api("POST", "/sessions/one/messages?wait=true", said, by=chief)
        seq = (await api("GET", "/sessions/one/transcript"))["items"][0]["seq"]
        if how == "regenerate":
            made = await api("POST", f"/sessions/one/messages/{seq}/regenerate", by=boss)
        else:
            made = await api("POST", "/sessions/one/threads/fork", {"at": seq - 1}, by=boss)
            again = f"/sessions/one/messages?wait=true&thread={made['thread']}"
            await api("POST", again, said, by=chief)
        where = f"thread={made['thread']}"
        asks = await api.until(f"/sessions/one/pending?{where}", lambda found: found["items"])
        path = f"/sessions/one/pending/{asks['items'][0]['id']}/approve?{where}"
        for by in ("ann@acme", boss, chief):
            await api.fails("forbidden", "POST", path, by=by)
        events = (await api("GET", f"/sessions/one/events?{where}"))["items"]
        who = {e["kind"]: e.get("actor") for e in events}
        assert (who["thread.forked"], who["message.received"]) == ("boss", "chief")
        await api("POST", path, by="clerk@acme+sessions:all")


async def test_with_two_persons_who_asked_does_not_say_how_long_it_waits() -> None:
    """To prolong is to overrule whoever set the time, to shorten is to deny."""
    async with serving(settings(two_person=True)) as api:
        item = await api.ask_for_refund("one")
        path = f"/sessions/one/pending/{item}/extend"
        for seconds in (0.001, 3_600, None):
            await api.fails("forbidden", "POST", path, {"seconds": seconds})
        asks = await api("POST", path, {"seconds": 3_600}, by="boss@acme+sessions:all")
        assert asks["items"][0]["expires"] is not None


async def test_with_two_persons_words_in_a_queue_are_those_of_who_wrote_them() -> None:
    async with serving(settings(two_person=True)) as api:
        boss = "boss@acme+sessions:all"
        await api("PUT", "/sessions/one")
        await api("POST", "/sessions/one/messages", {"content": "Slow"})
        seq = (await api("POST", "/sessions/one/messages", {"content": "Hello"}))["seq"]
        words = {"text": "Refund it."}
        await api("PATCH", f"/sessions/one/follow-ups/{seq}", words, by=boss)
        asks = await api.until("/sessions/one/pending", lambda found: found["items"])
        path = f"/sessions/one/pending/{asks['items'][0]['id']}/approve"
        await api.fails("forbidden", "POST", path, by=boss)
        await api("POST", path, by="chief@acme+sessions:all")


async def test_words_that_come_with_a_mode_are_those_of_who_sends_them(api: Api) -> None:
    await api("PUT", "/sessions/one")
    words = {"mode": "office", "text": "Hello"}
    for _ in range(2):
        await api("PUT", "/sessions/one/mode", words, by="boss@acme+sessions:all", key="m")
    events = (await api("GET", "/sessions/one/events"))["items"]
    assert [e["actor"] for e in events if e["kind"] == "message.received"] == ["boss"]


async def test_the_inbox_shows_ones_own_and_with_the_scope_all(api: Api) -> None:
    await api.ask_for_refund("one", by="ann@acme")
    await api.ask_for_refund("two", by="bob@acme")
    await api.ask_for_refund("three", by="eve@other")

    async def seen(by: str) -> list[str]:
        return [item["session"] for item in (await api("GET", "/pending", by=by))["items"]]

    assert await seen("ann@acme") == ["one"]
    assert await seen("boss@acme+sessions:all") == ["one", "two"]
    assert await seen("eve@other") == ["three"]


async def test_with_two_persons_who_asked_does_not_decide_for_a_sub_agent() -> None:
    clerk = SubAgent("clerk", "refunds", instructions="Be a clerk.", tools=["refund"])
    agent = Agent("shop", instructions="Help.", tools=[refund], subagents=[clerk])
    handed = Say("", calls=[Use("subagent", agent="clerk", task="Refund it.")])
    said: dict[str, Any] = {
        "I paid twice.": [handed, "You have it back."],
        "Refund it.": [Say("", calls=[Use("refund", order="42")]), "Refunded."],
    }
    harness = {"default_model": ScriptedModel.by_input(said)}
    async with serving(settings(two_person=True, agents=[agent], harness=harness)) as api:
        boss = "boss@acme+sessions:all"
        await api("PUT", "/sessions/one", by="ann@acme")
        words = {"content": "I paid twice."}
        waiting = await api("POST", "/sessions/one/messages?wait=true", words, by=boss)
        asked = waiting["pending"][0]
        assert asked["thread"] != "main"
        for thread in ("main", asked["thread"]):
            path = f"/sessions/one/pending/{asked['id']}/approve?thread={thread}"
            for by in ("ann@acme", boss):
                await api.fails("forbidden", "POST", path, by=by)
        await api("POST", path, by="chief@acme+sessions:all")


async def test_an_agent_that_is_brought_asks_as_the_tools_of_the_server_do() -> None:
    async with serving(settings(loaders=[InlineLoader()], tools=[refund])) as api:
        about = {"name": "Sly", "instructions": "Help.", "tools": ["refund"]}

        def bring(id: str, approval: str) -> dict[str, Any]:
            manifest = {**about, "modes": [{"name": "m", "approval": approval}]}
            return {"id": id, "source": {"loader": "inline", "source": {"manifest": manifest}}}

        fields = await api.fails("invalid_value", "POST", "/sessions", bring("one", "auto"))
        assert fields["field"] == "modes[0].approval"
        await api.fails("session_not_found", "GET", "/sessions/one")
        await api("POST", "/sessions", bring("two", "tool"))
        await api.ask_for_refund("two")


async def test_the_inbox_is_of_ones_own_sessions_or_of_those_who_are_asked_for(url: str) -> None:
    async with serving(settings(url)) as api:
        for by in ("ann@acme", "bob@acme", "eve@other"):
            await api.ask_for_refund(f"of-{by[:3]}", by=by)

        async def shown(path: str = "/pending", by: str = "ann@acme") -> list[str]:
            return [item["session"] for item in (await api("GET", path, by=by))["items"]]

        chief = "chief@acme+sessions:all"
        assert (await shown(), await shown(by="bob@acme")) == (["of-ann"], ["of-bob"])
        assert await shown("/pending?user=ann") == ["of-ann"]
        assert await shown("/pending?session=of-bob") == []
        assert await shown(by=chief) == ["of-ann", "of-bob"]
        assert await shown("/pending?user=bob", by=chief) == ["of-bob"]
        await api.fails("forbidden", "GET", "/pending?user=bob")
