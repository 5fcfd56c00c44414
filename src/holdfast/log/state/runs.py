"""Fold steps for messages, runs, calls and pending items.

For kinds in `UNREADABLE`, the step is called with None if the payload was erased or cannot be read.
The envelope (the kind, the run, the ids after `done:` and `settle:`) counts even then, so that an
erasure neither reopens closed items nor repeats started calls.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from .. import events as ev
from ..codec import LIMITS
from ..events import Event, ids
from .values import (
    ENTRIES,
    FINAL,
    OPEN_CALLS,
    OPERATIONS,
    PATH,
    QUEUED,
    CallStatus,
    Excess,
    FileChanges,
    OpenCall,
    OpenItem,
    QueuedInput,
    Run,
)
from .work import StateDraft, Step


def _message_received(work: StateDraft, event: Event, p: ev.MessageReceived | None) -> None:
    work.due = event.at
    if p is None:
        return
    work.read(event)
    queued = QueuedInput(event.seq, p.how, run=event.run, report=p.thread is not None)
    first = p.how == "interrupt"
    work.queue = (queued, *work.queue) if first else (*work.queue, queued)
    if first and work.run is not None and work.run.open:
        work.abort = event.seq
    # In a log that never had a driver, no run handles messages, so the oldest are dropped.
    if work.run is None:
        work.queue = work.queue[-QUEUED:]


def _message_completed(work: StateDraft, event: Event, p: ev.MessageCompleted) -> None:
    work.read(event)
    _open_calls(work, event, p.calls)
    for name, count in p.usage.items():
        if name in work.usage or len(work.usage) < LIMITS.map_entries:
            work.usage[name] = work.usage.get(name, 0) + count
    tokens = p.usage.get("input_tokens", 0) + p.usage.get("output_tokens", 0)
    work.total += p.usage.get("total_tokens", tokens)
    if p.cost is not None:
        work.cost = (work.cost or 0.0) + p.cost
    if event.run is None:
        if not p.calls:
            work.due, work.queue = None, ()
    elif (run := work.run) is not None:
        cost = run.cost + (p.cost or 0.0)
        work.amend(answered=not p.calls, crashes=0, tokens=run.tokens + tokens, cost=cost)
    work.contexts = {
        id: shown
        for id, shown in work.contexts.items()
        if not (shown.active and (shown.consume == "once" or shown.scope == "step"))
    }


def _message_interrupted(work: StateDraft, event: Event, p: ev.MessageInterrupted) -> None:
    if p.shown:
        work.read(event)


def _open_calls(work: StateDraft, event: Event, calls: list[ev.Call]) -> None:
    for call in calls[:OPEN_CALLS]:
        work.calls.setdefault(call.id, OpenCall(call.name, event.seq, "proposed", event.seq))
    # In a log without a driver, outcomes may never arrive, so the oldest calls are dropped.
    while len(work.calls) > OPEN_CALLS:
        del work.calls[next(iter(work.calls))]
    left = len(calls) - OPEN_CALLS
    going = event.run is not None and work.run is not None and work.run.open
    work.excess = Excess(event.seq, left) if left > 0 and going else None


def _run_started(work: StateDraft, event: Event, p: ev.RunStarted | None) -> None:
    p = p or ev.RunStarted()
    work.run = Run(
        event.run,
        "running",
        seq=event.seq,
        at=event.at,
        since=event.at,
        driver=p.driver,
        model=p.model,
        limits=p.limits,
        output=p.output,
        chain=p.chain,
        version=p.version,
    )
    work.abort = work.excess = None
    work.driven_by(p.driver)
    # A driver that does not name its inputs takes all queued messages.
    work.take(p.inputs or [q.seq for q in work.queue])
    work.window = replace(work.window, turns=work.window.turns + 1)


def _run_resumed(work: StateDraft, event: Event, p: ev.RunResumed | None) -> None:
    if (run := work.run) is not None and run.open:
        lost = run.crashes + (run.status == "running")
        # The previous driver was lost; count the time until its last event.
        driven = max(0, work.driven - run.since) if run.status == "running" else 0
        spent = run.spent + driven
        driver = p.driver if p else None
        work.amend(status="running", driver=driver, crashes=lost, since=event.at, spent=spent)
        work.driven_by(driver)


def _run_waiting(work: StateDraft, event: Event, p: ev.RunWaiting | None) -> None:
    work.due = p.due if p else None
    if (run := work.run) is not None and run.open:
        work.amend(status="waiting", crashes=0, spent=run.spent + event.at - run.since)
    else:
        work.run = Run(event.run, "waiting", seq=event.seq, at=event.at)


def _run_finished(work: StateDraft, event: Event, p: ev.RunFinished | None) -> None:
    run = work.run or Run(event.run, "running", seq=event.seq, at=event.at)
    status, code = ("interrupted", None) if p is None else (p.status, p.code)
    work.run = replace(run, id=event.run, status=status, code=code)
    work.abort, work.due, work.excess = None, p.due if p else None, None
    work.drop_contexts("step", "run")


def _abort_requested(work: StateDraft, event: Event, p: ev.AbortRequested | None) -> None:
    work.due = event.at
    run = work.run
    if run is not None and run.open and (p is None or p.run in (None, run.id)):
        work.abort = event.seq
    elif run is None and work.sub is not None:
        work.queue = ()  # a sub-agent that is stopped before its first run never starts one


def _model_called(work: StateDraft, event: Event, p: ev.ModelCalled | None) -> None:
    work.take(p.inputs if p else ())
    if work.run is not None:
        work.amend(steps=work.run.steps + 1, answered=False)


def _tool_started(work: StateDraft, event: Event, p: ev.ToolStarted | None) -> None:
    # If the payload was erased, any open call may have started, except those that were held back.
    able = [id for id, call in work.calls.items() if call.status not in ("waiting", "denied")]
    more: dict[str, Any] = {"repeat": False, "probe": None}
    if p is not None:
        more = {"repeat": p.repeat, "tell": p.tell, "probe": "due" if p.probe else None}
    for id in able if p is None else [p.call]:
        work.mark(id, event, "started", started=event.seq, **more)


def _tool_nested(work: StateDraft, event: Event, p: ev.ToolNested) -> None:
    call = OpenCall(p.call.name, event.seq, "proposed", event.seq, parent=p.parent)
    work.calls.setdefault(p.call.id, call)


def _tool_finished(work: StateDraft, event: Event, p: ev.ToolFinished | None) -> None:
    work.read(event)
    call = work.calls.pop(ids.done_call(event.id) if p is None else p.call, None)
    if call is None and (excess := work.excess) is not None:
        work.excess = replace(excess, left=excess.left - 1) if excess.left > 1 else None
    if p is None or p.outcome != "ok":
        return
    if call is not None and call.name == FINAL:
        work.amend(answered=True)
    for ref in p.refs:
        _file_changed(work, event, ref)


def _file_changed(work: StateDraft, event: Event, ref: Any) -> None:
    known = ref if isinstance(ref, dict) and ref.get("kind") == "file" else {}
    path, role = known.get("value"), known.get("role")
    if role in ("created", "modified") and isinstance(path, str) and len(path) <= PATH:
        before = work.files.get(path, FileChanges((), event.at))
        did = (*before.operations, role)[-OPERATIONS:]
        files = {**work.files, path: FileChanges(did, before.at)}
        work.files = dict(list(files.items())[-ENTRIES:])


def _pending_opened(work: StateDraft, event: Event, p: ev.PendingOpened) -> None:
    if p.id in work.pending:
        return
    work.pending[p.id] = OpenItem(
        p.what, event.seq, event.at, p.call, p.expires, approvals=p.approvals
    )
    work.mark(p.call, event, "waiting", item=p.id, parked=p.parked)


def _pending_voted(work: StateDraft, event: Event, p: ev.PendingVoted) -> None:
    item = work.pending.get(p.id)
    if item is not None and event.actor not in (None, *item.voters):
        work.pending[p.id] = replace(item, voters=(*item.voters, event.actor))


def _pending_settled(work: StateDraft, event: Event, p: ev.PendingSettled | None) -> None:
    work.due = event.at
    id = ids.settled_item(event.id) if p is None else p.id
    item = work.pending.pop(id, None)
    if item is None:
        _answered_early(work, event, id, p)
        return
    if item.call not in work.calls or work.calls[item.call].status != "waiting":
        return
    # An approval never counts if it is unreadable, has too few votes, or while another question is
    # open; the first denial stays.
    outcome: CallStatus = "abandoned" if p is None else p.outcome
    if outcome == "approved" and item.approvals > max(1, len(item.voters)):
        outcome = "abandoned"
    asked = any(other.call == item.call for other in work.pending.values())
    if not (asked and outcome in ("approved", "answered")):
        more = {"answer": event.seq} if work.calls[item.call].parked else {}
        work.mark(item.call, event, outcome, item=id, **more)


def _answered_early(work: StateDraft, event: Event, id: str, p: ev.PendingSettled | None) -> None:
    """Record the answer of a sub-agent that ended before its call began to wait for it."""
    call = ids.child_call(id)
    if call != id and call in work.calls and work.calls[call].status == "started":
        outcome: CallStatus = "abandoned" if p is None else p.outcome
        work.mark(call, event, outcome, item=id, parked=True, answer=event.seq)


def _pending_warned(work: StateDraft, event: Event, p: ev.PendingWarned) -> None:
    if (item := work.pending.get(p.id)) is not None:
        work.pending[p.id] = replace(item, warned=True)


def _pending_extended(work: StateDraft, event: Event, p: ev.PendingExtended | None) -> None:
    work.due = event.at
    if p is not None and (item := work.pending.get(p.id)) is not None:
        work.pending[p.id] = replace(item, expires=p.expires, warned=False)


def _queue_changed(work: StateDraft, event: Event, p: ev.QueueChanged | None) -> None:
    work.due = event.at
    if p is None:
        return
    work.take(p.remove)
    place = {seq: n for n, seq in enumerate(p.order)}
    known = sorted((q for q in work.queue if q.seq in place), key=lambda q: place[q.seq])
    queue = (*known, *(q for q in work.queue if q.seq not in place))
    work.queue = tuple(replace(q, text=event.seq) if str(q.seq) in p.texts else q for q in queue)


def _tool_probed(work: StateDraft, event: Event, p: ev.ToolProbed) -> None:
    # A call that happened stays due: its outcome is in the next event, or the probe is asked again.
    # If the start was erased, so were the arguments that the answer is about: it does not count.
    call = work.calls.get(p.call)
    due = call is not None and call.status == "started" and call.probe == "due"
    if due and p.outcome != "happened":
        work.mark(p.call, event, "started", probe=p.outcome)


STEPS: dict[str, Step] = {
    "message.received": _message_received,
    "message.completed": _message_completed,
    "message.interrupted": _message_interrupted,
    "run.started": _run_started,
    "run.resumed": _run_resumed,
    "run.waiting": _run_waiting,
    "run.finished": _run_finished,
    "abort.requested": _abort_requested,
    "model.called": _model_called,
    "tool.started": _tool_started,
    "tool.nested": _tool_nested,
    "tool.finished": _tool_finished,
    "pending.opened": _pending_opened,
    "pending.voted": _pending_voted,
    "pending.settled": _pending_settled,
    "pending.warned": _pending_warned,
    "pending.extended": _pending_extended,
    "queue.changed": _queue_changed,
    "tool.probed": _tool_probed,
}

UNREADABLE = (
    *("message.received", "run.started", "run.resumed", "run.waiting", "run.finished"),
    *("abort.requested", "model.called", "tool.started", "tool.finished"),
    *("pending.settled", "pending.extended", "queue.changed"),
)
