"""Laws of the codec: what is taken comes back, and what is refused is refused by one error."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from holdfast.errors import InvalidValue
from holdfast.events import KINDS, Event, Key, NewEvent
from holdfast.log.catalog import Query, make_cursor, read_cursor, term
from holdfast.log.codec import check, check_data, fingerprint, too_deep, typed

NAMES = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=9
)
KINDS_AND_OTHERS = st.sampled_from(sorted(KINDS)) | NAMES
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9)
    | st.text('[]{}"\\,:\n\0é😀', max_size=9)
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
EVENTS = st.builds(
    lambda kind, value, **rest: Event(
        data=NewEvent.of(kind, value, id="i").data, kind=kind, **rest
    ),
    KINDS_AND_OTHERS,
    JSON,
    id=NAMES,
    v=st.integers(1, 2**31),
    run=st.none() | NAMES,
    actor=st.none() | NAMES,
    cause=st.none() | NAMES,
    seq=st.integers(1, 2**53),
    at=st.integers(0, 2**53),
)

FIELDS = {"tenant", "session", "thread", "events", *NewEvent.__struct_fields__}

# Nothing here is right on purpose, and anything may be.
WILD_TEXT = st.text(st.characters(), max_size=9) | st.sampled_from(["", "\0", "\ud800", "x" * 513])
WILD = (
    WILD_TEXT
    | st.none()
    | st.integers()
    | st.floats()
    | st.binary(max_size=9)
    | st.lists(st.none())
)
WILD_DATA = (
    st.builds(Raw, st.binary(max_size=30))
    | st.builds(Raw, st.text('[]{}"\\,:09eE.-nultrfas \n', max_size=30))
    | st.builds(lambda value: Raw(msgspec.json.encode(value)), JSON)
    | WILD
)
WILD_EVENTS = st.builds(
    NewEvent, kind=WILD, data=WILD_DATA, id=WILD, v=WILD, run=WILD, actor=WILD, cause=WILD
)


@given(event=EVENTS)
def test_an_event_comes_back_from_json_as_it_went(event: Event) -> None:
    again = msgspec.json.decode(msgspec.json.encode(event), type=Event)
    assert again == event
    assert bytes(again.data) == bytes(event.data)
    assert fingerprint(again) == fingerprint(event)


@given(event=EVENTS, extra=st.dictionaries(st.text(max_size=4), JSON, max_size=3))
def test_fields_that_nobody_knows_come_back_too(event: Event, extra: dict[str, Any]) -> None:
    odd = msgspec.structs.replace(event, data=NewEvent.of("x", {**extra, "": 1}).data)
    typed(odd)
    again = msgspec.json.decode(msgspec.json.encode(odd), type=Event)
    assert again.json() == {**extra, "": 1}


@given(value=JSON)
def test_a_payload_that_is_taken_means_the_same_after_decoding(value: Any) -> None:
    data = NewEvent.of("note", value).data
    check_data(data)
    assert b"\n" not in bytes(data)
    assert msgspec.json.decode(data) == ({} if value is None else value)


@given(value=st.recursive(SCALARS | st.sampled_from([math.nan, math.inf, -math.inf]), st.lists))
@example([None, math.nan])
def test_a_number_that_is_none_is_refused_and_nothing_else_is(value: Any) -> None:
    def holds(value: Any) -> bool:
        if isinstance(value, list):
            return any(map(holds, value))
        return isinstance(value, float) and not math.isfinite(value)

    if holds(value):
        with pytest.raises(InvalidValue):
            NewEvent.of("note", value)
    else:
        NewEvent.of("note", value)


@given(
    key=st.builds(Key, WILD, WILD, WILD) | st.just(Key("main", "s", "main")),
    events=st.lists(WILD_EVENTS | EVENTS | WILD, max_size=4),
)
def test_a_check_passes_or_raises_its_one_error(key: Key, events: list[Any]) -> None:
    try:
        check(key, events)
    except InvalidValue as error:
        refused: InvalidValue | None = error
    else:
        refused = None
    if refused:
        assert refused.field in FIELDS
        assert all((refused.problem, refused.remedy, str(refused)))


@given(data=WILD_DATA)
def test_data_that_passes_is_json(data: Any) -> None:
    try:
        check_data(data)
    except InvalidValue:
        return
    msgspec.json.decode(data)


@given(
    value=JSON,
    levels=st.integers(115, 135),
    between=st.text('[]{}"\\', max_size=5),
    named=st.booleans(),
)
def test_depth_is_the_depth_of_the_value(
    value: Any, levels: int, between: str, named: bool
) -> None:
    def depth(value: Any) -> int:
        if isinstance(value, dict):
            value = list(value.values())
        return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0

    for _ in range(levels):
        value = {between: value} if named else [between, value, between]
    assert too_deep(bytes(NewEvent.of("note", value).data)) == (depth(value) > 128)


@given(one=EVENTS, other=EVENTS)
def test_a_fingerprint_tells_events_apart(one: Event, other: Event) -> None:
    same = all(getattr(one, name) == getattr(other, name) for name in ("id", "kind", "v", "data"))
    assert (fingerprint(one) == fingerprint(other)) == same
    moved = msgspec.structs.replace(other, id=one.id, kind=one.kind, v=one.v, data=one.data)
    assert fingerprint(moved) == fingerprint(one)


@given(value=st.integers(-(2**63), 2**63 - 1), tie=st.integers(0, 2**63 - 1) | NAMES)
def test_a_cursor_names_its_place(value: int, tie: int | str) -> None:
    assert read_cursor(Query(), make_cursor(Query(), value, tie)) == (value, tie)


@given(cursor=st.text(st.characters(), max_size=30) | st.binary().map(lambda b: b.decode("latin1")))
def test_a_made_up_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidValue):
        read_cursor(Query(), cursor)


@given(one=JSON, other=JSON)
def test_terms_are_equal_exactly_when_the_json_is(one: Any, other: Any) -> None:
    def canonical(value: Any) -> bytes:
        return msgspec.json.encode(value, order="deterministic")

    assert (term(one) == term(other)) == (canonical(one) == canonical(other))
    assert len(term(one).encode()) <= 128
