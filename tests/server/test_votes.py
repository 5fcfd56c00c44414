"""Calls to which several people must agree, over HTTP: different principals, none of them whoever
asked, and all of it written down."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Agent, tool
from holdfast.models.scripted import Say, ScriptedModel, Use

from .scene import Api, serving, settings

ANN, BOB, CAT = (f"{name}@acme+sessions:all" for name in ("ann", "bob", "cat"))


@tool(approval="ask", approvals=2)
def wire(amount: int) -> str:
    """Send money."""
    return f"sent {amount}"


def bank(**more: Any) -> Any:
    use = Say("", calls=[Use("wire", amount=9_000)])
    model = ScriptedModel([use, "It is sent."], per_turn=True)
    agent = Agent("bank", instructions="Help.", tools=[wire])
    return settings(agents=[agent], harness={"default_model": model}, **more)


async def waiting(api: Api) -> str:
    item: str = await api.ask_for_refund("one", by=ANN)
    return f"/sessions/one/pending/{item}"


@pytest.mark.parity("user-demand", 19)
async def test_two_who_did_not_ask_agree() -> None:
    async with serving(bank(two_person=True)) as api:
        path = await waiting(api)
        (listed,) = (await api("GET", "/pending", by=CAT))["items"]
        assert listed["approvals"] == 2
        await api.fails("forbidden", "POST", f"{path}/approve", by=ANN)
        first = await api("POST", f"{path}/approve", {"reason": "known"}, by=BOB)
        assert (first["outcome"], first["by"], first["left"]) == ("voted", "bob", 1)
        twice = await api.fails("already_decided", "POST", f"{path}/approve", by=BOB)
        assert (twice["outcome"], twice["by"]) == ("voted", "bob")
        (item,) = (await api("GET", "/sessions/one/pending", by=BOB))["items"]
        assert (item["approvals"], item["approved_by"]) == (2, ["bob"])
        second = await api("POST", f"{path}/approve", by=CAT)
        assert (second["outcome"], second["left"]) == ("approved", 0)
        await api.until(
            "/sessions/one/transcript", lambda found: "It is sent." in str(found), by=ANN
        )
        events = (await api("GET", "/sessions/one/events?limit=100", by=ANN))["items"]
        votes = [e for e in events if e["kind"] == "pending.voted"]
        assert [(e["actor"], e["data"]["channel"]) for e in votes] == [
            ("bob", "http"),
            ("cat", "http"),
        ]
        assert votes[0]["data"]["reason"] == "known"
        assert all(e["at"] > 0 for e in votes)


async def test_a_request_that_is_sent_again_counts_once() -> None:
    async with serving(bank()) as api:
        path = await waiting(api)
        same = {"idempotency-key": "k1"}
        answers = [await api.ask("POST", f"{path}/approve", headers=same, by=BOB) for _ in "123"]
        assert [one.status_code for one in answers] == [200, 200, 200]
        assert {one.json()["outcome"] for one in answers} == {"voted"}
        changed = {"arguments": {"amount": 1}}
        fields = await api.fails("invalid_value", "POST", f"{path}/approve", changed, by=CAT)
        assert fields["field"] == "arguments"
        (item,) = (await api("GET", "/sessions/one/pending", by=BOB))["items"]
        assert item["approved_by"] == ["bob"]
