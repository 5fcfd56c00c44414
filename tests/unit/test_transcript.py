"""The transcript and its windows: every call with one outcome or open, every turn whole."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from holdfast import events as ev
from holdfast.errors import InvalidValue
from holdfast.events import KINDS, Event, NewEvent, Payload
from holdfast.log.codec import erased
from holdfast.transcript import (
    Message,
    Outcome,
    ToolCall,
    last_tokens,
    last_turns,
    transcript,
    turns,
)

KIND_OF = {payload: kind for kind, payload in KINDS.items()}
DAY = 1_700_000_000_000


def fact(payload: Payload, *, run: str | None = None, id: str = "") -> NewEvent:
    event = NewEvent.of(KIND_OF[type(payload)], payload, run=run)
    return msgspec.structs.replace(event, id=id) if id else event


def log(*facts: NewEvent) -> list[Event]:
    """The facts as the events of one log."""
    return [
        Event(**msgspec.structs.asdict(new), seq=seq, at=DAY + seq)
        for seq, new in enumerate(facts, 1)
    ]


def wiped(new: NewEvent) -> NewEvent:
    return msgspec.structs.replace(new, data=erased("asked for"))


def user(text: str = "") -> NewEvent:
    return fact(ev.MessageReceived(text=text))


def answer(text: str = "", *, run: str | None = None) -> NewEvent:
    return fact(ev.MessageCompleted(text=text), run=run)


def calling(*ids: str, run: str | None = None) -> NewEvent:
    return fact(ev.MessageCompleted(calls=[ev.Call(id=id, name="refund") for id in ids]), run=run)


def finished(id: str) -> NewEvent:
    return fact(ev.ToolFinished(call=id, result="paid"), id=f"done:{id}")


def only_call(events: list[Event]) -> ToolCall:
    [call] = [call for message in transcript(events) for call in message.calls]
    return call


def test_messages_come_in_order_with_all_that_they_hold() -> None:
    asked = fact(ev.MessageReceived(text="hi", parts=[{"image": "x"}]), id="m1")
    said = fact(ev.MessageCompleted(text="hello", parts=[1]), id="m2")
    cut = fact(ev.MessageInterrupted(text="I was", reason="stopped"), id="m3")
    assert transcript(log(asked, said, cut)) == [
        Message(role="user", id="m1", seq=1, at=DAY + 1, text="hi", parts=[{"image": "x"}]),
        Message(role="assistant", id="m2", seq=2, at=DAY + 2, text="hello", parts=[1]),
        Message(role="assistant", id="m3", seq=3, at=DAY + 3, text="I was", interrupted=True),
    ]


def test_other_kinds_known_or_not_add_no_message() -> None:
    facts = [fact(ev.SessionCreated()), fact(ev.RunStarted()), NewEvent.of("message.translated")]
    assert transcript(log(*facts, NewEvent.of("claude.entry"))) == []


def test_a_call_is_open_then_started_then_has_its_outcome() -> None:
    call = ev.Call(id="c1", name="refund", arguments={"order": "42"}, provider_id="toolu_1")
    begun = fact(ev.ToolStarted(call="c1", name="refund"))
    ended = fact(ev.ToolFinished(call="c1", outcome="failed", result=[1], error="no money"))
    events = log(fact(ev.MessageCompleted(calls=[call])), begun, ended)
    shown = ToolCall(
        id="c1", name="refund", arguments={"order": "42"}, provider_id="toolu_1", started=False
    )
    assert only_call(events[:1]) == shown
    assert only_call(events[:2]) == msgspec.structs.replace(shown, started=True)
    outcome = Outcome(outcome="failed", seq=3, at=DAY + 3, result=[1], error="no money")
    assert only_call(events) == msgspec.structs.replace(shown, started=True, outcome=outcome)


def test_the_first_outcome_of_a_call_counts() -> None:
    second = fact(ev.ToolFinished(call="c1", outcome="failed"))
    outcome = only_call(log(calling("c1"), finished("c1"), second)).outcome
    assert outcome is not None
    assert (outcome.outcome, outcome.seq) == ("ok", 2)


def test_a_call_that_is_told_twice_while_open_is_one_call() -> None:
    messages = transcript(log(calling("c1", "c1"), calling("c1"), finished("c1")))
    assert [len(message.calls) for message in messages] == [1, 0]
    assert messages[0].calls[0].outcome is not None


def test_an_outcome_whose_call_is_before_the_window_is_left_out() -> None:
    events = log(calling("c1"), finished("c1"), user("and now?"))
    assert [message.text for message in transcript(events[1:])] == ["and now?"]


def test_an_outcome_goes_to_its_call_whatever_came_between() -> None:
    facts = [calling("c1", "c2"), user("hurry"), finished("c2"), user("please"), finished("c1")]
    seqs = [
        call.outcome.seq
        for message in transcript(log(*facts))
        for call in message.calls
        if call.outcome
    ]
    assert seqs == [5, 3]


def test_a_call_that_was_open_where_a_fork_began_stays_open_in_it() -> None:
    forked = fact(ev.ThreadForked(parent="main", at=1))
    assert only_call(log(calling("c1"), forked, finished("c1"))).outcome is None


def test_an_erased_message_is_shown_as_erased() -> None:
    shown = transcript(log(wiped(user("secret")), wiped(calling("c1")), finished("c1")))
    assert [(message.role, message.erased, message.text) for message in shown] == [
        ("user", "asked for", ""),
        ("assistant", "asked for", ""),
    ]
    assert shown[1].calls == []


def test_an_erased_outcome_still_closes_its_call() -> None:
    outcome = only_call(log(calling("c1"), wiped(finished("c1")))).outcome
    assert outcome == Outcome(outcome="erased", seq=2, at=DAY + 2)


def test_an_erased_start_counts_for_every_open_call() -> None:
    begun = wiped(fact(ev.ToolStarted(call="c1", name="refund")))
    [message] = transcript(log(calling("c1", "c2"), begun))
    assert [call.started for call in message.calls] == [True, True]


@pytest.mark.parametrize(("v", "data"), [(2, '{"text":"hi"}'), (1, '{"text":5}'), (1, "[1]")])
def test_a_message_that_this_version_cannot_read_is_shown_raw(v: int, data: str) -> None:
    [message] = transcript(log(NewEvent(kind="message.received", v=v, data=Raw(data))))
    assert message.role == "user"
    assert message.raw == msgspec.json.decode(data)


def test_an_outcome_that_this_version_cannot_read_is_unknown_and_keeps_its_data() -> None:
    data = {"call": "c1", "outcome": "timed_out"}
    outcome = only_call(
        log(calling("c1"), NewEvent.of("tool.finished", data, id="done:c1"))
    ).outcome
    assert outcome == Outcome(outcome="unknown", seq=2, at=DAY + 2, result=data)


def test_data_that_is_not_json_is_shown_as_text() -> None:
    [message] = transcript(log(NewEvent(kind="message.received", data=Raw(b"not JSON"))))
    assert message.raw == "not JSON"


def test_a_transcript_is_plain_json_and_comes_back_equal() -> None:
    messages = transcript(log(user("hi"), calling("c1", "c2"), finished("c1"), wiped(user())))
    assert msgspec.json.decode(msgspec.json.encode(messages), type=list[Message]) == messages


# Windows


def numbers(events: list[Event]) -> list[list[int]]:
    return [[event.seq for event in turn] for turn in turns(events)]


def test_no_events_are_no_turns() -> None:
    assert turns([]) == []
    assert last_turns([], 3) == []
    assert last_tokens([], 0) == []


def test_a_turn_goes_from_a_users_message_to_the_next() -> None:
    assert numbers(log(user(), answer(), user(), answer())) == [[1, 2], [3, 4]]


def test_what_leads_in_belongs_to_the_first_turn() -> None:
    facts = [fact(ev.SessionCreated()), answer("Hello, I am here."), user(), answer(), user()]
    assert numbers(log(*facts)) == [[1, 2, 3, 4], [5]]


def test_messages_that_wait_for_one_answer_are_one_turn() -> None:
    assert numbers(log(user(), user(), answer(), user())) == [[1, 2, 3], [4]]


def test_a_message_between_a_call_and_its_outcome_begins_no_turn() -> None:
    facts = [user(), calling("c1"), user(), finished("c1"), user(), answer(), user()]
    assert numbers(log(*facts)) == [[1, 2, 3, 4, 5, 6], [7]]


def test_a_message_between_an_outcome_and_the_answer_begins_no_turn() -> None:
    facts = [user(), calling("c1"), finished("c1"), user(), answer(), user()]
    assert numbers(log(*facts)) == [[1, 2, 3, 4, 5], [6]]


def test_a_message_during_a_run_or_its_wait_begins_no_turn() -> None:
    facts = [
        user(),
        fact(ev.RunStarted(inputs=[1]), run="r1"),
        answer("step", run="r1"),
        user(),
        fact(ev.RunWaiting(), run="r1"),
        user(),
        fact(ev.RunFinished(), run="r1"),
        user(),
    ]
    assert numbers(log(*facts)) == [[1, 2, 3, 4, 5, 6, 7], [8]]


def test_a_message_while_something_is_pending_begins_no_turn() -> None:
    facts = [user(), answer(), fact(ev.PendingOpened(id="p1", what="access")), user(), answer()]
    settled = fact(ev.PendingSettled(id="p1", outcome="answered"))
    assert numbers(log(*facts, settled, user())) == [[1, 2, 3, 4, 5, 6], [7]]


def test_a_message_that_is_left_to_the_next_run_keeps_its_turn_open() -> None:
    facts = [
        user(),
        fact(ev.RunStarted(inputs=[1]), run="r1"),
        user(),
        user(),
        fact(ev.RunFinished(due=DAY), run="r1"),
        user(),
        fact(ev.RunStarted(inputs=[3, 6]), run="r2"),
        fact(ev.RunFinished(due=DAY), run="r2"),
        user(),
        fact(ev.RunStarted(inputs=[4, 9]), run="r3"),
        fact(ev.RunFinished(due=DAY), run="r3"),
        user(),
    ]
    assert numbers(log(*facts)) == [list(range(1, 12)), [12]]


def test_a_run_that_leaves_nothing_to_do_answers_all_that_came_before() -> None:
    begun = fact(ev.RunStarted(inputs=[1]), run="r1")
    steered = [user(), begun, user("no, the other one"), fact(ev.RunFinished(), run="r1"), user()]
    assert numbers(log(*steered)) == [[1, 2, 3, 4], [5]]


def test_a_run_that_failed_ends_its_turn() -> None:
    begun = fact(ev.RunStarted(), run="r1")
    failed = fact(ev.RunFinished(status="failed"), run="r1")
    assert numbers(log(user(), begun, failed, user())) == [[1, 2, 3], [4]]


def test_an_interrupted_answer_ends_its_turn() -> None:
    assert numbers(log(user(), fact(ev.MessageInterrupted()), user())) == [[1, 2], [3]]


@pytest.mark.parametrize("unseen", [wiped(answer()), NewEvent.of("message.completed", v=2)])
def test_an_answer_that_cannot_be_read_may_have_called_so_it_ends_no_turn(unseen: NewEvent) -> None:
    assert numbers(log(user(), unseen, user(), answer(), user())) == [[1, 2, 3, 4], [5]]


LONG = [user("x" * 389), answer("y" * 389)]  # 400 bytes of data each


@pytest.mark.parity("user-demand", 47)
def test_windows_of_turns_and_of_tokens_never_split_a_pair_or_a_turn() -> None:
    turn = [user(), calling("c1"), user("more"), finished("c1"), answer()]
    ids = [[calling(f"c{n}"), finished(f"c{n}")] for n in range(5)]
    facts = [new for pair in ids for new in (turn[0], pair[0], turn[2], pair[1], turn[4])]
    events = log(*(msgspec.structs.replace(new, id=f"{n}") for n, new in enumerate(facts)))
    windows = [last_turns(events, number) for number in range(1, 7)]
    windows += [last_tokens(events, tokens) for tokens in range(200)]
    windows += [last_tokens(events, tokens, count=lambda event: 1) for tokens in range(30)]
    for window in windows:
        assert window[-1] is events[-1]
        assert (len(events) - window[0].seq + 1) % 5 == 0  # whole turns
        calls = [call for message in transcript(window) for call in message.calls]
        assert len(calls) == len(window) // 5
        assert all(call.outcome is not None for call in calls)
    assert {len(window) for window in windows} == {5, 10, 15, 20, 25}


def test_the_last_turns_are_all_of_them_when_there_are_fewer() -> None:
    events = log(fact(ev.SessionCreated()), user(), answer(), user(), answer())
    assert last_turns(events, 1) == events[3:]
    assert last_turns(events, 2) == events
    assert last_turns(events, 9) == events


def test_as_many_last_turns_as_fit_into_the_tokens_are_kept() -> None:
    events = log(*LONG * 3)
    assert {len(event.data) for event in events} == {400}
    assert last_tokens(events, 400) == events[2:]
    assert last_tokens(events, 399) == events[4:]
    assert last_tokens(events, 600) == events


def test_the_last_turn_is_kept_even_if_it_does_not_fit() -> None:
    events = log(*LONG * 3)
    assert last_tokens(events, 0) == events[4:]


def test_tokens_are_counted_as_the_caller_says() -> None:
    events = log(user(), answer(), user(), answer(), user(), answer())
    assert last_tokens(events, 4, count=lambda event: 1) == events[2:]


@pytest.mark.parametrize("number", [0, -1, True, 1.5, None])
def test_a_window_of_no_turns_is_refused(number: int) -> None:
    with pytest.raises(InvalidValue, match="number"):
        last_turns([], number)


def test_a_window_of_less_than_no_tokens_is_refused() -> None:
    with pytest.raises(InvalidValue, match="tokens"):
        last_tokens([], -1)


# Messages that waited


def requeued(**changes: Any) -> NewEvent:
    return fact(ev.QueueChanged(**changes))


def taken(*seqs: int, run: str = "r") -> NewEvent:
    return fact(ev.RunStarted(inputs=[*seqs]), run=run)


def words(*facts: NewEvent) -> list[str]:
    return [message.text for message in transcript(log(*facts))]


def test_a_message_has_the_words_that_it_had_at_last() -> None:
    first, second = requeued(texts={"2": "B"}), requeued(texts={"2": "C", "9": "?", "x": "?"})
    assert words(user("a"), user("b"), first, second) == ["a", "C"]


def test_a_message_that_was_taken_out_is_left_out() -> None:
    facts = [user("a"), user("b"), requeued(remove=[1]), taken(2), answer("done", run="r")]
    assert words(*facts) == ["b", "done"]


def test_what_a_run_has_taken_up_stays_as_it_was() -> None:
    late = requeued(remove=[1, 2], texts={"1": "A", "3": "C"})
    joined = fact(ev.ModelCalled(model="m", step=2, inputs=[2]), run="r")
    assert words(user("a"), user("b"), user("c"), taken(1), joined, late) == ["a", "b", "C"]


def test_an_order_changes_no_words_and_no_places() -> None:
    assert words(user("a"), user("b"), requeued(order=[2, 1])) == ["a", "b"]


def test_only_messages_of_people_are_changed() -> None:
    change = requeued(remove=[2], texts={"2": "other"})
    assert words(user("a"), answer("said"), change) == ["a", "said"]


def test_what_was_erased_or_cannot_be_read_is_not_changed() -> None:
    change = requeued(texts={"1": "other"})
    assert transcript(log(wiped(user("a")), change))[0].text == ""
    assert words(user("a"), wiped(change)) == ["a"]


def test_windows_are_cut_as_before() -> None:
    events = log(user("a"), user("b"), requeued(remove=[2]), taken(1), answer(run="r"))
    assert turns(events) == [events]
