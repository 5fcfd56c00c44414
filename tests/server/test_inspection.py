"""What a client may see of a session besides its conversation: earlier states, the audit, a check
of its integrity, its driver, its attachments, and which lists have changed."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import Agent, NewEvent
from holdfast.events import Key
from holdfast.server.app import service_of
from holdfast.server.past_displays import STEP
from holdfast.server.streams import list_changes

from .scene import Api, serving, settings

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def conversation(api: Api, id: str = "one") -> list[dict[str, Any]]:
    """A session with a message, a refund that was approved, and the answer; its events."""
    item = await api.ask_for_refund(id)
    await api("POST", f"/sessions/{id}/pending/{item}/approve", {"reason": "fine"})
    await api.until(f"/sessions/{id}/status", lambda found: found["phase"] == "idle")
    found: list[dict[str, Any]] = (await api("GET", f"/sessions/{id}/events?limit=1000"))["items"]
    return found


async def test_events_are_read_from_the_end_by_kind_and_without_large_data(api: Api) -> None:
    events = await conversation(api)
    seqs = [event["seq"] for event in events]
    page = await api("GET", "/sessions/one/events?reverse=true&limit=3")
    assert [event["seq"] for event in page["items"]] == seqs[:-4:-1]
    assert page["cursor"].endswith(f".{seqs[-1]}")
    rest = await api("GET", f"/sessions/one/events?reverse=true&before={page['before']}")
    assert [event["seq"] for event in rest["items"]] == seqs[-4::-1]
    assert rest["before"] is None
    some = await api("GET", "/sessions/one/events?kind=tool.started&kind=tool.finished")
    assert [event["kind"] for event in some["items"]] == ["tool.started", "tool.finished"]
    assert some["cursor"].endswith(f".{seqs[-1]}")
    between = await api("GET", "/sessions/one/events?after=1&before=4")
    assert [event["seq"] for event in between["items"]] == [2, 3]
    await api("POST", "/sessions/one/messages?wait=true", {"content": "x" * 80_000})
    large = await api("GET", "/sessions/one/events?reverse=true&kind=message.received&inline=false")
    assert large["items"][0]["data"]["apart"]["size"] > 80_000


async def test_state_and_conversation_are_shown_as_of_any_event(api: Api) -> None:
    events = await conversation(api)
    opened = next(event["seq"] for event in events if event["kind"] == "pending.opened")
    settled = next(event["seq"] for event in events if event["kind"] == "pending.settled")
    then = await api("GET", f"/sessions/one/display?at={opened}")
    assert (then["head"], [item["what"] for item in then["pending"].values()]) == (
        opened,
        ["approval"],
    )
    after = await api("GET", f"/sessions/one/display?at={settled}")
    assert "pending" not in after
    now = await api("GET", "/sessions/one/display")
    assert await api("GET", f"/sessions/one/display?at={now['head']}") == now
    said = (await api("GET", f"/sessions/one/transcript?at={opened}"))["items"]
    assert [message["role"] for message in said] == ["user", "assistant"]
    assert "outcome" not in said[1]["calls"][0]
    whole = (await api("GET", "/sessions/one/transcript"))["items"]
    earlier = (await api("GET", f"/sessions/one/transcript?before={whole[-1]['seq']}"))["items"]
    assert earlier == whole[:-1]
    assert earlier[-1]["calls"][0]["outcome"]["outcome"] == "ok"
    for route in ("display", "transcript"):
        fields = await api.fails("invalid_value", "GET", f"/sessions/one/{route}?at=999")
        assert fields["field"] == "at"


async def test_a_display_from_a_checkpoint_is_that_of_the_whole_log(api: Api) -> None:
    await conversation(api)
    store = await service_of(api.app).places.store()
    notes = [NewEvent.of("app.noted", {"n": n}) for n in range(STEP * 3)]
    for start in range(0, len(notes), STEP):
        await store.append(Key("acme", "one", "main"), notes[start : start + STEP])
    last = (await api("GET", "/sessions/one"))["row"]["head"]
    forward = [await api("GET", f"/sessions/one/display?at={at}") for at in range(1, last, 97)]
    service_of(api.app).past.forget()
    for shown in reversed(forward):
        assert await api("GET", f"/sessions/one/display?at={shown['head']}") == shown


async def test_the_audit_names_who_asked_and_who_decided(api: Api) -> None:
    await conversation(api)
    page = await api("GET", "/sessions/one/audit")
    (call,) = page["items"]
    assert (call["tool"], call["asked"], call["outcome"]) == ("refund", ["ann"], "ok")
    (made,) = call["decisions"]
    assert (made["outcome"], made["by"], made["channel"], made["reason"]) == (
        *("approved", "ann", "http"),
        "fine",
    )
    assert page["after"] is None
    assert (await api("GET", f"/sessions/one/audit?after={call['seq']}"))["items"] == []


async def test_a_check_tells_up_to_which_event_all_is_well(api: Api) -> None:
    events = await conversation(api)
    found = await api("GET", "/sessions/one/verify")
    assert (found["ok"], found["head"], found["damage"]) == (True, len(events), [])
    assert (len(found["link"]), found["by"]) == (64, "ann")


async def test_the_driver_of_a_run_is_told_and_nobody_drives_a_quiet_session(api: Api) -> None:
    await api("PUT", "/sessions/slow")
    quiet = await api("GET", "/sessions/slow/lease")
    assert quiet == {"owner": None, "since": None, "until": None}
    await api("POST", "/sessions/slow/messages", {"content": "Slow"})
    held = await api.until("/sessions/slow/lease", lambda found: found["owner"])
    assert held["since"] <= held["until"]
    await api("POST", "/sessions/slow/abort")


async def test_usage_is_told_by_run_and_model(api: Api) -> None:
    await conversation(api)
    await api("POST", "/sessions/one/messages?wait=true", {"content": "Hello"})
    items = (await api("GET", "/sessions/one/usage-table"))["items"]
    assert [item["thread"] for item in items] == ["main", "main"]
    assert items[-1]["usage"] == {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}


async def test_an_attachment_is_shown_as_an_image_or_downloaded(api: Api) -> None:
    await api("PUT", "/sessions/one")
    page = b"<script>alert(1)</script>"
    parts = [
        {"data": base64.b64encode(data).decode(), "media_type": kind}
        for data, kind in ((PNG, "image/png"), (page, "text/html"))
    ]
    await api("POST", "/sessions/one/messages?wait=true", {"content": ["Look", *parts]})
    image, text = (hashlib.sha256(data).hexdigest() for data in (PNG, page))
    shown = await api.ask("GET", f"/sessions/one/blobs/{image}?type=image/png")
    assert (shown.content, shown.headers["content-type"]) == (PNG, "image/png")
    assert shown.headers["content-disposition"] == "inline"
    for kind in ("text/html", "image/svg+xml", "application/javascript"):
        given = await api.ask("GET", f"/sessions/one/blobs/{text}?type={kind}")
        assert given.headers["content-type"] == "application/octet-stream"
        assert given.headers["content-disposition"].startswith("attachment")
        assert "sandbox" in given.headers["content-security-policy"]
    await api.fails("blob_not_found", "GET", f"/sessions/one/blobs/{'0' * 64}")


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("metadata=tier=gold", ["gold"]),
        ("metadata=tier=gold&metadata=vip=true", ["gold"]),
        ("metadata=vip=%22true%22", []),
        ("surface=mail&address=a", ["gold"]),
        ("created_from=0&created_until=1", []),
        ("active_from=0&order=created&newest_first=false", ["gold", "plain"]),
        ("active_until=1", []),
        ("stale_until=1", []),
    ],
)
async def test_sessions_are_filtered(api: Api, query: str, ids: list[str]) -> None:
    await api("PUT", "/sessions/gold", {"metadata": {"tier": "gold", "vip": True}})
    await api("POST", "/sessions/gold/surfaces", {"surface": "mail", "address": "a"})
    await api("PUT", "/sessions/plain")
    found = await api("GET", f"/sessions?{query}")
    assert [row["session"] for row in found["items"]] == ids


async def test_a_filter_that_cannot_be_read_is_refused(api: Api) -> None:
    assert (await api.fails("invalid_value", "GET", "/sessions?metadata=x"))["field"] == "metadata"
    assert (await api.fails("invalid_value", "GET", "/sessions?surface=x"))["field"] == "address"


async def test_the_caller_is_told_who_it_is(api: Api) -> None:
    me = await api("GET", "/me", by="ann@acme")
    assert (me["principal"], me["tenant"], me["agents"]) == ("ann", "acme", ["shop"])
    assert "sessions:all" not in me["scopes"]
    assert "admin" in (await api("GET", "/me", by="eve@acme+admin"))["scopes"]


async def frames(answer: httpx.Response) -> AsyncIterator[tuple[str, Any]]:
    name = ""
    async for line in answer.aiter_lines():
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


async def test_changes_of_lists_are_told_to_those_who_may_see_them(api: Api) -> None:
    async def listen(by: str) -> Any:
        headers = {"authorization": f"Bearer {by}"}
        return api.client.stream("GET", "/v1/changes", headers=headers)

    async with await listen("ann@acme") as mine, await listen("bob@acme") as theirs:
        own, others = frames(mine), frames(theirs)
        assert (await anext(own))[0] == (await anext(others))[0] == "caught_up"
        await api("GET", "/sessions")
        item = await api.ask_for_refund("ann-1")
        seen = {}
        async for name, data in own:
            seen[name] = data
            if {"row", "pending"} <= {*seen}:
                break
        assert seen["row"]["session"] == "ann-1"
        assert seen["pending"] == {"items": 1, "more": False}
        await api("POST", f"/sessions/ann-1/pending/{item}/deny")
        await api("PUT", "/sessions/bob-1", by="bob@acme")
        name, data = await anext(others)
        assert (name, data["session"]) == ("row", "bob-1")
    with_all = await api.ask("GET", "/changes?user=bob", by="ann@acme")
    assert with_all.status_code == 403


async def test_changes_end_with_the_right_to_see_them_also_while_a_list_is_busy(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_changes, "STILL", 0.0)
    may_read = True

    async def still() -> bool:
        return may_read

    changes = service_of(api.app).list_changes
    told = changes.frames(("acme", None), still)
    assert b"caught_up" in await anext(told)
    (watched,) = changes._watched.values()
    for number in range(3):
        watched._tell(list_changes.frame("row", {"session": f"s{number}"}))
    assert (await anext(told)).count(b"event: row") == 3  # in one piece
    may_read = False
    watched._tell(list_changes.frame("row", {"session": "secret"}))
    last = await anext(told)
    assert (b"closed" in last, b"secret" in last) == (True, False)
    await told.aclose()


async def test_a_reader_that_is_too_slow_does_not_change_what_others_are_told(api: Api) -> None:
    changes = service_of(api.app).list_changes
    slow, quick = (changes.frames(("acme", None), None) for _ in range(2))
    await anext(slow), await anext(quick)
    (watched,) = changes._watched.values()
    readers = [*watched._readers]
    for number in range(list_changes.ROOM + 1):
        watched._tell(b"%d " % number)
        assert readers[1].get_nowait() == b"%d " % number
    assert readers[0].qsize() == 1
    assert b"resync" in readers[0].get_nowait()
    for each in (slow, quick):
        await each.aclose()


async def test_what_waits_is_decided_where_no_agent_is_served(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'shop.db'}"
    other = settings(url, agents=[Agent("other", instructions="Help.")])
    async with serving(settings(url)) as api, serving(other) as desk:
        item = await api.ask_for_refund("one")
        (asked,) = (await desk("GET", "/sessions/one/pending"))["items"]
        assert (asked["id"], asked["tool"]) == (item, "refund")
        assert (await desk("GET", "/sessions/one/display"))["pending"]
        path = f"/sessions/one/pending/{item}"
        await desk.fails("unknown_agent", "POST", f"{path}/approve", {"arguments": {"a": 1}})
        made = await desk("POST", f"{path}/approve", key="k")
        assert made == await desk("POST", f"{path}/approve", key="k")
        await desk.fails("already_decided", "POST", f"{path}/deny")
        await api.until("/sessions/one/status", lambda found: found["phase"] == "idle")
