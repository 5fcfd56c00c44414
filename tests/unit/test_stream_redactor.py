"""Values that are not to be shown, in text that comes in pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.claude.masking import tree
from holdfast.redact import StreamRedactor, values_only

VALUE = "abcabcabd"
MASK = "[redacted]"


@given(st.text("abcd", max_size=30), st.lists(st.integers(0, 60), max_size=8))
def test_a_value_is_masked_wherever_it_is_cut(around: str, cuts: list[int]) -> None:
    mask = values_only([VALUE, VALUE[:7], "abc"])
    text = f"{around}{VALUE}{around}{VALUE[:7]}{around}"
    flow, shown, start = StreamRedactor(mask), "", 0
    for cut in sorted({*(cut for cut in cuts if cut < len(text)), len(text)}):
        shown += flow.feed(text[start:cut])
        start = cut
    shown += flow.flush()
    assert VALUE[:7] not in shown
    assert shown.count(MASK) >= 2


@given(st.lists(st.text("abcd", max_size=5)))
def test_nothing_else_is_lost_and_without_values_nothing_waits(pieces: list[str]) -> None:
    free = StreamRedactor(values_only([]))
    assert [free.feed(piece) for piece in pieces] == pieces
    flow = StreamRedactor(values_only(["xabcdx"]))
    assert "".join([*map(flow.feed, pieces), flow.flush()]) == "".join(pieces)


def test_entries_are_masked_through_and_through() -> None:
    entry = {"uuid": "1", VALUE: [{"text": f"is {VALUE}."}, 3, None, True, 1234567]}
    masked = {"uuid": "1", MASK: [{"text": f"is {MASK}."}, 3, None, True, MASK]}
    assert tree(values_only([VALUE, "1234567"]), entry) == masked


def test_the_frame_of_an_entry_stays_and_what_a_tool_was_given_does_not() -> None:
    given = {"type": "assistant", "deep": ["the assistant"]}
    block = {"type": "tool_use", "id": "1", "input": given}
    entry = {"type": "assistant", "message": {"role": "assistant", "content": [block]}}
    shown = tree(values_only(["assistant"]), entry)
    assert shown["type"] == shown["message"]["role"] == "assistant"
    assert shown["message"]["content"][0]["input"] == {"type": MASK, "deep": [f"the {MASK}"]}


def test_a_line_end_is_no_part_of_a_value() -> None:
    assert values_only(["secret123\n"]).text("it is secret123.") == f"it is {MASK}."


PARTS = st.sampled_from(["abcdef", "abcdefgh", "cdefghxyz", "ab", "q", " ", "abcde", "efgh"])


@given(st.lists(PARTS, max_size=12), st.lists(st.integers(1, 9), min_size=1, max_size=20))
def test_no_value_is_shown_in_part_where_one_is_in_another(
    parts: list[str], sizes: list[int]
) -> None:
    mask, text = values_only(["abcdef", "abcdefgh", "cdefghxyz"]), "".join(parts)
    flow, shown, start = StreamRedactor(mask), "", 0
    for size in sizes * len(text):
        shown += flow.feed(text[start : start + size])
        start += size
    assert shown + flow.flush() == mask.text(text)


def test_a_value_is_masked_however_long_what_came_before_it_was() -> None:
    for value in ("hunter2-secret-value", "long" * 3_000):
        flow = StreamRedactor(values_only([value]))
        shown = flow.feed("x" * 70_000 + value[:12]) + flow.feed(value[12:]) + flow.flush()
        assert shown == "x" * 70_000 + MASK


def test_what_a_tool_returned_has_no_frame() -> None:
    entry = {"type": "user", "toolUseResult": {"role": VALUE, "file": {"timestamp": VALUE}}}
    shown = tree(values_only([VALUE]), entry)
    assert shown == {"type": "user", "toolUseResult": {"role": MASK, "file": {"timestamp": MASK}}}
