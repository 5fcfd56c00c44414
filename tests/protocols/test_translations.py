"""Translations as values: every kind of event, and what the pages say that it becomes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.events import KINDS, Event
from holdfast.server.protocols import ag_ui_stream, ai_sdk_stream
from holdfast.server.protocols.ag_ui_messages import snapshot
from holdfast.server.protocols.ag_ui_stream import AgUiStream
from holdfast.server.protocols.ai_sdk_messages import ui_messages
from holdfast.server.protocols.ai_sdk_stream import UiMessageStream
from holdfast.transcript import transcript
from holdfast.values.delta import Delta
from holdfast.values.result import Result
from holdfast.values.stream_items import CaughtUp
from holdfast.wire import End, mcp
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


def test_ag_ui_gets_of_every_kind_what_the_table_says() -> None:
    assert {*ag_ui_stream.MAPPED, *ag_ui_stream.ENDING} | ag_ui_stream.LOST == {*KINDS}
    for one in examples():
        stream = AgUiStream("s", "r", {})
        begun = len([*stream.chunks(CaughtUp("log", 0))])
        assert begun == 2
        made = [chunk["type"] for chunk in stream.chunks(one)]
        assert {*made} <= {*ag_ui_stream.MAPPED.get(one.kind, ())}, one.kind


def test_the_state_of_ag_ui_is_patched_to_what_it_is() -> None:
    stream = AgUiStream("s", "r", {"a": 1, "x": 2})
    parts = [event("state.changed", {"set": {"a/b~": 3}, "drop": ["x", "none"]})]
    parts.append(event("state.changed", {"set": {"z": 1}, "replace": True}, 2))
    made = [chunk for part in parts for chunk in stream.chunks(part)]
    delta = [
        {"op": "add", "path": "/a~1b~0", "value": 3},
        {"op": "remove", "path": "/x"},
    ]
    assert made[1:] == [
        {"type": "STATE_SNAPSHOT", "snapshot": {"a": 1, "x": 2}},
        {"type": "STATE_DELTA", "delta": delta},
        {"type": "STATE_SNAPSHOT", "snapshot": {"z": 1}},
    ]


@pytest.mark.parametrize(
    ("page", "module"), [("ai-sdk.md", ai_sdk_stream), ("ag-ui.md", ag_ui_stream)]
)
def test_the_page_lists_every_kind(page: str, module: Any) -> None:
    table = rows(page)
    assert {*table} == {*module.MAPPED, *module.ENDING}
    for kind, chunks in module.MAPPED.items():
        assert {*chunks} <= {*re.findall(r"`([\w-]+)`", table[kind])}, kind
    lost = (PAGES / page).read_text().partition("\nLost, ")[2]
    assert {*re.findall(r"`([\w]+\.[\w]+)`", lost)} == module.LOST


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


def test_the_mcp_page_lists_every_tool() -> None:
    page = (PAGES / "mcp.md").read_text()
    assert [name for name in mcp.TOOLS if f"`{name}`" not in page] == []
    for name, kind in mcp.TOOLS.items():
        shown = mcp.schema(kind)
        assert (shown["type"], shown["additionalProperties"]) == ("object", False), name


def test_a_translation_keeps_no_text_that_was_sent() -> None:
    """A stream may be open for days."""
    shown = [{"id": "m"}]
    stream = AgUiStream("t", "r", {}, shown)
    message = event("message.completed", {"text": "Hello"}, 2, "m1")
    parts: list[Any] = [Delta("m1", 0, "Hel"), message]
    kinds = [chunk["type"] for part in parts for chunk in stream.chunks(part)]
    assert "MESSAGES_SNAPSHOT" in kinds
    assert (stream._messages, stream._sent) == (None, {})


def test_an_answer_that_was_begun_again_is_in_a_history_once() -> None:
    said = [
        event("message.received", {"text": "Hello"}, 1),
        event("message.interrupted", {"text": "Good", "shown": False}, 2),
        event("message.completed", {"text": "Good day."}, 3),
    ]
    messages = transcript(said)
    assert [message.retracted for message in messages] == [False, True, False]
    parts = [one.parts for one in ui_messages(messages, (), "v7", lambda sha256, kind: "", {})]
    assert [[part["text"] for part in each if "text" in part] for each in parts] == [
        ["Hello"],
        ["Good day."],
    ]
    assert [one["content"] for one in snapshot(messages)] == ["Hello", "Good day."]
    kept = transcript([*said[:1], event("message.interrupted", {"text": "Good"}, 2)])
    assert [one["content"] for one in snapshot(kept)] == ["Hello", "Good"]
