"""Requests of front ends that arrive twice, for example after a connection was lost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.scene import Api


def chat(text: str, id: str = "m1") -> tuple[str, Any]:
    message = {"id": id, "role": "user", "parts": [{"type": "text", "text": text}]}
    return "/ai-sdk/v7/chat", {"id": "mine", "messages": [message]}


def run(text: str, id: str = "m1") -> tuple[str, Any]:
    message = {"id": id, "role": "user", "content": text}
    return "/ag-ui/run", {"threadId": "mine", "runId": "r", "messages": [message]}


async def runs(api: Api) -> int:
    found = await api("GET", "/sessions/mine/events")
    return sum(event["kind"] == "run.started" for event in found["items"])


async def said(api: Api) -> list[str]:
    found = await api("GET", "/sessions/mine/transcript")
    return [message["text"] for message in found["items"] if message["role"] == "user"]


@pytest.mark.parametrize("sent", [chat, run])
async def test_a_changed_message_that_arrives_twice_is_answered_once(api: Api, sent: Any) -> None:
    for text, count in (("Hello", 1), ("Hello", 1), ("Bye", 2), ("Bye", 2), ("Hello", 3)):
        assert (await api.ask("POST", *sent(text))).status_code == 200
        assert (await runs(api), await said(api)) == (count, [text])


@pytest.mark.parametrize("sent", [chat, run])
async def test_a_message_that_was_removed_and_sent_again_is_answered_once(
    api: Api, sent: Any
) -> None:
    await api.ask("POST", *sent("Hello"))
    await api.ask("POST", *sent("How are you?", "m2"))
    await api("POST", "/sessions/mine/rewind", {"to": 1})
    for _ in range(2):
        assert (await api.ask("POST", *sent("Hello"))).status_code == 200
        assert (await runs(api), await said(api)) == (3, ["Hello"])
