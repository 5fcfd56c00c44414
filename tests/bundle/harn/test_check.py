"""A bundle of Harn's is checked whole before anything is made of it: every fault, in order."""

from __future__ import annotations

import functools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.bundle.harn import find_faults, read_document, record_bundle
from holdfast.errors import InvalidBundle
from tests.bundle.harn.records import SECRET, record

ROOT = [
    *("_type", "schema_version", "bundle_id", "created_at", "producer", "source", "runtime"),
    *("transcript", "tools", "permissions", "replay", "redaction", "attachments"),
]
NESTED = [
    *("producer.name", "producer.version", "producer.schema_id", "source.kind"),
    *("source.run_record_id", "source.workflow_id", "source.task", "source.status"),
    *("runtime.harn_version", "runtime.provider_models", "transcript.sections"),
    *("tools.schemas", "tools.calls", "replay.event_log_pointers", "replay.transitions"),
    *("replay.checkpoints", "replay.trace_spans", "replay.deterministic_events"),
    *("redaction.mode", "redaction.policy", "redaction.placeholder", "redaction.entries"),
    "redaction.unsafe_secret_markers_rejected",
]


@functools.cache
def text() -> bytes:
    return record_bundle(record(), created_at="2026-03-01T10:01:00Z")[0].encode()


def tree() -> dict[str, Any]:
    return msgspec.json.decode(text(), type=dict[str, Any])


def told(of: Any, **options: Any) -> list[tuple[str, str]]:
    return [(fault.code, fault.path) for fault in find_faults(of, **options)]


def test_what_we_write_can_be_read() -> None:
    for mode in ("sanitized", "replay_only"):
        document, _ = record_bundle(record(), mode)
        assert read_document(document.encode()).raw == document.raw


@pytest.mark.parity("harn-bundle", 61)
@pytest.mark.parametrize("name", ROOT)
def test_each_field_of_the_root_is_required(name: str) -> None:
    less = tree()
    del less[name]
    assert told(less) == [("missing_required", f"$.{name}")]


@pytest.mark.parity("harn-bundle", 62)
@pytest.mark.parametrize("path", NESTED)
def test_each_field_within_is_required_by_its_path(path: str) -> None:
    less = tree()
    outer, _, inner = path.partition(".")
    del less[outer][inner]
    assert told(less) == [("missing_required", f"$.{path}")]


@pytest.mark.parity("harn-bundle", 61, 62, 71)
def test_all_that_is_missing_is_named_in_one_order() -> None:
    assert told({}) == [("missing_required", f"$.{name}") for name in ROOT]
    hollow = {**tree(), **{name.partition(".")[0]: {} for name in NESTED}}
    assert told(hollow) == [("missing_required", f"$.{path}") for path in NESTED]
    others: list[Any] = [None, [], "x", 3]
    for value in others:
        assert told(value) == [("missing_required", "$._type")]


@pytest.mark.parity("harn-bundle", 63)
def test_a_null_is_there() -> None:
    faults = told({**tree(), "bundle_id": None})
    assert ("missing_required", "$.bundle_id") not in faults
    assert faults == [("decode", "$.bundle_id")]
    assert told({**tree(), "workspace": None}) == []


@pytest.mark.parity("harn-bundle", 64)
@pytest.mark.parametrize("type", ["session_bundle", "", 3, None])
def test_another_type_is_refused(type: Any) -> None:
    found = find_faults({**tree(), "_type": type})
    assert (found[0].code, found[0].path) == ("invalid_type", "$._type")
    assert "harn_session_bundle" in found[0].problem


@pytest.mark.parity("harn-bundle", 65)
@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, "unsupported_schema_version"),
        (2, "unsupported_schema_version"),
        (999, "unsupported_schema_version"),
        (-1, "invalid_type"),
        ("1", "invalid_type"),
        (1.0, "invalid_type"),
        (True, "invalid_type"),
        (None, "invalid_type"),
    ],
)
def test_the_version_is_the_number_one(version: Any, code: str) -> None:
    with pytest.raises(InvalidBundle) as raised:
        read_document(msgspec.json.encode({**tree(), "schema_version": version}))
    assert [(f.code, f.path) for f in raised.value.faults] == [(code, "$.schema_version")]
    if version == 999:
        assert "999" in str(raised.value)
        assert "reads 1" in str(raised.value)


