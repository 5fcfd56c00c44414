"""Talking to a session over HTTP: messages, steering, follow-ups, stopping."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import connect
from holdfast.harness.live.decisions import settle_pending
from holdfast.models.port import ModelCall
from holdfast.models.scripted import Fail, ScriptedModel
from holdfast.server import ServerLimits

from .scene import Api, model, serving, settings


@pytest.mark.parity("computeragent", 63, 64, 65, 66)
@pytest.mark.parity("user-demand", 20)
async def test_a_message_is_in_the_log_before_it_is_acknowledged(url: str) -> None:
    async with serving(settings(url)) as api:
        await api("PUT", "/sessions/one")
        for n in range(3):  # also after all before were answered
            said = await api("POST", "/sessions/one/messages", {"content": f"Hi {n}"}, status=202)
            page = await api("GET", f"/sessions/one/events?after={said['cursor']}")
            first = page["items"][0]
            assert (first["seq"], first["kind"]) == (said["seq"], "message.received")
            assert (first["data"]["text"], first["actor"]) == (f"Hi {n}", "ann")
            await api.until("/sessions/one/status", lambda s: s["phase"] == "idle")
        told = await api("GET", "/sessions/one/transcript?limit=2")
        assert [m["text"] for m in told["items"]] == ["Hi 2", "Good day."]


async def test_waiting_gives_how_the_message_stands(api: Api) -> None:
    await api("PUT", "/sessions/one")
    done = await api("POST", "/sessions/one/messages?wait=true", {"content": "Hi"}, status=200)
    assert (done["status"], done["text"]) == ("done", "Good day.")
    assert done["metrics"]["usage"]["input_tokens"] == 7


async def test_who_waits_too_long_is_told_where_to_look() -> None:
    slow = settings(limits=ServerLimits(wait_seconds=0.05), harness={"default_model": model(0.5)})
    async with serving(slow) as api:
        await api("PUT", "/sessions/one")
        said = {"content": "Slow"}
        answer = await api("POST", "/sessions/one/messages?wait=true", said, status=202)
        assert answer["seq"] == 3
        await api("POST", "/sessions/one/abort")


@pytest.mark.parity("mastra-session", 167)
@pytest.mark.parity("computeragent", 98)
async def test_a_run_that_fails_was_accepted_and_tells_why() -> None:
    broken = ScriptedModel([Fail(ValueError("no"))], per_turn=True)
    async with serving(settings(harness={"default_model": broken})) as api:
        await api("PUT", "/sessions/one")
        await api("POST", "/sessions/one/messages", {"content": "Hi"}, status=202)
        status = await api.until("/sessions/one/status", lambda s: s["error"])
        assert status["error"] == "model_failed"
        page = await api("GET", "/sessions/one/events")
        assert page["items"][-1]["kind"] == "run.finished"
        assert page["items"][-1]["data"]["status"] == "failed"


@pytest.mark.parity("computeragent", 99)
async def test_a_session_that_fails_leaves_others_alone() -> None:
    def step(call: ModelCall) -> Any:
        said = str(call.messages[-1])
        return Fail(ValueError("no")) if "bad" in said else "Good day."

    both = ScriptedModel([step], per_turn=True)
    async with serving(settings(harness={"default_model": both})) as api:
        for id in ("good", "bad"):
            await api("PUT", f"/sessions/{id}")
        asks = [
            api("POST", f"/sessions/{id}/messages?wait=true", {"content": id})
            for id in ("good", "bad")
        ]
        good, bad = await asyncio.gather(*asks)
        assert (good["status"], bad["status"]) == ("done", "failed")


@pytest.mark.parity("computeragent", 90, 92)
@pytest.mark.parity("user-demand", 21)
async def test_a_stop_keeps_what_was_said(api: Api) -> None:
    await api("PUT", "/sessions/one")
    await api("POST", "/sessions/one/messages", {"content": "Slow"})
    await api.until("/sessions/one/display", lambda d: d.get("message", {}).get("text"))
    await api("POST", "/sessions/one/abort", {"reason": "enough"})
    await api.until("/sessions/one/status", lambda s: s["run"] is None)
    events = (await api("GET", "/sessions/one/events"))["items"]
    stopped = [e for e in events if e["kind"] == "message.interrupted"]
    assert stopped[0]["data"]["text"].startswith("one")
    assert events[-1]["data"]["status"] == "aborted"
    asked = next(e for e in events if e["kind"] == "abort.requested")
    assert (asked["actor"], asked["data"]["reason"]) == ("ann", "enough")
    await api("POST", "/sessions/one/abort")  # nothing to stop: nothing happens
    assert (await api("GET", "/sessions/one"))["row"]["head"] == len(events)


@pytest.mark.parity("computeragent", 91)
async def test_a_stop_before_anything_began_keeps_nothing_from_beginning(api: Api) -> None:
    await api("PUT", "/sessions/one")
    status = await api("POST", "/sessions/one/abort")
    assert (status["run"], status["phase"]) == (None, "idle")
    events = (await api("GET", "/sessions/one/events"))["items"]
    assert "run.started" not in [e["kind"] for e in events]


@pytest.mark.parity("user-demand", 68)
async def test_messages_that_wait_can_be_listed_edited_moved_and_removed(api: Api) -> None:
    await api.ask_for_refund("one")
    path = "/sessions/one/follow-ups"
    seqs = [(await api("POST", path, {"content": f"m{n}"}))["seq"] for n in range(3)]
    listed = (await api("GET", path))["items"]
    assert [(one["seq"], one["text"]) for one in listed] == list(
        zip(seqs, ["m0", "m1", "m2"], strict=True)
    )
    await api("PATCH", f"{path}/{seqs[1]}", {"text": "other"})
    await api("PUT", path, {"order": [seqs[2]]})
    left = (await api("DELETE", f"{path}/{seqs[0]}"))["items"]
    assert [one["text"] for one in left] == ["m2", "other"]
    fields = await api.fails("invalid_value", "DELETE", f"{path}/{seqs[0]}")
    assert "is not in the queue" in fields["problem"]
    busy = {"content": "now", "busy": "reject"}
    await api.fails("session_busy", "POST", "/sessions/one/messages", busy)


@pytest.mark.parity("user-demand", 68)
async def test_steering_goes_before_what_waits(api: Api) -> None:
    item = await api.ask_for_refund("one")
    later = await api("POST", "/sessions/one/follow-ups", {"content": "later"})
    now = await api("POST", "/sessions/one/steer", {"content": "now"})
    await api.until("/sessions/one/status", lambda s: s["phase"] == "idle")
    events = (await api("GET", "/sessions/one/events"))["items"]
    read = [seq for event in events for seq in event["data"].get("inputs", ())]
    assert read.index(now["seq"]) < read.index(later["seq"])
    decided = await api.fails("already_decided", "POST", f"/sessions/one/pending/{item}/approve")
    assert decided["outcome"] == "superseded"


@pytest.mark.parity("mastra-session", 175)
async def test_attachments_are_counted_and_measured() -> None:
    few = ServerLimits(attachments=2, attachment_bytes=10, rate=None)
    async with serving(settings(limits=few)) as api:
        await api("PUT", "/sessions/one")
        part = {"data": base64.b64encode(b"hello").decode(), "media_type": "text/plain"}
        large = {"data": base64.b64encode(b"x" * 11).decode(), "media_type": "text/plain"}
        path = "/sessions/one/messages"
        for content, limit in (([part] * 3, 2), ([large], 10)):
            fields = await api.fails("invalid_value", "POST", path, {"content": content})
            assert (fields["field"], fields["limit"]) == ("content", limit)
        assert (await api("GET", "/sessions/one"))["row"]["head"] == 2
        await api("POST", path, {"content": ["Look:", part]}, status=202)
        received = (await api("GET", "/sessions/one/events"))["items"][2]
        assert received["data"]["text"] == "Look:"
        assert received["data"]["parts"][0]["size"] == 5


async def test_a_message_can_be_asked_again_and_edited_in_a_thread_of_its_own(api: Api) -> None:
    await api("PUT", "/sessions/one")
    seq = (await api("POST", "/sessions/one/messages", {"content": "Hi"}))["seq"]
    await api.until("/sessions/one/status", lambda s: s["phase"] == "idle")
    edited = await api("POST", f"/sessions/one/messages/{seq}/edit", {"text": "Hello"})
    told = await api.until(
        f"/sessions/one/transcript?thread={edited['thread']}", lambda t: len(t["items"]) == 2
    )
    assert [m["text"] for m in told["items"]] == ["Hello", "Good day."]
    again = await api("POST", f"/sessions/one/messages/{seq}/regenerate")
    assert again["thread"] not in ("main", edited["thread"])
    assert again["row"]["parent"]["thread"] == "main"


async def test_a_message_sent_again_is_driven_on_when_its_item_was_settled_meanwhile(
    tmp_path: Path,
) -> None:
    url = f"sqlite:{tmp_path / 's.db'}"
    message, path = {"content": "Refund"}, "/sessions/one/messages?wait=true"
    async with serving(settings(url)) as api:
        await api("PUT", "/sessions/one")
        [item] = (await api("POST", path, message, status=200, key="k"))["pending"]
    async with connect(url) as store:
        await settle_pending(
            store, holdfast.key("one", tenant="acme"), item["id"], "approved", actor="bob"
        )
    async with serving(settings(url, harness={"recovery": "leave"})) as api:
        done = await api("POST", path, message, status=200, key="k")
        assert (done["status"], done["text"], done["pending"]) == ("done", "Refunded.", [])


async def test_a_conversation_is_rewound_once_for_a_repeated_request(api: Api) -> None:
    await api("PUT", "/sessions/one")
    path = "/sessions/one/rewind"
    for n in range(2):
        await api("POST", "/sessions/one/messages?wait=true", {"content": f"Hi {n}"}, status=200)
    first = (await api("GET", "/sessions/one/transcript"))["items"][1]["seq"]
    done = await api("POST", path, {"to": first}, status=200, key="k1")
    assert (done["session"], done["thread"], done["to"]) == ("one", "main", first)
    told = await api("GET", "/sessions/one/transcript")
    assert [m["text"] for m in told["items"]] == ["Hi 0", "Good day."]
    assert await api("POST", path, {"to": first}, status=200, key="k1") == done
    page = await api("GET", f"/sessions/one/events?after={done['seq'] - 1}")
    assert [(e["kind"], e["actor"]) for e in page["items"]] == [("thread.rewound", "ann")]


async def test_a_rewind_is_refused_while_an_item_is_pending(api: Api) -> None:
    await api.ask_for_refund("one")
    refused = await api("POST", "/sessions/one/rewind", {"to": 0}, status=409)
    assert refused["error"]["code"] == "session_busy"
    assert "abort the run first" in refused["error"]["message"]
    await api("POST", "/sessions/one/rewind", {"to": -1}, status=400)
    await api("POST", "/sessions/one/rewind", {}, status=400)
    await api("POST", "/sessions/one/abort")
    await api.until("/sessions/one/status", lambda s: s["phase"] == "idle")
    await api("POST", "/sessions/one/rewind", {"to": 9_999}, status=400)
    await api("POST", "/sessions/one/rewind", {"to": 0}, status=200)
    assert (await api("GET", "/sessions/one/transcript"))["items"] == []
