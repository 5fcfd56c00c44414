"""Putting a stream together again: whatever connections bring, nothing is doubled or lost."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import CaughtUp, Delta, Event
from holdfast.client.reconnecting_feed import Joined, ServerSentEvent, frames
from holdfast.client.transport import split
from holdfast.errors import ServerUnavailable
from holdfast.events import MessageCompleted, MessageInterrupted, to_json
from holdfast.wire import Caught


def said(seq: int, text: str, id: str = "m") -> Event:
    payload = to_json(MessageCompleted(text=text))
    return Event(kind="message.completed", data=payload, id=id, seq=seq, at=0)


async def pieces(*parts: bytes) -> Any:
    for part in parts:
        yield part


@given(st.text(max_size=80), st.lists(st.integers(0, 80)), st.integers(0, 80), st.integers(0, 80))
def test_text_is_whole_wherever_connections_begin_and_end(
    text: str, cuts: list[int], first: int, second: int
) -> None:
    """One connection shows the beginning, a second one all up to its own end, from the start;
    then the message comes."""
    joined, given = Joined(0), ""
    for end in (min(first, len(text)), min(second, len(text))):
        places = sorted({0, *(cut for cut in cuts if cut < end), end})
        for start, stop in itertools.pairwise(places):
            for item in joined.delta(Delta("m", start, text[start:stop])):
                assert isinstance(item, Delta)
                assert item.offset == len(given)
                given += item.text
    *rest, event = joined.event(said(1, text))
    assert event == said(1, text)
    heard = given + "".join(item.text for item in rest if isinstance(item, Delta))
    assert heard == (text if given else "")
    assert joined.event(event) == []


def test_a_message_that_was_not_heard_at_all_is_told_where_all_is_wanted() -> None:
    assert Joined(0).event(said(1, "text")) == [said(1, "text")]
    assert Joined(0, whole=True).event(said(1, "text")) == [Delta("m", 0, "text"), said(1, "text")]


def test_what_is_said_after_the_end_of_a_message_is_no_part_of_it() -> None:
    joined = Joined(0)
    assert joined.delta(Delta("m", 0, "some")) == [Delta("m", 0, "some")]
    data = to_json(MessageInterrupted(text="some"))
    ended = Event(kind="message.interrupted", data=data, id="m", seq=1, at=0)
    assert joined.event(ended) == [ended]
    assert joined.delta(Delta("m", 0, "more")) == []
    assert joined.delta(Delta("m", 0, "more", thought=True)) == []


def test_a_gap_is_never_passed_over() -> None:
    joined = Joined(0)
    with pytest.raises(ServerUnavailable):
        joined.delta(Delta("m", 3, "text"))


def test_the_mark_comes_once_and_moves_the_place() -> None:
    joined = Joined(0)
    assert joined.caught_up(Caught(log="l", head=4, cursor="l.4")) == [CaughtUp("l", 4)]
    assert joined.caught_up(Caught(log="l", head=6, cursor="l.6")) == []
    assert joined.event(said(5, "")) == []


@given(st.integers(1, 9))
async def test_frames_are_read_however_the_bytes_are_cut(size: int) -> None:
    text = (
        b": a comment\n\nid: log.1\nevent: event\ndata: \xe2\x80\xa8{}\n\n"
        b"event: delta\r\ndata: 1\r\n\r\nevent: end\ndata: cut short"
    )
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    found = [frame async for frame in frames(split(pieces(*parts)))]
    assert found == [
        ServerSentEvent("event", b"\xe2\x80\xa8{}", "log.1"),
        ServerSentEvent("delta", b"1"),
    ]
