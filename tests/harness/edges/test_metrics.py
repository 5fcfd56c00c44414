"""The figures of a run, from its events alone: of good runs, bad ones, and those cut anywhere."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.events import Event, to_json
from holdfast.values.metrics import RunError, RunMetrics, ToolMetrics, metrics

CALLS = [{"id": "c1", "name": "refund"}, {"id": "c2", "name": "look"}, {"id": "c3", "name": "look"}]


def log(*facts: tuple[int, str, Any], run: str | None = "r1") -> list[Event]:
    """Events of a run, each with its time in ms."""
    return [
        Event(kind=kind, data=to_json(data), seq=n, at=at, run=run, id=f"e{n}")
        for n, (at, kind, data) in enumerate(facts, 1)
    ]


TALK = log(
    (1_000, "run.started", {"driver": "d"}),
    (1_000, "model.called", {"model": "openai/x", "step": 1}),
    (
        2_000,
        "message.completed",
        {"calls": CALLS, "usage": {"input_tokens": 10, "output_tokens": 2}, "cost": 0.25},
    ),
    (2_000, "tool.started", {"call": "c1", "name": "refund"}),
    (2_100, "tool.started", {"call": "c2", "name": "look"}),
    (2_600, "tool.finished", {"call": "c2", "outcome": "ok", "result": 1}),
    (3_500, "tool.finished", {"call": "c1", "outcome": "failed", "code": "tool_failed"}),
    (3_600, "pending.opened", {"id": "p", "what": "approval", "call": "c3"}),
    (3_600, "run.waiting", {}),
    (9_600, "pending.settled", {"id": "p", "outcome": "denied"}),
    (9_600, "run.resumed", {"driver": "e"}),
    (9_700, "tool.finished", {"call": "c3", "outcome": "denied", "code": "denied"}),
    (9_800, "model.called", {"model": "openai/x", "step": 2}),
    (9_900, "message.interrupted", {"text": "I"}),
    (9_900, "model.called", {"model": "openai/x", "step": 2}),
    (10_900, "message.completed", {"text": "Done.", "usage": {"input_tokens": 5}, "cost": 0.5}),
    (11_000, "run.finished", {"status": "done"}),
)


def test_the_figures_of_a_run() -> None:
    assert metrics(TALK) == RunMetrics(
        run="r1",
        status="done",
        started=1_000,
        finished=11_000,
        seconds=10.0,
        waited=6.0,
        steps=2,
        model_calls=3,
        tool_calls=3,
        tools={
            "refund": ToolMetrics(count=1, errors=1, seconds=1.5),
            "look": ToolMetrics(count=2, errors=0, seconds=0.5),
        },
        usage={"input_tokens": 15, "output_tokens": 2},
        cost=0.75,
        errors=(RunError(code="tool_failed", tool="refund", call="c1"),),
    )


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ({"status": "failed", "code": "model_timeout", "error": "late"}, "model_timeout"),
        ({"status": "failed"}, "run_failed"),
        ({"status": "aborted"}, "run_aborted"),
        ({"status": "interrupted", "code": "crash_loop"}, "crash_loop"),
    ],
)
def test_a_run_that_failed_has_figures_too(end: dict[str, Any], code: str) -> None:
    found = metrics(
        log(
            (1_000, "run.started", {}),
            (1_000, "model.called", {"model": "m", "step": 1}),
            (1_500, "run.finished", end),
        )
    )
    assert (found.status, found.seconds, found.steps) == (end["status"], 0.5, 1)
    assert found.errors == (RunError(code=code),)


def test_at_every_cut_the_figures_are_of_what_was_there() -> None:
    before = RunMetrics()
    for cut in range(len(TALK) + 1):
        found = metrics(TALK[:cut])
        assert (found.seconds is not None) is (cut == len(TALK))
        assert found.model_calls >= before.model_calls
        assert found.tool_calls >= before.tool_calls
        assert found.waited >= before.waited
        assert (found.cost or 0) >= (before.cost or 0)
        before = found
    assert metrics([]) == RunMetrics()


def test_only_the_run_that_is_asked_for_counts() -> None:
    other = log((5, "run.started", {}), (6, "run.finished", {"status": "failed"}), run="r2")
    outside = log((1, "message.received", {"text": "hi"}), run=None)
    mixed = [*outside, *TALK[:5], *other, *TALK[5:]]
    assert metrics(mixed, run="r1") == metrics(TALK)
    assert metrics(mixed, run="r2").status == "failed"
    assert metrics(mixed, run="r3") == RunMetrics(run="r3")


def test_the_first_outcome_of_a_call_counts() -> None:
    facts = [
        (1_000, "tool.started", {"call": "c", "name": "f"}),
        (2_000, "tool.finished", {"call": "c", "outcome": "unknown"}),
        (9_000, "tool.finished", {"call": "c", "outcome": "ok"}),
    ]
    found = metrics(log(*facts))
    assert found.tools == {"f": ToolMetrics(count=1, errors=1, seconds=1.0)}
    assert found.errors == (RunError(code="tool_unknown", tool="f", call="c"),)


def test_a_nested_call_counts_under_its_own_name() -> None:
    found = metrics(
        log(
            (1, "tool.nested", {"call": {"id": "c/1", "name": "inner"}, "parent": "c"}),
            (2, "tool.finished", {"call": "c/1", "outcome": "ok"}),
        )
    )
    assert found.tools == {"inner": ToolMetrics(count=1)}


def test_what_cannot_be_read_counts_nowhere() -> None:
    odd = log(
        (1, "run.started", {"erased": "on demand"}),
        (2, "message.completed", {"usage": "many"}),
        (3, "tool.finished", {"erased": "on demand"}),
        (4, "future.kind", {"x": 1}),
        (5, "model.called", 7),
    )
    assert metrics(odd) == RunMetrics(run="r1", started=1)


def test_a_clock_that_steps_back_makes_no_time_negative() -> None:
    found = metrics(
        log(
            (9_000, "run.started", {}),
            (9_000, "tool.started", {"call": "c", "name": "f"}),
            (8_000, "tool.finished", {"call": "c"}),
            (8_000, "run.finished", {}),
        )
    )
    assert (found.seconds, found.tools["f"].seconds) == (0.0, 0.0)
