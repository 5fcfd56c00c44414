"""Keys, ids, events and payloads: what they hold, and what becomes of what they do not know."""

from __future__ import annotations

import math
import re
import time
import uuid
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest
from msgspec import Raw, Struct

from holdfast import events as ev
from holdfast.errors import InvalidValue
from holdfast.events import (
    ADAPTER_NAMESPACES,
    CORE_NAMESPACES,
    KINDS,
    RESERVED_NAMESPACES,
    Event,
    Key,
    NewEvent,
    Payload,
    Scope,
    key,
    new_id,
)
from holdfast.log.codec import check_event
from holdfast.log.events.defaults import compact, complete

ROOT = Path(__file__).parents[2]


class Point(Struct):
    x: float
    y: float = 0.0


def in_log(new: NewEvent) -> Event:
    return Event(**msgspec.structs.asdict(new), seq=1, at=1)


# Keys


def test_a_key_has_the_usual_thread_and_tenant_unless_told() -> None:
    assert key("s") == Key("main", "s", "main")
    assert key("s", thread="t", tenant="acme") == Key("acme", "s", "t")
    assert key("s", thread="t", tenant="acme").scope == Scope("acme", "s")


def test_keys_that_would_be_equal_when_glued_together_are_not() -> None:
    assert len({Key("a", "b", "cd"), Key("a", "bc", "d"), Key("ab", "c", "d")}) == 3


# Ids


def test_an_id_is_a_uuid_of_version_7_that_holds_the_time() -> None:
    before = time.time_ns() // 1_000_000
    id = new_id()
    after = time.time_ns() // 1_000_000
    parsed = uuid.UUID(id)
    assert (parsed.version, parsed.variant, str(parsed)) == (7, uuid.RFC_4122, id)
    assert before <= parsed.int >> 80 <= after


def test_ids_rise_with_time_also_within_a_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    start = 1_790_000_000_000_000_000
    ids = []
    for tick in [*range(0, 1_000_000, 50_000), 1_000_000, 10**9, 10**15]:
        monkeypatch.setattr(time, "time_ns", lambda tick=tick: start + tick)
        ids.append(new_id())
    assert ids == sorted(ids)


def test_ids_of_one_moment_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_790_000_000_000_000_000)
    assert len({new_id() for _ in range(10_000)}) == 10_000


# Making events


def test_an_event_without_a_payload_holds_an_empty_object() -> None:
    assert bytes(NewEvent.of("note").data) == b"{}"


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (ev.ToolStarted(call="c", name="n"), b'{"call":"c","name":"n"}'),
        ({"b": 1, "a": [True, None, 1.5]}, b'{"b":1,"a":[true,null,1.5]}'),
        (Point(1.5), b'{"x":1.5,"y":0.0}'),
        ([], b"[]"),
        (0, b"0"),
        ("two\nlines\0\u2028", '"two\\nlines\\u0000\u2028"'.encode()),
        (2**63, b"9223372036854775808"),
    ],
)
def test_a_payload_is_encoded_as_one_line_of_json(payload: Any, text: bytes) -> None:
    event = NewEvent.of("note", payload)
    assert bytes(event.data) == text
    check_event(event)


def test_raw_json_is_kept_in_its_order_on_one_line() -> None:
    event = NewEvent.of("note", Raw(b'{"b": 1,\r\n "a":\t"\\n"}'))
    check_event(event)
    assert event.data == Raw(b'{"b":1,"a":"\\n"}')


def test_the_rest_of_the_envelope_is_given_by_name() -> None:
    event = NewEvent.of("note", id="i", v=3, run="r", actor="a", cause="c")
    assert event == NewEvent(
        kind="note", data=Raw(b"{}"), id="i", v=3, run="r", actor="a", cause="c"
    )


def test_every_event_gets_an_id_of_its_own() -> None:
    assert NewEvent.of("note").id != NewEvent.of("note").id


@pytest.mark.parametrize(
    "payload",
    [
        math.nan,
        {"a": [1, {"b": math.inf}]},
        [-math.inf],
        Point(math.nan),
        (1.0, (math.nan,)),
        {"nested": Point(1.0, math.inf), "null": None},
    ],
    ids=repr,
)
def test_what_is_not_a_number_is_refused_instead_of_becoming_null(payload: Any) -> None:
    with pytest.raises(InvalidValue) as refused:
        NewEvent.of("note", payload)
    assert (refused.value.field, refused.value.problem) == ("data", "contains NaN or infinity")
    assert "string or null" in refused.value.remedy


def test_a_null_and_the_word_null_are_not_taken_for_nan() -> None:
    assert in_log(NewEvent.of("note", {"a": None, "b": "null", "c": 1.5})).json()["a"] is None


@pytest.mark.parametrize("payload", ["\ud800", {"a": "\udfff"}, {"\ud800": 1}, object(), {1j}])
def test_what_json_cannot_hold_is_refused(payload: Any) -> None:
    with pytest.raises(InvalidValue, match=r"^data cannot be written as JSON .*: use JSON values$"):
        NewEvent.of("note", payload)


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidValue, match="cannot be written"):
        NewEvent.of("note", loop)


# Reading events


