"""Is my message done? The watch over the events of a log, case by case."""

from __future__ import annotations

from itertools import pairwise

import pytest

from holdfast import events as ev
from holdfast.events import Event, Key, NewEvent
from holdfast.log.events.ids import child_item
from holdfast.log.state import FINAL, fold
from holdfast.values.result import ResultStatus
from holdfast.values.stream_items import CaughtUp, Trouble
from holdfast.values.watch import MessageWatch, Rest, asks_within, delegates, rest

from .test_state import fact, log, settling

KEY = Key("t", "s", "main")
SENT = fact(ev.MessageReceived(text="Refund order 42"))  # event 1, the message that is watched
BEGUN = fact(ev.RunStarted(inputs=[1]), run="r1")
CALLED = fact(ev.MessageCompleted(text="", calls=[ev.Call(id="c", name="refund")]), run="r1")
SAID = fact(ev.MessageCompleted(text="Refunded."), run="r1")
WAITING = fact(ev.RunWaiting(), run="r1")
RESUMED = fact(ev.RunResumed(), run="r1")
DONE = fact(ev.RunFinished(), run="r1")
OTHER = fact(ev.RunStarted(inputs=[9]), run="r9")


def opened(id: str) -> NewEvent:
    return fact(ev.PendingOpened(id=id, what="approval", call="c"), run="r1")


def finished(status: ResultStatus, code: str | None = None) -> NewEvent:
    assert status in ("done", "failed", "aborted", "interrupted")
    return fact(ev.RunFinished(status=status, code=code), run="r1")


# What follows the message, and how it stands then; None: it goes on.
CASES: dict[str, tuple[list[NewEvent], ResultStatus | None]] = {
    "nothing yet": ([], None),
    "another run": ([OTHER], None),
    "picked up": ([BEGUN], None),
    "joined a run by a model call": (
        [OTHER, fact(ev.ModelCalled(model="m", inputs=[1]), run="r9")],
        None,
    ),
    "done": ([BEGUN, SAID, DONE], "done"),
    "failed": ([BEGUN, finished("failed", "limit_steps")], "failed"),
    "aborted": ([BEGUN, finished("aborted", "aborted")], "aborted"),
    "interrupted": ([BEGUN, finished("interrupted", "interrupted")], "interrupted"),
    "another run ended": ([OTHER, fact(ev.RunFinished(), run="r9")], None),
    "waits for a person": ([BEGUN, CALLED, opened("p"), WAITING], "waiting"),
    "goes on with the answer": (
        [BEGUN, CALLED, opened("p"), WAITING, settling("p", "approved"), RESUMED],
        None,
    ),
    "waits for a sub-agent": ([BEGUN, CALLED, opened(child_item("c")), WAITING], None),
    "waits for a sub-agent and a person": (
        [BEGUN, CALLED, opened(child_item("c")), opened("p"), WAITING],
        "waiting",
    ),
    "handed over to another driver": (
        [BEGUN, fact(ev.RunWaiting(reason="handover"), run="r1")],
        None,
    ),
    "taken out of the queue": ([fact(ev.QueueChanged(remove=[1]))], "removed"),
    "another was taken out": ([fact(ev.QueueChanged(remove=[2]))], None),
}


def watched(*facts: NewEvent, run: str | None = None) -> tuple[MessageWatch, list[Event]]:
    watch = MessageWatch(KEY, run=run) if run else MessageWatch(KEY, 1)
    events = log(SENT, *facts)
    for event in events:
        watch.see(event)
    return watch, events


@pytest.mark.parametrize("case", CASES)
def test_how_a_message_stands_is_read_off_the_events(case: str) -> None:
    facts, status = CASES[case]
    watch, events = watched(*facts)
    assert (None if watch.end is None else watch.end.status) == status
    if watch.end is not None:
        assert watch.end.seq == events[-1].seq
        assert watch.end.final == (status != "waiting")


@pytest.mark.parametrize("case", CASES)
def test_the_answer_is_the_same_with_the_newest_state(case: str) -> None:
    facts, status = CASES[case]
    watch, events = watched(*facts)
    state = fold(events)
    quiet: Rest | None = "waiting" if status == "waiting" else None
    assert watch.is_done(state, lambda: quiet, newest=True) == (status is not None)


def test_a_run_is_watched_by_its_id_alone() -> None:
    watch, _ = watched(BEGUN, SAID, DONE, run="r1")
    assert watch.end is not None
    assert (watch.end.status, watch.text) == ("done", "Refunded.")


