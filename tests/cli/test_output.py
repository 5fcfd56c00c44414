"""Stored text on a terminal: nothing in it steers the terminal, and JSON stays equal."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.output import JOINERS, json_text, plain

STEERING = ["\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\x7f", "\r", "\u202e", "\u2066", "\u2028"]


@pytest.mark.parametrize("text", STEERING)
def test_what_steers_a_terminal_is_escaped(text: str) -> None:
    assert plain(f"a{text}b").isprintable()
    assert json_text({"x": text}).isprintable()
    assert json.loads(json_text({"x": text})) == {"x": text}


def test_what_people_write_is_left_alone() -> None:
    for text in ("plain", "zażółć", "日本語", "👩‍👩‍👧", "[bold]x[/bold]", "نمی‌خواهم"):
        assert plain(text) == text


def test_a_lone_surrogate_can_be_printed() -> None:
    assert plain("a\udcff") == "a\\udcff"


@given(st.text())
def test_no_text_gets_a_control_character_through(text: str) -> None:
    left = {unicodedata.category(char) for char in plain(text) if char not in JOINERS}
    assert not left & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(
    st.recursive(st.none() | st.integers(0, 9) | st.text(st.characters(codec="utf-8")), st.lists)
)
def test_json_is_one_line_and_reads_back_equal(value: object) -> None:
    text = json_text(value)
    assert "\n" not in text
    assert json.loads(text) == value
