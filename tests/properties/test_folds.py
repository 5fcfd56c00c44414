"""Laws of whatever is folded or projected from a log: state, transcript, windows and rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import events as ev
from holdfast.events import KINDS, Event, NewEvent, Payload
from holdfast.log.catalog import Row, apply, project
from holdfast.log.codec import erased
from holdfast.log.state import fold
from holdfast.state import OPEN_CALLS, State
from holdfast.transcript import Message, ToolCall, last_tokens, last_turns, transcript, turns

KIND_OF = {payload: kind for kind, payload in KINDS.items()}
NOW = 1_700_000_000_000


def fact(payload: Payload, run: str | None = None, id: str = "") -> NewEvent:
    return NewEvent.of(KIND_OF[type(payload)], payload, run=run, id=id)


def other(kind: str, payload: Any = None) -> NewEvent:
    return NewEvent.of(kind, payload, id="")


def numbered(facts: Iterable[NewEvent]) -> list[Event]:
    """The facts as the events of one log; those without an id get one from their number."""
    return [
        Event(**{**msgspec.structs.asdict(new), "id": new.id or f"e{seq}"}, seq=seq, at=NOW + seq)
        for seq, new in enumerate(facts, 1)
    ]


def calling(ids: list[str], spent: int, run: str | None) -> NewEvent:
    calls = [ev.Call(id=id, name="refund") for id in ids]
    return fact(ev.MessageCompleted(text="…", calls=calls, usage={"in": spent}), run)


def settling(id: str, outcome: str) -> NewEvent:
    return fact(
        msgspec.convert({"id": id, "outcome": outcome}, ev.PendingSettled), None, "settle:" + id
    )


def finishing(id: str, outcome: str) -> NewEvent:
    return fact(
        msgspec.convert({"call": id, "outcome": outcome}, ev.ToolFinished), None, "done:" + id
    )


# Few ids, so that events meet: calls told twice, outcomes before their calls, second answers.
CALLS, ITEMS, RUNS = ("c1", "c2"), ("p1", "p2"), (None, "r1")
PLAIN = [
    *[fact(ev.MessageReceived(text=text)) for text in ("", "hi", "x" * 99)],
    *[calling(list(ids), 3, run) for ids in ("", CALLS[:1], CALLS, ("c2", "c2")) for run in RUNS],
    *[fact(ev.MessageInterrupted(text="I"), run) for run in RUNS],
    *[fact(ev.ToolStarted(call=id, name="refund")) for id in CALLS],
    *[finishing(id, outcome) for id in CALLS for outcome in ("ok", "failed")],
    *[
        fact(ev.PendingOpened(id=id, what="approval", call=call))
        for id in ITEMS
        for call in (*CALLS, None)
    ],
    *[settling(id, outcome) for id in ITEMS for outcome in ("approved", "denied", "expired")],
    *[fact(ev.RunStarted(inputs=inputs), run) for run in RUNS for inputs in ([], [1, 2, 3])],
    *[fact(ev.RunWaiting(), run) for run in RUNS],
    *[fact(ev.RunFinished(due=due), run) for run in RUNS for due in (None, NOW)],
    fact(ev.LabelAdded(label="vip")),
    fact(ev.LabelRemoved(label="vip")),
    fact(ev.MetadataChanged(set={"a": 1}, drop=["b"])),
    other("claude.entry", {"any": 1}),
]
# What else a log may hold: forks, newer versions, what was erased and what has another shape.
ODD = [
    fact(ev.ThreadForked(parent="main", at=1)),
    other("run.paused"),
    *[msgspec.structs.replace(new, v=2) for new in PLAIN],
    *[msgspec.structs.replace(new, data=erased("asked for")) for new in PLAIN],
    *[other(kind, [None]) for kind in KINDS],
]


def logs(facts: st.SearchStrategy[NewEvent]) -> st.SearchStrategy[list[Event]]:
    # Long logs as often as short ones: what goes wrong needs several events that meet.
    sizes = st.integers(0, 40)
    return sizes.flatmap(lambda n: st.lists(facts, min_size=n, max_size=n)).map(numbered)


PLAIN_LOGS = logs(st.sampled_from(PLAIN))
LOGS = logs(st.sampled_from(PLAIN * 9 + ODD))
CUTS = st.integers(0, 40)


# State


@given(log=LOGS, cut=CUTS)
def test_folding_in_two_parts_is_folding_at_once(log: list[Event], cut: int) -> None:
    assert fold(log[cut:], start=fold(log[:cut])) == fold(log)


@given(log=LOGS)
def test_folding_one_event_at_a_time_is_folding_at_once(log: list[Event]) -> None:
    assert reduce(lambda state, event: fold([event], state), log, State()) == fold(log)


@given(log=LOGS, cut=CUTS)
def test_a_snapshot_changes_no_result(log: list[Event], cut: int) -> None:
    saved = msgspec.json.encode(fold(log[:cut]))
    start = msgspec.json.decode(saved, type=State)
    assert start == fold(log[:cut])
    # What a snapshot has seen may be read again.
    assert fold(log, start) == fold(log[cut:], start) == fold(log)


@given(log=PLAIN_LOGS, data=st.data())
def test_erasing_an_event_opens_nothing_that_was_closed(
    log: list[Event], data: st.DataObject
) -> None:
    names = [seq for seq, event in enumerate(log) if event.id.startswith(("done:", "settle:"))]
    if not names:
        return
    at = data.draw(st.sampled_from(names))
    wiped = [*log[:at], msgspec.structs.replace(log[at], data=erased("asked for")), *log[at + 1 :]]
    before, after = fold(log), fold(wiped)
    assert set(after.calls) == set(before.calls)
    assert set(after.pending) == set(before.pending)
    approved = {id for id, call in before.calls.items() if call.status == "approved"}
    assert {id for id, call in after.calls.items() if call.status == "approved"} <= approved


def test_a_state_stays_under_64_kb_at_100_000_events() -> None:
    ids = (f"{n:08x}-0000-7000-8000-000000000000" for n in count())

    def turn(run: str) -> Iterator[NewEvent]:
        call = next(ids)
        yield fact(ev.MessageReceived(text="x" * 100))
        yield fact(ev.RunStarted(driver="worker"), run)
        calls = [
            ev.Call(id=call, name="search_the_orders_of_a_customer", arguments={"q": "x" * 99})
        ]
        yield fact(ev.MessageCompleted(calls=calls, usage={"input": 9, "output": 9}), run)
        yield fact(ev.PendingOpened(id=call, what="approval", call=call, title="t" * 99))
        yield settling(call, "approved")
        yield fact(ev.ToolStarted(call=call, name="search_the_orders_of_a_customer"), run)
        yield finishing(call, "ok")
        yield fact(ev.RunFinished(), run)

    def facts() -> Iterator[NewEvent]:
        for _ in range(12_400):
            yield from turn(next(ids))
        # As much as can be open at once: calls that never end, a hundred questions.
        yield fact(ev.RunStarted(driver="worker"), next(ids))
        for _ in range(OPEN_CALLS + 144):
            name = "search_the_orders_of_a_customer"
            yield fact(ev.MessageCompleted(calls=[ev.Call(id=(call := next(ids)), name=name)]))
        for _ in range(100):
            yield fact(ev.PendingOpened(id=next(ids), what="external", call=call, expires=NOW))
            yield fact(ev.ToolStarted(call=call, name=name))
            yield other("claude.entry", {"any": "thing"})

    log = numbered(facts())
    assert len(log) >= 99_900
    state = fold(log)
    assert len(state.calls) == OPEN_CALLS
    assert len(state.pending) == 100
    assert len(msgspec.json.encode(state)) < 64_000
    assert len(msgspec.json.encode(fold(log[:99_200]))) < 500


# Transcript


def all_calls(messages: list[Message]) -> list[tuple[Message, ToolCall]]:
    return [(message, call) for message in messages for call in message.calls]


@given(log=PLAIN_LOGS, start=CUTS, end=CUTS)
def test_wherever_a_log_is_cut_each_call_has_exactly_its_first_outcome_or_is_open(
    log: list[Event], start: int, end: int
) -> None:
    window = log[start:end]
    ends = [
        (event.payload(ev.ToolFinished).call, event)
        for event in window
        if event.kind == "tool.finished"
    ]
    taken = set()
    for message, call in all_calls(transcript(window)):
        later = [event.seq for id, event in ends if id == call.id and event.seq > message.seq]
        assert (call.outcome.seq if call.outcome else None) == min(later, default=None)
        if call.outcome:
            assert call.outcome.seq not in taken
            taken.add(call.outcome.seq)


@given(log=LOGS, start=CUTS, end=CUTS)
def test_any_window_of_any_log_has_a_transcript(log: list[Event], start: int, end: int) -> None:
    messages = transcript(log[start:end])
    outcomes = [call.outcome.seq for _, call in all_calls(messages) if call.outcome]
    assert len(outcomes) == len(set(outcomes))
    assert [message.seq for message in messages] == [
        event.seq
        for event in log[start:end]
        if event.kind in ("message.received", "message.completed", "message.interrupted")
    ]
    assert msgspec.json.decode(msgspec.json.encode(messages), type=list[Message]) == messages


@given(log=PLAIN_LOGS)
def test_the_transcript_shows_as_open_what_the_state_holds_open(log: list[Event]) -> None:
    open = [call for _, call in all_calls(transcript(log)) if call.outcome is None]
    calls = fold(log).calls
    assert [call.id for call in open] == list(calls)
    assert [call.started for call in open] == [call.started is not None for call in calls.values()]


@given(log=LOGS, cut=CUTS)
def test_more_events_take_nothing_back(log: list[Event], cut: int) -> None:
    early, late = transcript(log[:cut]), transcript(log)
    assert [message.id for message in early] == [message.id for message in late[: len(early)]]
    for (_, before), (_, after) in zip(all_calls(early), all_calls(late), strict=False):
        assert before.outcome is None or after == before


# Windows


@given(log=LOGS)
def test_turns_are_the_whole_log_and_no_cut_splits_a_pair(log: list[Event]) -> None:
    cut = turns(log)
    assert [event for turn in cut for event in turn] == log
    assert all(turn[0].kind == "message.received" for turn in cut[1:])
    assert [message for turn in cut for message in transcript(turn)] == transcript(log)
    assert all(fold(log[: turn[0].seq - 1]).safe for turn in cut[1:])


@given(log=LOGS, number=st.integers(1, 9), tokens=st.integers(0, 60))
def test_a_window_is_made_of_the_last_turns(log: list[Event], number: int, tokens: int) -> None:
    cut = turns(log)
    starts = {len(log)} | {turn[0].seq - 1 for turn in cut}
    by_turns, by_tokens = last_turns(log, number), last_tokens(log, tokens)
    for window in (by_turns, by_tokens):
        assert len(log) - len(window) in starts
        assert window == log[len(log) - len(window) :]
    assert by_turns == [event for turn in cut[-number:] for event in turn]
    size = sum(len(event.data) // 4 for event in by_tokens)
    assert size <= tokens or by_tokens == (cut[-1] if cut else [])


# Rows


@given(log=LOGS.filter(bool), data=st.data())
def test_applying_in_two_batches_is_applying_at_once(log: list[Event], data: st.DataObject) -> None:
    row = Row(tenant="main", session="s", thread="main", log="l", ttl=60)
    changes = [project(event) for event in log]
    cut = data.draw(st.integers(1, len(log)))
    first = apply(row, log[:cut], changes[:cut])
    second = apply(first, log[cut:], changes[cut:]) if log[cut:] else first
    assert second == apply(row, log, changes)


@pytest.mark.parity("user-demand", 24, 72)
@given(log=PLAIN_LOGS.filter(bool))
def test_row_and_state_tell_the_same(log: list[Event]) -> None:
    row = Row(tenant="main", session="s", thread="main", log="l")
    row = apply(row, log, [project(event) for event in log])
    state = fold(log)
    assert row.head == state.head
    assert row.run == (state.run.status if state.run else None)
    assert set(row.pending) == set(state.pending)
    assert row.usage == state.usage
