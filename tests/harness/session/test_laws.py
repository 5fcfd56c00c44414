"""Laws of the display, for any log whatever: made anew it is what it was, and a client that goes
on from any moment comes to the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.events import Event, NewEvent
from holdfast.values.display import Display, from_json, reduce, to_json

from .stage import anew, played

CALLS = st.sampled_from(["c1", "c2", "c3"])
ITEMS = st.sampled_from(["i1", "i2", "c1!sub"])
RUNS = st.sampled_from(["r1", "r2", None])
NAMED = Display(session="s", modes={"plan": "p/p", "build": None}, default="d/d")


def of(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, Any]]:
    return st.tuples(st.just(kind), st.fixed_dictionaries(fields))


CALL: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict, id=CALLS, name=st.sampled_from(["look", "subagent"])
)
TASKS: st.SearchStrategy[list[Any]] = st.lists(
    st.builds(dict, id=CALLS, content=st.just("Do")), max_size=2
)
REF: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict, kind=st.just("file"), value=CALLS, role=st.sampled_from(["created", "read"])
)
KINDS = st.one_of(
    of("run.warned", budget=st.just("user/day"), measure=st.just("tokens"), share=st.just(0.9)),
    of("message.received", text=st.just("go"), how=st.sampled_from(["queue", "interrupt"])),
    of("run.started", inputs=st.just([1]), model=st.sampled_from([None, "x/y"])),
    of("run.resumed"),
    of("timer.scheduled", name=ITEMS, text=st.just("t"), next=st.integers(1, 9), every=st.just(1)),
    of("timer.paused", name=ITEMS, paused=st.booleans(), next=st.integers(1, 9)),
    of("timer.ticked", name=ITEMS, due=st.just(1), next=st.integers(1, 9)),
    of("timer.unscheduled", name=ITEMS),
    of("run.waiting"),
    of("run.finished", status=st.sampled_from(["done", "failed", "aborted"])),
    of("model.called", model=st.just("m/m")),
    of(
        "message.completed",
        text=st.sampled_from(["a", "b"]),
        calls=st.lists(CALL, max_size=2),
        usage=st.just({"input_tokens": 1, "output_tokens": 2}),
    ),
    of("message.interrupted", text=st.just("c")),
    of("tool.started", call=CALLS, name=st.just("look"), arguments=st.sampled_from([None, 1])),
    of("tool.nested", call=CALL, parent=CALLS),
    of(
        "tool.finished",
        call=CALLS,
        outcome=st.sampled_from(["ok", "failed", "denied", "unknown"]),
        refs=st.lists(REF, max_size=1),
    ),
    of("progress.reported", call=CALLS, data=st.integers(0, 3)),
    of(
        "pending.opened",
        id=ITEMS,
        what=st.sampled_from(["approval", "question"]),
        call=CALLS,
        title=st.sampled_from([None, "Pay?"]),
    ),
    of("pending.settled", id=ITEMS, outcome=st.sampled_from(["approved", "denied", "answered"])),
    of("pending.extended", id=ITEMS, expires=st.integers(1, 9)),
    of("abort.requested"),
    of("queue.changed", remove=st.just([1])),
    of("mode.changed", mode=st.sampled_from(["plan", "build", "gone"])),
    of("model.changed", model=st.sampled_from([None, "x/z"])),
    of("task.changed", tasks=TASKS),
    of("thread.forked", parent=st.just("main"), at=st.just(1)),
    of("thread.rewound", to=st.integers(0, 9), window=st.just({})),
    of("tool.probed", call=CALLS, outcome=st.sampled_from(["not_happened", "unknown"])),
    st.tuples(st.sampled_from(["message.completed", "tool.finished"]), st.just({"odd": [1]})),
)


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    found = []
    for seq, (kind, data) in enumerate(draw(st.lists(KINDS, max_size=25)), start=1):
        new = NewEvent.of(kind, data)
        found.append(Event(seq=seq, at=seq, kind=kind, data=new.data, run=draw(RUNS), id=f"e{seq}"))
    return found


@settings(max_examples=3 * settings().max_examples)
@given(log=logs())
def test_made_anew_a_display_is_what_it_was(log: list[Event]) -> None:
    for n, display in enumerate(played(log, NAMED), start=1):
        assert anew(log[:n], NAMED) == display


@given(log=logs(), cut=st.integers(0, 25), back=st.integers(0, 5))
def test_going_on_from_any_moment_comes_to_the_same(log: list[Event], cut: int, back: int) -> None:
    display = NAMED
    for event in log[:cut]:
        display = reduce(display, event)
    there = from_json(to_json(display))
    assert there == display
    for event in log[max(0, cut - back) :]:
        there = reduce(there, event)
    assert there == (played(log, NAMED) or [NAMED])[-1]