def test_only_what_belongs_to_the_message_is_shown() -> None:
    watch = MessageWatch(KEY, 1)
    shown = [watch.see(event) for event in log(SENT, OTHER, BEGUN, SAID)]
    assert shown == [True, False, True, True]
    assert watch.see(Trouble("store_unavailable", ""))
    assert watch.see(CaughtUp("l", 4))
    assert not MessageWatch(KEY, 1).see(CaughtUp("l", 4))


def test_a_queued_message_is_done_when_only_a_person_can_bring_it_on() -> None:
    watch, events = watched()
    state = fold(events)
    assert not watch.is_done(state, lambda: None)
    assert watch.is_done(state, lambda: "waiting")
    assert watch.end is not None
    assert (watch.end.status, watch.end.final) == ("queued", False)
    again, _ = watched()
    assert again.is_done(state, lambda: None, asked=True), "a sub-agent of the run asks"
    assert not again.is_done(state, lambda: None), "the sub-agent was answered"
    assert again.end is None


def test_a_run_that_waited_is_not_done_once_the_state_went_on() -> None:
    before = [BEGUN, CALLED, opened("p"), WAITING]
    watch, events = watched(*before)
    assert watch.is_done(fold(events), lambda: "waiting")
    settled = log(SENT, *before, settling("p", "approved"))
    assert not watch.is_done(fold(settled), lambda: None)
    over = log(SENT, *before, settling("p", "approved"), RESUMED, DONE)
    assert not watch.is_done(fold(over), lambda: "finished"), "its end is yet to be seen"
    for event in over[len(events) :]:
        watch.see(event)
    assert watch.is_done(fold(over), lambda: "finished")
    assert watch.end is not None
    assert watch.end.status == "done"


def test_a_sub_agent_that_asks_a_person_makes_the_run_wait() -> None:
    watch, events = watched(BEGUN, CALLED, opened(child_item("c")), WAITING)
    state = fold(events)
    assert delegates(state)
    assert rest(state, idle=True) is None
    assert not watch.is_done(state, lambda: None, newest=True)
    assert not watch.is_done(state, lambda: None, asked=True), "more events are to come"
    assert watch.is_done(state, lambda: None, asked=True, newest=True)
    assert watch.end is not None
    assert (watch.end.status, watch.end.seq) == ("waiting", state.head)


def test_a_call_within_a_call_that_asks_makes_the_run_wait() -> None:
    nested = fact(ev.ToolNested(call=ev.Call(id="n", name="pay"), parent="c"), run="r1")
    asks = fact(ev.PendingOpened(id="p", what="approval", call="n"), run="r1")
    begun = fact(ev.ToolStarted(call="c", name="refund"), run="r1")
    watch, events = watched(BEGUN, CALLED, begun, nested, asks)
    state = fold(events)
    assert asks_within(state)
    assert rest(state, idle=False) == "waiting"
    assert not watch.is_done(state, lambda: "waiting"), "more events are to come"
    assert watch.is_done(state, lambda: "waiting", newest=True)


def test_a_log_rests_when_there_is_nothing_to_do() -> None:
    assert rest(fold([]), idle=True) == "finished"
    assert rest(fold([]), idle=False) is None
    assert rest(fold(log(SENT, BEGUN, CALLED, opened("p"), WAITING)), idle=True) == "waiting"


def test_the_result_has_what_was_said_and_used() -> None:
    final = ev.MessageCompleted(calls=[ev.Call(id="f", name=FINAL)], usage={"input_tokens": 3})
    answer = fact(ev.ToolFinished(call="f", result={"value": 1}), run="r1", id="done:f")
    watch, _ = watched(BEGUN, fact(final, run="r1"), answer, finished("failed", "limit_cost"))
    cause = ValueError("x")
    result = watch.result((), "shop", "default", lambda value: value["value"], {"r1": cause})
    assert (result.status, result.code, result.output) == ("failed", "limit_cost", 1)
    assert (result.usage, result.cause, result.seq) == ({"input_tokens": 3}, cause, 5)


def test_a_result_before_the_end_says_so() -> None:
    assert watched()[0].result((), "", "").status == "done"
    assert watched(BEGUN)[0].result((), "", "").status == "interrupted"


def test_the_same_events_one_by_one_never_go_back_from_an_end() -> None:
    watch, seen = MessageWatch(KEY, 1), list[bool]()
    for event in log(SENT, BEGUN, CALLED, opened("p"), WAITING, RESUMED, SAID, DONE, OTHER):
        watch.see(event)
        seen.append(watch.end is not None and watch.end.final)
    assert all(later or not earlier for earlier, later in pairwise(seen))
    assert seen[-1]
