"""What holds for any text and any value: stable, idempotent, JSON stays JSON, numbers and ids stay,
and the work grows with the length."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import new_id
from holdfast.bundle.redaction.scrub import Scrub, ScrubConfig
from holdfast.redact import DEFAULT_KEYS, PLACEHOLDER, encodings
from holdfast.redact.names import Names
from holdfast.redact.scan import scan
from tests.redaction.corpus.cases import CASES

CONFIG = ScrubConfig(paths=False, detector=False)
texts = st.sampled_from([case.text for case in CASES if len(case.text) < 600])
glue = st.sampled_from(["", " ", "\n", ": ", "=", '"', "'", "{", "]", "\\", "/", "@", ";", "%41"])
mixture = st.lists(st.one_of(texts, glue, st.text(max_size=6)), max_size=5).map("".join)
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abck_"), inner)
)


def clean() -> Callable[[str], str]:
    scrub = Scrub("sanitized", CONFIG)
    return lambda text: scrub.text(text, "$")


@settings(max_examples=2 * settings().max_examples)
@given(mixture)
def test_a_second_look_changes_nothing(text: str) -> None:
    once = clean()(text)
    assert clean()(once) == once


@given(texts)
def test_the_same_value_has_the_same_placeholder(text: str) -> None:
    scrub = clean()
    first, again = scrub(text), scrub(text)
    assert first == again
    assert PLACEHOLDER.findall(first) == PLACEHOLDER.findall(again)


@settings(max_examples=2 * settings().max_examples)
@given(values, st.sampled_from([None, 2]), st.booleans())
def test_json_in_a_text_stays_json_of_the_same_shape(
    value: Any, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps([value], indent=indent, ensure_ascii=ascii_only)
    left = json.loads(clean()(text))
    assert shape(left) == shape([value])


def shape(value: Any) -> Any:
    """What a value is made of, without its texts."""
    if isinstance(value, dict):
        return [shape(item) for item in value.values()]
    if isinstance(value, list):
        return [shape(item) for item in value]
    return "" if isinstance(value, str) else value


@settings(max_examples=2 * settings().max_examples)
@given(
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.uuids(),
    st.from_regex(r"\A(?:call|toolu|msg|req|resp)_[A-Za-z0-9]{16,32}\Z"),
    st.from_regex(r"\A[0-9a-f]{40}\Z|\A[0-9a-f]{64}\Z"),
)
def test_numbers_and_ids_stay(number: int, part: float, uid: Any, call: str, sha: str) -> None:
    value = {
        "n": number,
        "x": part,
        "id": str(uid),
        "call": call,
        "sha": sha,
        "session": new_id(),
        "note": f"run {uid} of {call} at commit {sha}, {number} times",
        "usage": {"input_tokens": number, "max_tokens": number, "total_tokens": part},
    }
    assert Scrub("sanitized", CONFIG).value(value, "$") == value


def test_json_keeps_its_layout_where_nothing_is_replaced() -> None:
    text = '{\n   "n": 1.50e3,  "password" : "Tiger!Lemon!42",\n\t"b":[1,2 ,3], "u": "\\u00fc"\n}'
    assert clean()(text) == text.replace("Tiger!Lemon!42", "[redacted:secret:1]")


def test_a_table_keeps_its_lines_and_columns() -> None:
    text = "| user | password |\n|------|----------|\n| anna | Tiger!42x |\n| bert | Lemon?17y |\n"
    left = clean()(text)
    assert [line.count("|") for line in left.split("\n")] == [3, 3, 3, 3, 0]
    assert "Tiger" not in left
    assert "Lemon" not in left


@settings(max_examples=2 * settings().max_examples)
@given(mixture)
def test_a_view_maps_each_place_back_to_where_it_came_from(text: str) -> None:
    for view in encodings.decoded(text):
        assert len(view.starts) == len(view.origin)
        for at in range(0, len(view.text), max(1, len(view.text) // 7)):
            start, end = view.span(at, at + 1)
            assert 0 <= start < end <= len(text)
        if view.text:
            assert view.span(0, len(view.text))[1] <= len(text)


# Units that, repeated, make a reader look at the same text again if it does not take care.
HOSTILE = [
    *("password=", 'password="', "password is ", "key key ", "name: password\n", "password | a\n"),
    *("a,password\n", "cookie: a=b;", "Authorization: Digest a=b,", "kind: Secret\ndata:\n a: b\n"),
    *(
        "curl -u ",
        "secret set ",
        "sk-",
        "login(",
        "auth('a', ",
        "<password>",
        "value: a\n name: key\n",
    ),
    *(
        "%41",
        "&amp;",
        "\\n",
        "QUJD",
        "password: |\n  ",
        "insert into t (password) values (",
        "„password ",
    ),
]


def calls(text: str) -> int:
    """How many functions are called to look through it once."""
    count = 0

    def seen(frame: Any, what: str, arg: Any) -> None:
        nonlocal count
        count += what in ("call", "c_call")

    names = Names(DEFAULT_KEYS, {})
    list(scan("password=x", names))  # compiles and fills what is cached
    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        list(scan(text, names))
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("unit", HOSTILE)
def test_the_work_grows_no_faster_than_the_text(unit: str) -> None:
    size = 4_000
    short, long = unit * (size // len(unit)), unit * (4 * size // len(unit))
    assert calls(long) <= 8 * calls(short)  # quadratic work would be sixteen times as much


def test_what_is_masked_is_no_part_of_a_name() -> None:
    left = clean()('password="Tiger!Lemon!42" user="anna"')
    assert re.fullmatch(r'password="\[redacted:secret:1\]" user="anna"', left)
