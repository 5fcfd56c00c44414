"""Translations as values: every kind of event, and what the pages say that it becomes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.events import KINDS, Event
from holdfast.server.protocols import ai_sdk_stream
from holdfast.server.protocols.ai_sdk_stream import UiMessageStream
from holdfast.values.delta import Delta
from holdfast.values.result import Result
from holdfast.wire import End
from tests.compat.write import FACTS, LIFE, RUN

PAGES = Path(__file__).parents[2] / "docs" / "protocols"


def event(kind: str, payload: Any, seq: int = 1, id: str = "") -> Event:
    data = msgspec.Raw(msgspec.json.encode(payload))
    return Event(seq=seq, id=id or f"e{seq}", kind=kind, at=0, data=data, actor="ann", run="r1")


def examples() -> Iterator[Event]:
    """An event of every kind."""
    others = [("thread.created", {}), ("thread.forked", {"parent": "main", "at": 1})]
    others += [("session.moved", {"to": "there"}), ("session.reopened", {})]
    for seq, (kind, payload) in enumerate((*FACTS, *RUN, *LIFE, *others), 1):
        if kind in KINDS:
            yield event(kind, payload, seq)


def test_there_is_an_example_of_every_kind() -> None:
    assert {one.kind for one in examples()} == {*KINDS}


@pytest.mark.parametrize("version", ["v5", "v7"])
def test_the_ai_sdk_gets_of_every_kind_what_the_table_says(version: Any) -> None:
    assert {*ai_sdk_stream.MAPPED, *ai_sdk_stream.ENDING} | ai_sdk_stream.LOST == {*KINDS}
    for one in examples():
        payload = msgspec.json.decode(one.data)
        calls = [str(payload.get(name)) for name in ("call", "id")]
        stream = UiMessageStream(version, calls=calls)
        made = [chunk["type"] for chunk in stream.chunks(one)]
        allowed = ai_sdk_stream.MAPPED.get(one.kind, ())
        assert {*made} - {"start"} <= {*allowed}, one.kind


def rows(page: str) -> dict[str, str]:
    """Each kind of event in the table of a page, and its row."""
    found = {}
    for line in (PAGES / page).read_text().partition("## What becomes what")[2].splitlines():
        if line.startswith("| "):
            _, events, becomes, _ = line.split("|")
            found.update(dict.fromkeys(re.findall(r"`([\w.]+)`", events), becomes))
    return found


def test_the_ai_sdk_page_lists_every_kind() -> None:
    table = rows("ai-sdk.md")
    assert {*table} == {*ai_sdk_stream.MAPPED, *ai_sdk_stream.ENDING}
    for kind, chunks in ai_sdk_stream.MAPPED.items():
        assert {*chunks} <= {*re.findall(r"`([\w-]+)`", table[kind])}, kind
    lost = (PAGES / "ai-sdk.md").read_text().partition("\nLost, ")[2]
    assert {*re.findall(r"`([\w]+\.[\w]+)`", lost)} == ai_sdk_stream.LOST


def typed_out(stream: UiMessageStream, parts: list[Any]) -> list[tuple[str, str]]:
    chunks = [chunk for part in parts for chunk in stream.chunks(part)]
    return [(c["type"], c.get("delta", "")) for c in chunks if "text" in c["type"]]


def test_text_is_sent_once_whatever_was_streamed() -> None:
    started = [event("run.started", {}), event("model.called", {"model": "m"}, 2)]
    whole = event("message.completed", {"text": "héllo wörld"}, 3, "m1")
    for upto in range(12):
        text = "héllo wörld"[:upto]
        deltas = [Delta("m1", 0, text[:2]), Delta("m1", 1, text[1:]), Delta("m1", 0, text)]
        made = typed_out(UiMessageStream("v7"), [*started, *deltas, whole, *deltas])
        assert "".join(text for _, text in made) == "héllo wörld"
        assert [sort for sort, _ in made][:: len(made) - 1] == ["text-start", "text-end"]


def test_thoughts_come_before_the_text() -> None:
    stream = UiMessageStream("v7")
    parts: list[Any] = [event("run.started", {})]
    parts += [Delta("m1", 0, "Hm", True), Delta("m1", 0, "Yes")]
    parts.append(event("message.completed", {"text": "Yes.", "thought": "Hm."}, 2, "m1"))
    made = [chunk["type"] for part in parts for chunk in stream.chunks(part)]
    assert made == [
        *("start", "reasoning-start", "reasoning-delta", "reasoning-end"),
        *("text-start", "text-delta", "text-delta", "text-end"),
    ]


def test_an_answer_that_begins_again_is_taken_back() -> None:
    parts: list[Any] = [event("run.started", {}), event("model.called", {"model": "m"}, 2)]
    parts += [Delta("m1", 0, "Wro"), event("message.interrupted", {"shown": False}, 3, "m1")]
    made = [c["type"] for p in parts for c in [*UiMessageStream("v5").chunks(p)]]
    assert "reset-step" not in made
    stream = UiMessageStream("v7")
    made = [chunk["type"] for part in parts for chunk in stream.chunks(part)]
    assert made[-2:] == ["text-end", "reset-step"]


@pytest.mark.parametrize(
    ("status", "types"),
    [
        ("done", ["finish"]),
        ("waiting", ["finish"]),
        ("aborted", ["abort", "finish"]),
        ("failed", ["message-metadata", "error"]),
        ("interrupted", ["finish"]),
    ],
)
def test_the_end_says_how_the_run_ended(status: Any, types: list[str]) -> None:
    stream = UiMessageStream("v7")
    result = Result(session="s", thread="main", run="r1", status=status, code="model_failed")
    begun = [*stream.chunks(event("run.started", {}))]
    assert begun[0]["messageId"] == "r1"
    made = [*stream.chunks(End(reason="finished", result=result), "log.7")]
    assert [chunk["type"] for chunk in made] == types
    about = next(c["messageMetadata"] for c in made if "messageMetadata" in c)
    assert (about["cursor"], about["status"]) == ("log.7", status)
