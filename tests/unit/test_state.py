"""The fold: what a log adds up to, and what it must never add up to."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw

from holdfast import events as ev
from holdfast.events import KINDS, Event, NewEvent, Payload
from holdfast.log.codec import LIMITS, erased
from holdfast.log.state import fold
from holdfast.state import OPEN_CALLS, Excess, OpenCall, OpenItem, Run, State, Window

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


def calling(*ids: str, name: str = "refund") -> NewEvent:
    return fact(ev.MessageCompleted(calls=[ev.Call(id=id, name=name) for id in ids]))


def started(id: str) -> NewEvent:
    return fact(ev.ToolStarted(call=id, name="refund"))


def finished(id: str) -> NewEvent:
    return fact(ev.ToolFinished(call=id), id=f"done:{id}")


def asking(id: str, call: str | None = None) -> NewEvent:
    return fact(ev.PendingOpened(id=id, what="approval", call=call))


def settling(id: str, outcome: str) -> NewEvent:
    payload = msgspec.convert({"id": id, "outcome": outcome}, ev.PendingSettled)
    return fact(payload, id=f"settle:{id}")


def test_an_empty_log_has_an_empty_state() -> None:
    assert fold([]) == State()
    assert State().safe


def test_the_head_is_the_number_of_the_last_event_of_any_kind() -> None:
    facts = [fact(ev.SessionCreated()), NewEvent.of("claude.entry"), fact(ev.MessageReceived())]
    assert fold(log(*facts)).head == 3


def test_events_that_were_folded_before_are_passed_over() -> None:
    events = log(fact(ev.MessageCompleted(usage={"in": 3})), calling("c1"))
    once = fold(events)
    assert fold(events, start=once) == once
    assert once.usage == {"in": 3}


def test_a_fold_leaves_its_start_as_it_was() -> None:
    events = log(calling("c1"), asking("p1"), fact(ev.MessageCompleted(usage={"in": 1})))
    start = fold(events)
    before = msgspec.json.encode(start)
    later = log(*[NewEvent.of("a.b")] * 3, finished("c1"), settling("p1", "answered"), calling("d"))
    fold(later, start)
    assert msgspec.json.encode(start) == before


# Runs


def test_a_run_has_the_status_that_its_last_event_gave_it() -> None:
    events = log(fact(ev.RunStarted(), run="r1"), fact(ev.RunWaiting(due=1), run="r1"))
    at = DAY + 1
    assert fold(events[:1]).run == Run("r1", "running", seq=1, at=at, since=at)
    assert fold(events).run == Run("r1", "waiting", seq=1, at=at, since=at, spent=1)


def test_the_time_of_a_run_that_lost_its_driver_ends_with_what_that_one_wrote_last() -> None:
    events = log(
        fact(ev.RunStarted(driver="a"), run="r1"),
        fact(ev.ModelCalled(model="m"), run="r1"),
        fact(ev.MessageReceived(text="hello?")),  # of somebody else, while nobody drives
        fact(ev.RunResumed(driver="b"), run="r1"),
        fact(ev.RunWaiting(), run="r1"),
        fact(ev.RunResumed(driver="c"), run="r1"),
    )
    times = [DAY + at for at in (0, 10, 5_000, 9_000, 9_100, 20_000)]
    events = [msgspec.structs.replace(e, at=at) for e, at in zip(events, times, strict=True)]
    spent = [run.spent for n in range(1, 7) if (run := fold(events[:n]).run) is not None]
    assert spent == [0, 0, 0, 10, 110, 110]
    again = [NewEvent.of("thread.forked", ev.ThreadForked(parent="main", at=6, agent="a"))]
    assert fold([*events, *log(*[NewEvent.of("a.b")] * 6, *again)[6:]]).driven == 0


@pytest.mark.parametrize("status", ["done", "failed", "aborted", "interrupted"])
def test_a_finished_run_keeps_how_it_ended(status: str) -> None:
    end = fact(msgspec.convert({"status": status}, ev.RunFinished), run="r1")
    state = fold(log(fact(ev.RunStarted(), run="r1"), end))
    assert state.run is not None
    assert (state.run.id, state.run.status) == ("r1", status)
    assert state.safe


def test_a_place_inside_a_run_or_a_wait_is_not_safe() -> None:
    begun = fact(ev.RunStarted(), run="r1")
    assert not fold(log(begun)).safe
    assert not fold(log(begun, fact(ev.RunWaiting(), run="r1"))).safe


# Calls


def test_a_call_is_open_from_its_message_to_its_outcome() -> None:
    events = log(calling("c1", "c2"), finished("c1"))
    state = fold(events)
    assert state.calls == {"c2": OpenCall("refund", seq=1, status="proposed", since=1)}
    assert not state.safe
    assert fold(log(calling("c1"), finished("c1"))).safe


def test_a_started_call_tells_which_event_started_it() -> None:
    state = fold(log(calling("c1"), NewEvent.of("a.b"), started("c1")))
    assert state.calls["c1"] == OpenCall("refund", seq=1, status="started", since=3, started=3)


def test_a_start_or_an_outcome_of_an_unknown_call_changes_nothing() -> None:
    assert fold(log(started("c9"), finished("c9"))).calls == {}


def test_a_second_outcome_changes_nothing() -> None:
    again = fact(ev.ToolFinished(call="c1", outcome="failed"))
    assert fold(log(calling("c1"), finished("c1"), again)).calls == {}


def test_a_call_that_is_told_twice_keeps_what_was_known_of_it() -> None:
    state = fold(log(calling("c1"), started("c1"), calling("c1")))
    assert state.calls["c1"].started == 2


def test_usage_is_added_up_by_name() -> None:
    first = fact(ev.MessageCompleted(usage={"input": 10, "output": 2}))
    second = fact(ev.MessageCompleted(usage={"input": 5, "cached": 4}))
    assert fold(log(first, second)).usage == {"input": 15, "output": 2, "cached": 4}


# Pending items


def test_an_item_is_pending_from_its_opening_to_its_settlement() -> None:
    opened = fact(ev.PendingOpened(id="p1", what="question", title="Which one?", expires=9))
    state = fold(log(opened))
    assert state.pending == {"p1": OpenItem("question", seq=1, at=DAY + 1, expires=9)}
    assert not state.safe
    assert fold(log(opened, settling("p1", "answered"))).pending == {}


def test_an_item_that_is_opened_twice_keeps_its_first_meaning() -> None:
    state = fold(log(calling("c1", "c2"), asking("p1", "c1"), asking("p1", "c2")))
    assert state.pending["p1"].call == "c1"
    assert state.calls["c2"].status == "proposed"


@pytest.mark.parametrize(
    "outcome", ["approved", "denied", "answered", "expired", "superseded", "abandoned"]
)
def test_a_call_takes_over_the_outcome_of_what_was_asked_about_it(outcome: str) -> None:
    asked = log(calling("c1"), asking("p1", "c1"), settling("p1", outcome))
    assert fold(asked[:2]).calls["c1"].status == "waiting"
    call = fold(asked).calls["c1"]
    assert (call.status, call.since, call.seq) == (outcome, 3, 1)


def test_an_item_is_settled_once() -> None:
    twice = log(
        calling("c1"),
        asking("p1", "c1"),
        settling("p1", "denied"),
        fact(ev.PendingSettled(id="p1", outcome="approved")),
    )
    assert fold(twice).calls["c1"].status == "denied"


def test_a_call_with_two_questions_waits_for_both() -> None:
    both = log(
        calling("c1"),
        asking("p1", "c1"),
        asking("p2", "c1"),
        settling("p1", "approved"),
        settling("p2", "approved"),
    )
    assert fold(both[:4]).calls["c1"].status == "waiting"
    assert fold(both).calls["c1"].status == "approved"


def test_of_two_answers_about_a_call_a_no_wins_in_either_order() -> None:
    asked = [calling("c1"), asking("p1", "c1"), asking("p2", "c1")]
    for answers in (("denied", "approved"), ("approved", "denied")):
        settled = [settling(f"p{n}", answer) for n, answer in enumerate(answers, 1)]
        assert fold(log(*asked, *settled)).calls["c1"].status == "denied"


def test_a_call_that_is_asked_about_again_after_an_expiry_can_be_approved() -> None:
    asked = [calling("c1"), asking("p1", "c1"), settling("p1", "expired"), asking("p2", "c1")]
    assert fold(log(*asked, settling("p2", "approved"))).calls["c1"].status == "approved"


def test_a_call_that_was_started_is_remembered_as_such_while_it_waits() -> None:
    asked = log(calling("c1"), started("c1"), asking("p1", "c1"), settling("p1", "answered"))
    call = fold(asked).calls["c1"]
    assert (call.status, call.started) == ("answered", 2)


# Forks


def test_a_fork_begins_with_nothing_open_and_nothing_spent() -> None:
    parent = [
        fact(ev.RunStarted(), run="r1"),
        fact(ev.MessageCompleted(calls=[ev.Call(id="c1", name="t")], usage={"in": 1})),
        asking("p1"),
    ]
    forked = fold(log(*parent, fact(ev.ThreadForked(parent="main", at=3))))
    # What the model has read stays read; nothing else does.
    assert forked == State(head=4, window=Window(tokens=forked.window.tokens, turns=1))


def test_a_fork_does_not_make_an_unknown_event_understood() -> None:
    newer = NewEvent.of("message.translated")
    state = fold(log(newer, fact(ev.ThreadForked(parent="main", at=1))))
    assert state.too_new == 1


# What this version does not understand


@pytest.mark.parametrize(
    "new",
    [
        fact(ev.MessageReceived(text="hi")),
        NewEvent.of("claude.entry", {"any": "thing"}),
        *(NewEvent.of(f"{adapter}.to_come") for adapter in sorted(ev.ADAPTER_NAMESPACES)),
        NewEvent.of("note"),
        NewEvent.of("messages.imported"),
        NewEvent.of("acme.run.started", v=7),
    ],
    ids=lambda new: new.kind,
)
def test_known_and_foreign_kinds_may_be_driven_past(new: NewEvent) -> None:
    assert fold(log(new)).too_new is None


@pytest.mark.parametrize(
    "new",
    [
        NewEvent.of("message.received", v=2),
        NewEvent.of("message.translated"),
        NewEvent.of("run.paused"),
        NewEvent.of("abort.undone"),
        NewEvent.of("queue.edited"),
        NewEvent.of("compaction"),
        *(NewEvent.of(f"{core}.to_come") for core in sorted(ev.CORE_NAMESPACES)),
    ],
    ids=lambda new: new.kind,
)
def test_a_newer_event_of_ours_is_told_so_that_nobody_drives_past_it(new: NewEvent) -> None:
    assert fold(log(NewEvent.of("a.b"), new, NewEvent.of("run.paused"))).too_new == 2


def test_a_newer_version_of_a_known_kind_is_not_read_by_the_old_rules() -> None:
    newer = msgspec.structs.replace(finished("c1"), v=2)
    assert "c1" in fold(log(calling("c1"), newer)).calls


# Erased and damaged events


def test_an_erased_outcome_still_closes_its_call() -> None:
    assert fold(log(calling("c1"), wiped(finished("c1")))).calls == {}


def test_an_erased_settlement_still_settles_and_is_never_a_yes() -> None:
    state = fold(log(calling("c1"), asking("p1", "c1"), wiped(settling("p1", "approved"))))
    assert state.pending == {}
    assert state.calls["c1"].status == "abandoned"


def test_an_erased_start_counts_for_every_call_that_could_have_been_meant() -> None:
    asked = [calling("c1", "c2", "c3"), asking("p3", "c3")]
    state = fold(log(*asked, wiped(started("c1"))))
    assert {id: call.status for id, call in state.calls.items()} == {
        "c1": "started",
        "c2": "started",
        "c3": "waiting",
    }


def test_an_erased_run_event_still_moves_the_run() -> None:
    begun, ended = fact(ev.RunStarted(), run="r1"), fact(ev.RunFinished(), run="r1")
    run = fold(log(wiped(begun))).run
    assert run is not None
    assert (run.id, run.status) == ("r1", "running")
    assert fold(log(wiped(begun), wiped(ended))).safe


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize(
    "data", [b"null", b"[]", b'"text"', b"{}", b'{"calls":7,"id":[],"call":{}}', b"not JSON", b""]
)
def test_data_of_another_shape_never_raises(kind: str, data: bytes) -> None:
    state = fold(log(calling("c1"), asking("p1", "c1"), NewEvent(kind=kind, data=Raw(data))))
    assert state.head == 3


# Bounds


def test_a_log_whose_calls_never_end_keeps_the_latest() -> None:
    facts = [calling(f"c{n}") for n in range(OPEN_CALLS + 50)]
    calls = fold(log(*facts)).calls
    assert list(calls) == [f"c{n}" for n in range(50, OPEN_CALLS + 50)]


def test_calls_that_a_message_has_beyond_the_bound_are_counted_until_they_have_outcomes() -> None:
    ids = [f"c{n}" for n in range(OPEN_CALLS + 2)]
    said = msgspec.structs.replace(calling(*ids), run="r")
    begun = msgspec.structs.replace(fact(ev.RunStarted()), run="r")
    facts = [calling("old"), begun, said]
    state = fold(log(*facts))
    assert list(state.calls) == ids[:OPEN_CALLS]
    assert state.excess == Excess(seq=3, left=2)
    facts += [finished(ids[0]), wiped(finished(ids[-2]))]
    assert fold(log(*facts)).excess == Excess(seq=3, left=1)
    assert fold(log(*facts, finished(ids[-1]))).excess is None
    ended = msgspec.structs.replace(fact(ev.RunFinished(status="aborted")), run="r")
    assert fold(log(*facts, ended)).excess is None


def test_a_log_that_nobody_drives_counts_no_calls_beyond_the_bound() -> None:
    state = fold(log(calling(*(f"c{n}" for n in range(OPEN_CALLS + 2)))))
    assert (len(state.calls), state.excess) == (OPEN_CALLS, None)


def test_usage_keeps_a_bounded_number_of_names() -> None:
    many = {f"n{n}": 1 for n in range(LIMITS.map_entries + 1)}
    facts = [fact(ev.MessageCompleted(usage=many)), fact(ev.MessageCompleted(usage={"n0": 1}))]
    usage = fold(log(*facts)).usage
    assert len(usage) == LIMITS.map_entries
    assert usage["n0"] == 2


def test_a_state_is_plain_json_and_comes_back_equal() -> None:
    state = fold(
        log(
            fact(ev.RunStarted(), run="r1"),
            calling("c1"),
            started("c1"),
            asking("p1", "c1"),
            fact(ev.MessageCompleted(usage={"in": 1})),
            NewEvent.of("run.paused"),
        )
    )
    assert msgspec.json.decode(msgspec.json.encode(state), type=State) == state