@pytest.mark.parity("harn-bundle", 69, 70)
def test_unknown_fields_at_every_level_are_taken_and_written_again() -> None:
    more = tree()

    def planted(value: Any) -> Any:
        if isinstance(value, dict):
            return {**{n: planted(v) for n, v in value.items()}, "x_new": {"kept": [1, None]}}
        return [planted(v) for v in value] if isinstance(value, list) else value

    more = planted(more)
    document = read_document(msgspec.json.encode(more))
    again = read_document(document.encode())
    assert again.raw == document.raw == more
    assert again.raw["replay"]["transitions"][0]["x_new"] == {"kept": [1, None]}


@pytest.mark.parity("harn-bundle", 71)
def test_faults_of_every_sort_come_together() -> None:
    bad = tree()
    del bad["source"]["task"]
    bad["_type"] = "other"
    bad["tools"]["calls"][0]["duration_ms"] = "soon"
    bad["transcript"]["sections"][1]["label"] = 7
    bad["metadata"] = []
    assert told(bad) == [
        ("missing_required", "$.source.task"),
        ("invalid_type", "$._type"),
        ("decode", "$.transcript.sections[1].label"),
        ("decode", "$.tools.calls[0].duration_ms"),
        ("decode", "$.metadata"),
    ]
    with pytest.raises(InvalidBundle) as raised:
        read_document(bad)
    assert len(raised.value.faults) == 5
    assert "$.source.task" in str(raised.value)


@pytest.mark.parity("harn-bundle", 72)
@pytest.mark.parametrize(
    ("outer", "inner", "value"),
    [
        ("transcript", "sections", "none"),
        ("tools", "calls", {}),
        ("replay", "transitions", "x"),
        ("replay", "replay_fixture", []),
        ("source", "child_run_count", -1),
        ("redaction", "unsafe_secret_markers_rejected", "no"),
    ],
)
def test_a_value_of_another_type_is_named_by_its_path(outer: str, inner: str, value: Any) -> None:
    bad = tree()
    bad[outer][inner] = value
    assert told(bad) == [("decode", f"$.{outer}.{inner}")]


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[1,]", b"[" * 100_000])
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidBundle) as raised:
        read_document(data)
    assert raised.value.faults[0].code == "decode"


def test_a_secret_is_named_by_its_path_and_never_shown() -> None:
    bad = tree()
    bad["transcript"]["sections"][0]["messages"][0]["content"] = f"use {SECRET}"
    assert told(bad) == [("unsafe_secret_marker", "$.transcript.sections[0].messages[0].content")]
    assert told(bad, allow_secrets=True) == []
    with pytest.raises(InvalidBundle) as raised:
        read_document(bad)
    assert SECRET not in repr(raised.value.faults) + str(raised.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(place=st.integers(0, 400), value=JSON)
def test_a_bundle_with_anything_anywhere_is_read_or_refused(place: int, value: Any) -> None:
    bad = tree()
    todo: list[Any] = [bad]
    spots: list[tuple[Any, Any]] = []
    while todo:
        node = todo.pop()
        entries = node.items() if isinstance(node, dict) else enumerate(node)
        for name, inner in entries:
            spots.append((node, name))
            if isinstance(inner, (dict, list)):
                todo.append(inner)
    node, name = spots[place % len(spots)]
    node[name] = value
    faults = find_faults(bad, allow_secrets=True)
    if not faults:
        assert read_document(bad, allow_secrets=True).raw is bad
        return
    with pytest.raises(InvalidBundle) as raised:
        read_document(bad, allow_secrets=True)
    assert raised.value.faults == faults
