"""The metrics of a run, computed only from its events. Pure.

So every run has metrics, even if it failed, crashed, or was finished by another process.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..log import events as ev
from ..log.codec import typed
from ..log.events import Event

FAILED = ("failed", "unknown")


class ToolMetrics(Struct, frozen=True, kw_only=True):
    """The metrics of one tool: the number of calls, the number of failed calls, and their total
    time."""

    count: int = 0
    errors: int = 0
    seconds: float = 0.0


class RunError(Struct, frozen=True, kw_only=True):
    """An error of a tool call, or of the run itself if `tool` is None."""

    code: str
    tool: str | None = None
    call: str | None = None


class RunMetrics(Struct, frozen=True, kw_only=True):
    """The metrics of one run. Times are from the store's clock, in ms. `seconds` is the time
    from start to end, `waited` the part of it that was spent waiting for user input. `cost` is
    None if it is unknown. A model call that was retried counts twice in `model_calls` and once
    in `steps`."""

    run: str | None = None
    status: str | None = None
    started: int | None = None
    finished: int | None = None
    seconds: float | None = None
    waited: float = 0.0
    steps: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    tools: dict[str, ToolMetrics] = {}
    usage: dict[str, int] = {}
    cost: float | None = None
    errors: tuple[RunError, ...] = ()


def metrics(events: Iterable[Event], run: str | None = None) -> RunMetrics:
    """Return the metrics of `run`, or of all events if no run is passed. For an active run, they
    cover the time up to now.

    Never raises for invalid event data: unreadable events are skipped.
    """
    tally = RunTally(run)
    for event in events:
        if run is None or event.run == run:
            tally.add(event)
    return tally.metrics()


class RunTally:
    """Computes the metrics of a run event by event, without keeping the events in memory."""

    def __init__(self, run: str | None = None) -> None:
        self.run = run
        self.found: dict[str, Any] = {"run": run}
        self.names: dict[str, str] = {}
        self.starts: dict[str, int] = {}
        self.ended: set[str] = set()
        self.tools: dict[str, ToolMetrics] = {}
        self.usage: dict[str, int] = {}
        self.errors: list[RunError] = []
        self.steps: set[int] = set()
        self.calls = self.answers = 0
        self.cost: float | None = None
        self.waiting: int | None = None
        self.waited = 0

    def add(self, event: Event) -> None:
        payload = typed(event)
        if self.waiting is not None and event.kind in (
            "run.resumed",
            "run.finished",
            "model.called",
            "tool.started",
        ):
            self.waited += max(0, event.at - self.waiting)
            self.waiting = None
        if isinstance(payload, ev.RunStarted):
            self.found.setdefault("started", event.at)
            self.found["run"] = self.found["run"] or event.run
        elif isinstance(payload, ev.RunWaiting):
            self.waiting = event.at if self.waiting is None else self.waiting
        elif isinstance(payload, ev.RunFinished):
            self._end(event, payload)
        elif isinstance(payload, ev.ModelCalled):
            self.calls += 1
            self.steps.add(payload.step)
        elif isinstance(payload, ev.MessageCompleted):
            self._answer(payload)
        elif isinstance(payload, ev.ToolNested):
            self.names[payload.call.id] = payload.call.name
        elif isinstance(payload, ev.ToolStarted):
            self.names[payload.call] = payload.name
            self.starts[payload.call] = event.at
        elif isinstance(payload, ev.ToolFinished):
            self._outcome(event, payload)

    def _answer(self, payload: ev.MessageCompleted) -> None:
        self.answers += 1
        self.names.update((call.id, call.name) for call in payload.calls)
        for name, number in payload.usage.items():
            self.usage[name] = self.usage.get(name, 0) + number
        if payload.cost is not None:
            self.cost = (self.cost or 0.0) + payload.cost

    def _outcome(self, event: Event, payload: ev.ToolFinished) -> None:
        if payload.call in self.ended:  # the first outcome of a call counts
            return
        self.ended.add(payload.call)
        name = self.names.get(payload.call, "?")
        before = self.tools.get(name, ToolMetrics())
        failed = payload.outcome in FAILED
        took = max(0, event.at - self.starts.get(payload.call, event.at)) / 1000
        self.tools[name] = replace(
            before,
            count=before.count + 1,
            errors=before.errors + failed,
            seconds=before.seconds + took,
        )
        if failed:
            code = payload.code or f"tool_{payload.outcome}"
            self.errors.append(RunError(code=code, tool=name, call=payload.call))

    def _end(self, event: Event, payload: ev.RunFinished) -> None:
        self.found.update(finished=event.at, status=payload.status)
        if payload.status != "done":
            fallback = "run_aborted" if payload.status == "aborted" else "run_failed"
            self.errors.append(RunError(code=payload.code or fallback))

    def metrics(self) -> RunMetrics:
        started, finished = self.found.get("started"), self.found.get("finished")
        took = None
        if started is not None and finished is not None:
            took = max(0, finished - started) / 1000
        return RunMetrics(
            **self.found,
            seconds=took,
            waited=self.waited / 1000,
            steps=len(self.steps) or self.answers,
            model_calls=self.calls or self.answers,
            tool_calls=sum(tool.count for tool in self.tools.values()),
            tools=dict(self.tools),
            usage=dict(self.usage),
            cost=self.cost,
            errors=tuple(self.errors),
        )