def test_a_payload_is_decoded_as_the_type_that_is_asked_for() -> None:
    event = in_log(NewEvent.of("note", {"x": 1.0, "y": 2.0}))
    assert event.payload(Point) == Point(1.0, 2.0)
    assert event.payload(dict[str, float]) == event.json() == {"x": 1.0, "y": 2.0}


def test_a_payload_of_another_shape_is_an_error_and_never_none() -> None:
    with pytest.raises(msgspec.ValidationError):
        in_log(NewEvent.of("note", {"x": "one"})).payload(Point)


def test_fields_that_a_type_does_not_know_stay_in_the_data() -> None:
    text = b'{"text":"hi","mood":{"level":3},"9":null}'
    event = in_log(NewEvent(kind="message.received", data=Raw(text)))
    assert event.payload(ev.MessageReceived) == ev.MessageReceived(text="hi")
    copied = msgspec.json.decode(msgspec.json.encode(event), type=Event)
    assert bytes(copied.data) == text


def test_an_event_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        NewEvent.of("note").kind = "other"  # type: ignore[misc]  # what this test is about


# Payloads


def test_reserved_namespaces_are_a_closed_and_documented_list() -> None:
    """A kind under a new namespace would stop sessions in which a program has used it already."""
    assert {kind.partition(".")[0] for kind in KINDS} <= CORE_NAMESPACES
    text = (ROOT / "docs/formats/log.md").read_text().partition("### Reserved namespaces")[2]
    core, adapters = (line for line in text.splitlines() if line.startswith(("| core", "| adapt")))
    names = re.compile(r"`(\w+)`")
    assert sorted(names.findall(core)) == sorted(CORE_NAMESPACES)
    assert sorted(names.findall(adapters)) == sorted(ADAPTER_NAMESPACES)
    assert {
        *("abort", "adk", "checkpoint", "claude", "compaction", "context", "grant", "label"),
        *("langgraph", "message", "metadata", "mode", "model", "openai", "pending", "permission"),
        *("progress", "pydantic_ai", "queue", "run", "session", "state", "surface", "task"),
        *("thread", "timer", "tool"),
    } == RESERVED_NAMESPACES


@pytest.mark.parametrize(("kind", "payload"), KINDS.items())
def test_every_kind_is_two_words_and_has_a_frozen_payload(
    kind: str, payload: type[Payload]
) -> None:
    noun, _, verb = kind.partition(".")
    assert noun.islower()
    assert verb.islower()
    assert issubclass(payload, Payload)
    assert payload.__struct_config__.frozen


def test_every_kind_has_a_payload_of_its_own() -> None:
    assert len(set(KINDS.values())) == len(KINDS)


def test_fields_that_have_their_default_are_not_written() -> None:
    assert bytes(NewEvent.of("message.received", ev.MessageReceived(text="hi")).data) == (
        b'{"text":"hi"}'
    )


# Defaults, written out


def least(payload: type[Payload]) -> dict[str, Any]:
    """The required fields of a payload with some values."""
    needed = [field for field in msgspec.structs.fields(payload) if field.required]
    return {field.encode_name: value_of(field.type) for field in needed}


def value_of(hint: Any) -> Any:
    if isinstance(hint, type) and issubclass(hint, Payload):
        return least(hint)
    simple: dict[Any, Any] = {str: "x", int: 1, bool: True, list: []}
    return (
        simple[get_origin(hint) or hint] if get_origin(hint) is not Literal else get_args(hint)[0]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_event_data_with_defaults_written_out_say_the_same(kind: str) -> None:
    payload = KINDS[kind]
    event = in_log(NewEvent.of(kind, {**least(payload), "to_come": [1]}))
    whole = complete(event)
    assert whole.payload(payload) == event.payload(payload)
    names = {field.encode_name for field in msgspec.structs.fields(payload)}
    assert set(whole.json()) == {*names, "to_come"}
    assert whole.json()["to_come"] == [1]
    assert complete(whole) == whole
    assert compact(whole) == event


def test_defaults_are_written_out_in_the_calls_of_a_message_too() -> None:
    event = in_log(NewEvent.of("message.completed", {"calls": [{"id": "c", "name": "look"}]}))
    (call,) = complete(event).json()["calls"]
    assert call == {
        "id": "c",
        "name": "look",
        "arguments": None,
        "provider_id": None,
        "fingerprint": None,
    }


@pytest.mark.parametrize(
    "event",
    [
        NewEvent.of("note.saved", {}),
        NewEvent.of("run.finished", {}, v=2),
        NewEvent.of("run.finished", {"erased": "on demand"}),
        NewEvent.of("run.finished", [1]),
        NewEvent.of("run.finished", "text"),
        NewEvent.of("message.completed", {"erased": "on demand"}),
    ],
    ids=lambda event: f"{event.kind} {bytes(event.data).decode()}",
)
def test_data_of_another_shape_are_left_alone(event: NewEvent) -> None:
    assert complete(in_log(event)) == in_log(event)


def test_odd_values_of_nested_fields_are_left_alone() -> None:
    for odd in (None, 5, [1, None], {"id": 1}, "text"):
        event = in_log(NewEvent.of("message.completed", {"calls": odd}))
        assert complete(event).json()["text"] == ""
        assert compact(complete(event)).json() == event.json()
