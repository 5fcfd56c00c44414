"""What may be stored: every limit at its edge and one over, and one error for all of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from holdfast import events as ev
from holdfast.errors import InvalidValue
from holdfast.events import KINDS, Event, Key, NewEvent, Scope, key
from holdfast.log import codec
from holdfast.log.codec import (
    LIMITS,
    Limits,
    check,
    check_count,
    check_data,
    check_event,
    check_key,
    check_name,
    check_size,
    dense,
    erased,
    fingerprint,
    too_deep,
    typed,
    understood,
)

S = key("s")


def note(**rest: Any) -> NewEvent:
    return NewEvent(**{"kind": "note", "data": Raw(b"{}"), **rest})


def in_log(new: NewEvent, seq: int = 1) -> Event:
    return Event(**msgspec.structs.asdict(new), seq=seq, at=1)


def refusal(check: Callable[[], Any]) -> InvalidValue:
    """The error of a check that must refuse; it names a field and says what to do."""
    with pytest.raises(InvalidValue) as refused:
        check()
    assert refused.value.field
    assert refused.value.problem
    assert refused.value.remedy
    return refused.value


def nested(depth: int, left: str = "[", right: str = "]") -> Raw:
    return Raw(left * depth + right * depth)


# Names


@pytest.mark.parametrize("name", ["a", "x" * 512, "é" * 256, "😀" * 128, "a/../b:c'\"", " ", "\n"])
def test_a_name_has_1_to_512_bytes_of_utf8(name: str) -> None:
    check_name("session", name)


@pytest.mark.parametrize("name", ["", "x" * 513, "é" * 256 + "x", "😀" * 128 + "x"])
def test_a_name_that_is_empty_or_one_byte_too_long_is_refused(name: str) -> None:
    error = refusal(lambda: check_name("session", name))
    assert error.field == "session"
    assert error.limit == 512
    assert str(len(name.encode())) in error.problem


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a\0b", "NUL"),
        ("\ud800", "lone surrogate"),
        ("x" * 600 + "\udfff", "lone surrogate"),
        (None, "NoneType"),
        (b"a", "bytes"),
        (7, "int"),
    ],
)
def test_a_name_that_some_store_could_not_hold_is_refused(name: Any, problem: str) -> None:
    assert problem in refusal(lambda: check_name("user", name)).problem


@pytest.mark.parametrize("field", ["tenant", "session", "thread"])
def test_each_part_of_a_key_is_a_name(field: str) -> None:
    whole = {"tenant": "t", "session": "s", "thread": "m"}
    check_key(Key(**whole))
    assert refusal(lambda: check_key(Key(**{**whole, field: ""}))).field == field


def test_a_scope_is_checked_like_a_key() -> None:
    check_key(Scope("t", "s"))
    assert refusal(lambda: check_key(Scope("t", "\0"))).field == "session"


# The envelope


@pytest.mark.parametrize("field", ["id", "run", "actor", "cause"])
def test_ids_in_the_envelope_are_names(field: str) -> None:
    check_event(note(**{field: "x" * 512}))
    assert refusal(lambda: check_event(note(**{field: "x" * 513}))).field == field
    assert refusal(lambda: check_event(note(**{field: ""}))).field == field
    assert refusal(lambda: check_event(note(**{field: 7}))).field == field


def test_run_actor_and_cause_may_be_left_out() -> None:
    check_event(note(run=None, actor=None, cause=None))


def test_a_kind_has_at_most_100_bytes() -> None:
    check_event(note(kind="k" * 100))
    error = refusal(lambda: check_event(note(kind="k" * 101)))
    assert (error.field, error.limit) == ("kind", 100)
    assert refusal(lambda: check_event(note(kind=""))).field == "kind"


@pytest.mark.parametrize("v", [1, 2, (1 << 31) - 1])
def test_a_version_is_a_whole_number_from_1(v: int) -> None:
    check_event(note(v=v))


@pytest.mark.parametrize("v", [0, -1, 1 << 31, 1.0, True, "1", None])
def test_any_other_version_is_refused(v: Any) -> None:
    assert refusal(lambda: check_event(note(v=v))).field == "v"


def test_an_append_holds_1_to_1000_events() -> None:
    check(S, [note()])
    check(S, [note()] * 1_000)
    assert refusal(lambda: check(S, [])).field == "events"
    error = refusal(lambda: check(S, [note()] * 1_001))
    assert (error.field, error.limit) == ("events", 1_000)


@pytest.mark.parametrize("other", [None, "note", {"kind": "note"}, 7])
def test_what_is_not_an_event_is_refused(other: Any) -> None:
    assert refusal(lambda: check(S, [note(), other])).field == "events"


def test_one_bad_event_refuses_the_whole_append() -> None:
    assert refusal(lambda: check(S, [note(), note(id=""), note()])).field == "id"


def test_an_append_to_a_bad_key_is_refused() -> None:
    assert refusal(lambda: check(Key("main", "s", "\0"), [note()])).field == "thread"


# Sizes


def text_of(size: int) -> Raw:
    return Raw(b'"' + b"x" * (size - 2) + b'"')


def test_an_event_holds_at_most_64_mib() -> None:
    check_data(text_of(64 << 20))
    error = refusal(lambda: check_data(text_of((64 << 20) + 1)))
    assert (error.field, error.limit) == ("data", 64 << 20)


def test_an_append_holds_at_most_128_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Limits().append_bytes == 128 << 20
    monkeypatch.setattr(codec, "LIMITS", Limits(append_bytes=1_000))
    check(S, [note(data=text_of(400)), note(data=text_of(600))])
    error = refusal(lambda: check(S, [note(data=text_of(400)), note(data=text_of(601))]))
    assert (error.field, error.limit) == ("events", 1_000)
    assert "1001 bytes" in error.problem


def test_a_size_is_refused_one_over_its_limit() -> None:
    check_size("blob", b"12345", 5)
    error = refusal(lambda: check_size("blob", b"123456", 5))
    assert (error.field, error.limit) == ("blob", 5)


@pytest.mark.parametrize("value", [3, 4, 5])
def test_a_count_lies_between_its_bounds(value: int) -> None:
    check_count("n", value, least=3, most=5)


@pytest.mark.parametrize("value", [2, 6, -(10**30), 10**30, True, 4.0, "4", None])
def test_any_other_count_is_refused(value: Any) -> None:
    assert refusal(lambda: check_count("n", value, least=3, most=5)).field == "n"


# Depth


@pytest.mark.parametrize(("left", "right"), [("[", "]"), ('{"a":[', "]}"), (' [\t"x",', "] ")])
def test_data_nests_at_most_128_levels(left: str, right: str) -> None:
    levels = left.count("[") + left.count("{")
    inside = Raw(left * (128 // levels) + "1" + right * (128 // levels))
    check_data(Raw(bytes(inside).strip()))
    error = refusal(lambda: check_data(Raw("[" + bytes(inside).decode().strip() + "]")))
    assert (error.field, error.limit) == ("data", 128)
    assert "deeper" in error.problem


def test_many_brackets_side_by_side_are_not_deep() -> None:
    check_data(Raw("[" + ",".join(["[{}]"] * 10_000) + "]"))


@pytest.mark.parametrize("text", ["[" * 500, "}" * 500, '\\"[{' * 200, "\\\\", '\\\\\\"[' * 200])
def test_brackets_inside_strings_do_not_count(text: str) -> None:
    check_data(Raw('{"' + text + '":["' + text + '"]}'))


def test_brackets_after_an_escaped_backslash_do_count() -> None:
    check_data(Raw('["\\\\",' * 128 + "1" + "]" * 128))
    assert "deeper" in refusal(lambda: check_data(Raw('["\\\\",' * 129 + "1" + "]" * 129))).problem


def test_depth_is_counted_whatever_the_callers_stack() -> None:
    def deeper(frames: int) -> bool:
        return too_deep(bytes(nested(129))) if frames == 0 else deeper(frames - 1)

    assert all(deeper(frames) for frames in (0, 100, 500))
    assert not too_deep(bytes(nested(128)))


def test_very_deep_data_is_refused_by_its_depth() -> None:
    assert "deeper" in refusal(lambda: check_data(nested(100_000))).problem


# JSON


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "null",
        "0",
        '"text"',
        '{"b":1,"a":2}',
        "[1, 2,\t3]",
        '"\\u0000\\ud83d\\ude00"',
        "18446744073709551616",
        "-9223372036854775809",
        "1e308",
        '"\u2028\u2029\u0085"',
    ],
)
def test_any_json_on_one_line_is_taken(text: str) -> None:
    check_data(Raw(text))


@pytest.mark.parametrize(
    "text",
    [
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1e999",
        b'"\\ud800"',
        b'{"a":"\\udc00x"}',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b"",
        b"{",
        b"{} {}",
        b"{'a':1}",
        b"[1,]",
        b'"a\0b"',
        b'"tab\there"',
        b"\xef\xbb\xbf{}",
        b"undefined",
    ],
)
def test_what_is_not_json_is_refused(text: bytes) -> None:
    error = refusal(lambda: check_data(Raw(text)))
    assert error.field == "data"
    assert "not JSON" in error.problem
    assert "NewEvent.of" in error.remedy


@pytest.mark.parametrize("text", [b"{\n}", b"[1,\r2]", b"{}\n", b"\r\n{}", b" {}", b"{}\t", b" "])
def test_line_breaks_and_blanks_around_are_refused(text: bytes) -> None:
    # A decoder drops blanks around a value: the hash of what is read would be another.
    error = refusal(lambda: check_data(Raw(text)))
    assert error.field == "data"
    assert "line breaks" in error.problem


@pytest.mark.parametrize("data", [b"{}", "{}", {}, None])
def test_data_is_raw_json_and_nothing_else(data: Any) -> None:
    error = refusal(lambda: check_data(data))
    assert (error.field, error.problem) == ("data", f"is {type(data).__name__}")


# The hash


def test_a_fingerprint_is_the_hash_that_the_format_says() -> None:
    event = note(id="i", v=2, data=Raw(b'{"a":1}'))
    assert fingerprint(event) == hashlib.sha256(b'["i","note",2]\n{"a":1}').digest()


def test_a_fingerprint_covers_id_kind_version_and_data() -> None:
    base = {"id": "i", "kind": "k", "v": 1, "data": Raw(b"{}")}
    others: list[dict[str, Any]] = [{"id": "j"}, {"kind": "l"}, {"v": 2}, {"data": Raw(b"[]")}]
    prints = {fingerprint(NewEvent(**{**base, **other})) for other in [{}, *others]}
    assert len(prints) == 5


def test_no_two_events_share_a_fingerprint_by_where_a_text_is_cut() -> None:
    events = [
        note(id="ab", kind="c"),
        note(id="a", kind="bc"),
        note(id='a","b', kind="c"),
        note(id="a", kind='b","c'),
        note(id="a", kind="b", v=11, data=Raw(b"1")),
        note(id="a", kind="b", v=1, data=Raw(b"11")),
        note(id='a"', kind="b"),
        note(id='a\\"', kind="b"),
    ]
    assert len({fingerprint(event) for event in events}) == len(events)


def test_a_fingerprint_does_not_depend_on_place_time_or_run() -> None:
    event = note(id="i")
    assert fingerprint(in_log(event, seq=9)) == fingerprint(event)
    assert fingerprint(note(id="i", run="r", actor="a", cause="c")) == fingerprint(event)


# Typed payloads


def test_a_known_kind_gives_its_payload() -> None:
    event = in_log(NewEvent.of("tool.started", {"call": "c", "name": "n", "new_field": 1}))
    assert typed(event) == ev.ToolStarted(call="c", name="n")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_first_version_of_each_kind_is_understood_and_no_other(kind: str) -> None:
    assert understood(note(kind=kind))
    assert not understood(note(kind=kind, v=2))


@pytest.mark.parametrize(
    "new",
    [
        note(kind="claude.entry"),
        note(kind="message.received", v=2),
        note(kind="message.received", data=Raw(b'{"text":7}')),
        note(kind="tool.finished", data=Raw(b'{"call":"c","outcome":"new"}')),
        note(kind="pending.opened", data=erased("asked for")),
        note(kind="run.finished", data=Raw(b"nonsense")),
    ],
    ids=["foreign", "too new", "another type", "another word", "erased", "damaged"],
)
def test_what_cannot_be_read_gives_no_payload(new: NewEvent) -> None:
    assert typed(in_log(new)) is None


def test_erased_data_says_why_and_may_be_stored() -> None:
    data = erased('they said "please"')
    check_data(data)
    assert msgspec.json.decode(data) == {"erased": 'they said "please"'}


# Numbers


def test_dense_numbers_are_taken() -> None:
    dense([], after=7)
    dense([in_log(note(), seq) for seq in (8, 9, 10)], after=7)


@pytest.mark.parametrize("seqs", [[2], [1, 3], [1, 1], [2, 1], [0, 1]])
def test_a_gap_or_a_repeated_number_is_refused(seqs: list[int]) -> None:
    error = refusal(lambda: dense([in_log(note(), seq) for seq in seqs], after=0))
    assert error.field == "events"


def test_the_limits_are_the_documented_ones() -> None:
    assert (LIMITS.name_bytes, LIMITS.kind_bytes, LIMITS.depth) == (512, 100, 128)
    assert (LIMITS.event_bytes, LIMITS.append_events) == (64 << 20, 1_000)


def test_a_kind_that_is_no_text_is_refused_by_its_name() -> None:
    kind: Any = ["note.made"]
    with pytest.raises(InvalidValue) as refused:
        check_event(NewEvent(kind=kind, data=Raw(b"{}")))
    assert refused.value.field == "kind"
