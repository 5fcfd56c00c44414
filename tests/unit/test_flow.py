"""Values that are not to be shown, in text that comes in pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.claude.masking import tree
from holdfast.redact import Flow, values_only

VALUE = "abcabcabd"
MASK = "[redacted]"


@given(st.text("abcd", max_size=30), st.lists(st.integers(0, 60), max_size=8))
def test_a_value_is_masked_wherever_it_is_cut(around: str, cuts: list[int]) -> None:
    mask = values_only([VALUE, VALUE[:7], "abc"])
    text = f"{around}{VALUE}{around}{VALUE[:7]}{around}"
    flow, shown, start = Flow(mask), "", 0
    for cut in sorted({*(cut for cut in cuts if cut < len(text)), len(text)}):
        shown += flow.more(text[start:cut])
        start = cut
    shown += flow.rest()
    assert VALUE[:7] not in shown
    assert shown.count(MASK) >= 2


@given(st.lists(st.text("abcd", max_size=5)))
def test_nothing_else_is_lost_and_without_values_nothing_waits(pieces: list[str]) -> None:
    free = Flow(values_only([]))
    assert [free.more(piece) for piece in pieces] == pieces
    flow = Flow(values_only(["xabcdx"]))
    assert "".join([*map(flow.more, pieces), flow.rest()]) == "".join(pieces)


def test_entries_are_masked_through_and_through() -> None:
    entry = {"uuid": "1", VALUE: [{"text": f"is {VALUE}."}, 3, None, True]}
    masked = {"uuid": "1", MASK: [{"text": f"is {MASK}."}, 3, None, True]}
    assert tree(values_only([VALUE]), entry) == masked
