"""The events of an agent session: whether it is over, what of it there is, and its bundle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.bundle.harn import AgentEvent, bundle_of_events, liveness, session_events, until
from holdfast.errors import InvalidBundle


def event(number: int, type: str, **fields: Any) -> AgentEvent:
    return AgentEvent(
        event_id=number,
        kind=type,
        occurred_at_ms=1_772_000_000_000 + number,
        event={"type": type, "session_id": "s/1", **fields},
    )


def said(number: int, text: Any = "hi") -> AgentEvent:
    content = [{"type": "text", "text": text}] if isinstance(text, str) else text
    return event(number, "user_message", message_id=f"m{number}", content=content)


def closed(number: int, status: str = "completed") -> AgentEvent:
    return event(number, "session_closed", reason="done", status=status, metadata={})


@pytest.mark.parity("harn-bundle", 93, 94)
@pytest.mark.parametrize(("status", "told"), [("failed", "failed"), ("", "completed")])
def test_a_closed_session_has_its_status_and_time(status: str, told: str) -> None:
    life = liveness([said(1), closed(2, status)])
    assert (life.status, life.finished_at_ms, life.tag) == (told, 1_772_000_000_002, "closed")
    assert not life.is_suspended
    assert liveness([closed(1, "failed"), closed(2, "completed")]).status == "completed"


@pytest.mark.parity("harn-bundle", 95)
@pytest.mark.parametrize("events", [[], [said(1)], [said(1), event(2, "budget_exhausted")]])
def test_without_a_close_it_is_suspended(events: list[AgentEvent]) -> None:
    life = liveness(events)
    assert (life.status, life.finished_at_ms, life.tag) == ("suspended", None, "suspended")


@pytest.mark.parity("harn-bundle", 96)
def test_every_prefix_before_the_close_is_suspended() -> None:
    events = [said(1), event(2, "agent_message_chunk", content="a"), said(3), closed(4)]
    tags = [liveness(events[:end]).tag for end in range(5)]
    assert tags == ["suspended"] * 4 + ["closed"]
    cut = bundle_of_events("s/1", until("s/1", events, 3), version="1")
    assert cut.view.source.status == "suspended"
    assert cut.view.source.finished_at is None


@pytest.mark.parity("harn-bundle", 97)
def test_a_session_that_went_on_after_a_close_is_suspended() -> None:
    events = [said(1), closed(2), said(3)]
    assert liveness(events).is_suspended
    assert liveness([*events, closed(4)]).tag == "closed"
    assert liveness([said(1), closed(2), event(3, "tool_call_audit")]).tag == "closed"


@pytest.mark.parity("harn-bundle", 98, 99)
def test_the_head_of_a_bundle_of_events() -> None:
    blocks = [{"type": "text", "text": "Refund 42"}, "please", {"type": "image"}]
    document = bundle_of_events(
        "s/1", [said(1, " \n"), said(2, blocks), closed(3, "failed")], version="7"
    )
    raw = document.raw
    assert raw["bundle_id"] == "bundle_from_session_s_1"
    assert raw["source"] == {
        "kind": "event_log_session",
        "run_record_id": "s/1",
        "workflow_id": "agent_session",
        "workflow_name": "Agent session s/1",
        "task": "Refund 42\nplease",
        "status": "failed",
        "started_at": "2026-02-25T06:13:20.001Z",
        "finished_at": "2026-02-25T06:13:20.003Z",
        "persisted_path": None,
        "root_run_id": None,
        "parent_run_id": None,
        "child_run_count": 0,
    }
    assert raw["created_at"] == "2026-02-25T06:13:20.003Z"
    assert raw["metadata"] == {"session_liveness": "closed"}
    fixture = raw["replay"]["replay_fixture"]
    assert (fixture["id"], fixture["eval_kind"]) == ("fixture_from_session_s_1", "replay")
    assert fixture["expected_status"] == "failed"
    assert raw["replay"]["event_log_pointers"] == [
        {
            "kind": "agent_events",
            "topic": "observability.agent_events.s_1",
            "path": None,
            "location": "events.sqlite",
            "available": True,
        }
    ]
    assert raw["producer"]["version"] == "7"
    nothing = bundle_of_events("s/1", [said(1, "  ")], version="7")
    assert nothing.view.source.task == "Agent session s/1"
    assert nothing.view.created_at == "2026-02-25T06:13:20.001Z"


@pytest.mark.parity("harn-bundle", 100)
def test_messages_are_those_of_people_and_every_chunk_that_says_something() -> None:
    events = [
        said(1, "a"),
        event(2, "agent_message_chunk", content="b"),
        event(3, "agent_message_chunk", content=""),
        event(4, "agent_thought_chunk", content="hm"),
        event(5, "agent_message_chunk", content="c"),
        said(6, "d"),
    ]
    (section,) = bundle_of_events("s/1", events, version="1").view.transcript.sections
    assert section.messages == [
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": "b"},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": [{"type": "text", "text": "d"}]},
    ]
    assert [e["event_id"] for e in section.events] == [1, 2, 3, 4, 5, 6]
    assert section.events[3]["event"]["content"] == "hm"
    assert (section.id, section.scope) == ("agent_events", "session")
    assert section.metadata["session_id"] == "s/1"


@pytest.mark.parity("harn-bundle", 101)
def test_questions_to_people_are_permissions() -> None:
    asked = event(2, "hitl_requested", request_id="q", kind="approval", payload={"prompt": "ok?"})
    raw = bundle_of_events("s/1", [said(1), asked], version="1").raw
    assert raw["permissions"] == [
        {
            "kind": "hitl_question",
            "source": "agent_events",
            "request_id": "q",
            "agent": None,
            "payload": {
                "kind": "approval",
                "payload": {"prompt": "ok?"},
                "event_id": 2,
                "occurred_at_ms": 1_772_000_000_002,
            },
        }
    ]


@pytest.mark.parity("harn-bundle", 102)
@given(st.lists(st.sampled_from(["user", "chunk", "close", "plan"]), min_size=1, max_size=8))
def test_the_same_events_are_the_same_bytes(kinds: list[str]) -> None:
    def events() -> list[AgentEvent]:
        make: dict[str, Callable[[int], AgentEvent]] = {
            "user": said,
            "chunk": lambda n: event(n, "agent_message_chunk", content=f"c{n}"),
            "close": closed,
            "plan": lambda n: event(n, "plan", plan={"b": 1, "a": 2}),
        }
        return [make[kind](number) for number, kind in enumerate(kinds, 1)]

    first, again = (bundle_of_events("s/1", events(), version="1") for _ in range(2))
    assert first.encode() == again.encode()
    deterministic = first.view.replay.deterministic_events
    assert [e.index for e in deterministic] == list(range(len(kinds)))
    assert {e.source for e in deterministic} == {"events.sqlite.agent_events"}


@pytest.mark.parity("harn-bundle", 103)
def test_no_events_are_no_bundle() -> None:
    with pytest.raises(InvalidBundle) as raised:
        bundle_of_events("s/1", [], version="1")
    assert raised.value.faults[0].code == "missing_session_events"
    assert "s/1" in str(raised.value)


@pytest.mark.parity("harn-bundle", 104)
@pytest.mark.parametrize("ms", [1 << 62, -(1 << 62)])
def test_a_time_that_no_calendar_has_is_the_epoch(ms: int) -> None:
    odd = AgentEvent(event_id=1, occurred_at_ms=ms, event={"type": "user_message"})
    source = bundle_of_events("s", [odd], version="1").view.source
    assert source.started_at == "1970-01-01T00:00:00.000Z"


@pytest.mark.parity("harn-bundle", 105)
@pytest.mark.parametrize(("at", "kept"), [(2, [2]), (4, [2, 4]), (3, [2]), (99, [2, 4, 6])])
def test_a_cut_takes_the_event_it_names(at: int, kept: list[int]) -> None:
    events = [said(2), said(4), said(6)]
    assert [e.event_id for e in until("s/1", events, at)] == kept
    with pytest.raises(InvalidBundle) as raised:
        until("s/1", events, 1)
    assert "'s/1'" in str(raised.value)
    assert "up to 1" in str(raised.value)


def stored(number: int, session: str | None = "s/1", event: Any = None) -> dict[str, Any]:
    return {
        "event_id": number,
        "kind": "user_message",
        "occurred_at_ms": number,
        "headers": {} if session is None else {"session_id": session},
        "payload": {"index_hint": number, "session_id": "s/1", "event": event},
    }


@pytest.mark.parity("harn-bundle", 106)
def test_only_what_belongs_to_the_session_is_loaded() -> None:
    mine = {"type": "user_message", "session_id": "s/1", "content": []}
    records = [
        stored(1, event=mine),
        stored(2, session="s_1", event=mine),
        stored(3),
        stored(4, event={**mine, "session_id": "s_1"}),
        stored(5, session=None, event=mine),
    ]
    assert [e.event_id for e in session_events("s/1", records)] == [1, 5]
    with pytest.raises(InvalidBundle) as raised:
        session_events("s/1", [stored(1, event=mine), stored(2, event="text")])
    assert raised.value.faults[0].path == "$[1]"
