"""Events as people read them."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Event, LogDamaged, NewEvent
from holdfast.cli.event_text import CUT, CUT_OF_ADAPTER, damaged_text, event_text
from holdfast.cli.render import ago, moment, size


def shown(kind: str, payload: Any, *, full: bool = False, **rest: Any) -> str:
    new = NewEvent.of(kind, payload, **rest)
    at = 1_700_000_000_000
    event = Event(kind=kind, data=new.data, v=new.v, actor=new.actor, seq=7, at=at)
    return event_text(event, full=full).plain


@pytest.mark.parametrize(
    ("kind", "payload", "says"),
    [
        ("message.received", {"text": "Hello"}, "Hello"),
        ("message.received", {"text": "", "parts": [{"image": "x"}]}, '{"image":"x"}'),
        ("message.interrupted", {"text": "So far", "reason": "stop"}, "So far [interrupted: stop]"),
        ("tool.started", {"call": "c1", "name": "refund"}, "refund (call c1)"),
        ("tool.finished", {"call": "c1", "result": 1}, "ok: 1 (call c1)"),
        ("tool.finished", {"call": "c", "outcome": "failed", "error": "no"}, "failed: no (call c)"),
        ("pending.opened", {"id": "p", "what": "question", "title": "Why?"}, "question p Why?"),
        ("pending.settled", {"id": "p", "outcome": "denied"}, "denied p"),
        ("run.finished", {"status": "failed", "error": "boom"}, "failed boom"),
        ("thread.renamed", {"title": "New"}, '{"title":"New"}'),
        ("stranger.came", {"from": "afar"}, '{"from":"afar"}'),
        ("message.received", {"erased": "asked by the user"}, "erased: asked by the user"),
        ("message.received", "not an object", '"not an object"'),
    ],
)
def test_an_event_says_its_number_time_kind_and_content(kind: str, payload: Any, says: str) -> None:
    text = shown(kind, payload)
    assert text.startswith(f"     7  2023-11-14 22:13:20Z  {kind}  ")
    assert text.endswith(says)


def test_an_event_that_is_too_new_is_shown_raw() -> None:
    assert shown("message.received", {"text": "x"}, v=2).endswith('{"text":"x"}')


def test_a_message_keeps_its_lines_and_names_its_calls() -> None:
    call = {"id": "c1", "name": "refund", "arguments": {"order": "42"}}
    text = shown("message.completed", {"text": "One\r\nTwo", "calls": [call]})
    first, *rest = text.split("\n")
    assert first.endswith("  One")
    assert rest == ["        Two", '        → refund({"order":"42"}) (call c1)']


def test_nothing_in_an_event_steers_the_terminal() -> None:
    text = shown("message.received", {"text": "a\x1b[31m\n\x07b\tc"}, actor="x\x1b[0m")
    assert text.endswith("  x\\x1b[0m  a\\x1b[31m\n        \\x07b  c")


def test_a_long_text_is_cut_and_says_by_how_much() -> None:
    text = shown("message.received", {"text": "x" * (CUT + 1_234)})
    assert text.endswith("… and 1,234 more characters (--full shows them)")
    assert shown("message.received", {"text": "x" * 9_000}, full=True).endswith("x" * 9_000)


def test_a_payload_that_was_left_apart_is_named_by_its_size() -> None:
    apart = {"apart": {"size": 3 << 20, "sha256": "00"}}
    assert shown("message.received", apart).endswith("3 MiB of data (--full shows it)")


def test_an_event_that_cannot_be_read_keeps_its_place() -> None:
    error = LogDamaged(problem="hash\x1b differs", tenant="t", session="s", thread="m", seq=9)
    assert damaged_text(error).plain == "     9  unreadable  hash\\x1b differs"


def test_times_and_sizes_read_well() -> None:
    assert moment(1 << 62) == f"{1 << 62} ms"
    assert [ago(0, s * 1000) for s in (5, 61, 7_200, 90_000)] == [
        "5 s ago",
        "1 min ago",
        "2 h ago",
        "1 d ago",
    ]
    assert ago(5_000, 0) == "0 s ago"
    assert [size(n) for n in (1, 1_536, 1 << 20, 5 << 30)] == [
        "1 bytes",
        "1.5 KiB",
        "1 MiB",
        "5 GiB",
    ]


def test_events_of_adapters_are_cut_shorter_than_messages() -> None:
    values = {"values": "x" * CUT}
    text = shown("langgraph.checkpoint", values)
    assert len(text) < CUT_OF_ADAPTER + 200
    assert text.endswith("more characters (--full shows them)")
    assert "x" * CUT in shown("langgraph.checkpoint", values, full=True)
    assert "x" * CUT in shown("message.received", {"text": "x" * CUT})
