"""The fold: events to state. Pure: reads no clock, does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from .. import events as ev
from ..codec import LIMITS, typed, understood
from ..events import Event
from .values import (
    CHILD,
    ENTRIES,
    FINAL,
    OPEN_CALLS,
    OPERATIONS,
    PATH,
    QUEUED,
    RESERVED,
    CallStatus,
    File,
    Grants,
    OpenCall,
    OpenItem,
    Queued,
    Rules,
    Run,
    Shown,
    State,
    Sub,
    Timer,
    Window,
)


def fold(events: Iterable[Event], start: State | None = None) -> State:
    """The state after `events`, which follow those of `start`; what `start` has seen is
    passed over. Never raises for what an event holds."""
    work = _Work(start or State())
    for event in events:
        work.add(event)
    return work.state()


class _Work:
    """A state that may change: one copy per fold instead of one per event."""

    def __init__(self, start: State) -> None:
        self.head, self.too_new, self.expired = start.head, start.too_new, start.expired
        self.run, self.abort, self.due = start.run, start.abort, start.due
        self.mode, self.model, self.context = start.mode, start.model, start.context
        self.queue, self.window, self.tasks = start.queue, start.window, start.tasks
        self.rules, self.grants, self.sub = start.rules, start.grants, start.sub
        self.calls, self.pending = dict(start.calls), dict(start.pending)
        self.usage, self.data = dict(start.usage), dict(start.data)
        self.models, self.settings = start.models, start.settings
        self.contexts, self.timers = dict(start.contexts), dict(start.timers)
        self.checkpoints = dict(start.checkpoints)
        self.total, self.cost, self.files = start.total, start.cost, start.files
        self.tasks_before = start.tasks_before

    def state(self) -> State:
        return State(**vars(self))

    def add(self, event: Event) -> None:
        if event.seq <= self.head:
            return
        self.head = event.seq
        if understood(event):
            if (step := _STEPS.get(event.kind)) is not None:
                step(self, event, typed(event))
        elif self.too_new is None and event.kind.partition(".")[0] in RESERVED:
            self.too_new = event.seq
        for id, shown in self.contexts.items():
            if shown.on == event.kind and not shown.active:
                self.contexts[id] = replace(shown, active=True)

    def mark(self, call: str | None, event: Event, status: CallStatus, **more: Any) -> None:
        if call is not None and call in self.calls:
            changes = {"status": status, "since": event.seq, **more}
            self.calls[call] = replace(self.calls[call], **changes)

    def amend(self, **changes: Any) -> None:
        """Change the run that is going."""
        if self.run is not None and self.run.open:
            self.run = replace(self.run, **changes)

    def driven_by(self, driver: str | None) -> None:
        """Grants hold for the driver that they were given to."""
        if driver != self.grants.driver:
            self.grants = Grants()

    def take(self, inputs: Sequence[int]) -> None:
        self.queue = tuple(q for q in self.queue if q.seq not in inputs)

    def read(self, event: Event, turns: int = 0) -> None:
        """Count what a model will read."""
        window, tokens = self.window, len(event.data) // 4
        self.window = replace(window, tokens=window.tokens + tokens, turns=window.turns + turns)

    def drop_contexts(self, *scopes: str) -> None:
        self.contexts = {id: c for id, c in self.contexts.items() if c.scope not in scopes}


# A payload is None where it was erased or cannot be read. What the envelope still says
# (the kind, the run, the ids behind `done:` and `settle:`) counts even then, so that an
# erasure neither opens again what was closed nor repeats what was begun.


def _session_expired(work: _Work, event: Event, p: ev.SessionExpired | None) -> None:
    work.expired = True


def _session_reopened(work: _Work, event: Event, p: ev.SessionReopened | None) -> None:
    work.expired = False


def _thread_created(work: _Work, event: Event, p: ev.ThreadCreated | None) -> None:
    if p is not None and p.item is not None and p.agent is not None:
        work.sub = Sub(p.agent, p.parent or "main", p.item, approval=p.approval)


def _thread_reported(work: _Work, event: Event, p: ev.ThreadReported | None) -> None:
    work.due = p.due if p else None
    if work.sub is not None:
        work.sub = replace(work.sub, reported=True)


def _thread_forked(work: _Work, event: Event, p: ev.ThreadForked | None) -> None:
    if p is not None and p.item is not None and p.agent is not None:
        work.sub = Sub(p.agent, p.parent, p.item, forked=True, approval=p.approval)
    elif work.sub is not None:
        work.sub = replace(work.sub, item=None)
    # As in the row of a fork: nothing of the parent's is open in it or spent by it.
    work.run, work.abort, work.due, work.queue = None, None, None, ()
    work.calls, work.pending, work.usage, work.timers = {}, {}, {}, {}
    work.total, work.cost = 0, None
    work.drop_contexts("step", "run")


def _message_received(work: _Work, event: Event, p: ev.MessageReceived | None) -> None:
    work.due = event.at
    if p is None:
        return
    work.read(event)
    queued = Queued(event.seq, p.how, run=event.run)
    first = p.how == "interrupt"
    work.queue = (queued, *work.queue) if first else (*work.queue, queued)
    if first and work.run is not None and work.run.open:
        work.abort = event.seq
    # In a log that nobody has ever driven no run takes them up: then the oldest go.
    if work.run is None:
        work.queue = work.queue[-QUEUED:]


def _message_completed(work: _Work, event: Event, p: ev.MessageCompleted | None) -> None:
    if p is None:
        return
    work.read(event)
    for call in p.calls:
        work.calls.setdefault(call.id, OpenCall(call.name, event.seq, "proposed", event.seq))
    # In a log that nobody drives outcomes may never come: then the oldest calls go.
    while len(work.calls) > OPEN_CALLS:
        oldest = next(iter(work.calls))
        if work.calls[oldest].seq == event.seq:
            break
        del work.calls[oldest]
    for name, count in p.usage.items():
        if name in work.usage or len(work.usage) < LIMITS.map_entries:
            work.usage[name] = work.usage.get(name, 0) + count
    together = p.usage.get("input_tokens", 0) + p.usage.get("output_tokens", 0)
    work.total += p.usage.get("total_tokens", together)
    if p.cost is not None:
        work.cost = (work.cost or 0.0) + p.cost
    if event.run is None:
        if not p.calls:
            work.due, work.queue = None, ()
    elif (run := work.run) is not None:
        tokens = p.usage.get("input_tokens", 0) + p.usage.get("output_tokens", 0)
        cost = run.cost + (p.cost or 0.0)
        work.amend(answered=not p.calls, crashes=0, tokens=run.tokens + tokens, cost=cost)
    work.contexts = {
        id: shown
        for id, shown in work.contexts.items()
        if not (shown.active and (shown.consume == "once" or shown.scope == "step"))
    }


def _run_started(work: _Work, event: Event, p: ev.RunStarted | None) -> None:
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
    )
    work.abort = None
    work.driven_by(p.driver)
    # A driver that does not name its inputs takes all that are there.
    work.take(p.inputs or [q.seq for q in work.queue])
    work.window = replace(work.window, turns=work.window.turns + 1)


def _run_resumed(work: _Work, event: Event, p: ev.RunResumed | None) -> None:
    if (run := work.run) is not None and run.open:
        lost = run.crashes + (run.status == "running")
        spent = run.spent + (event.at - run.since if run.status == "running" else 0)
        driver = p.driver if p else None
        work.amend(status="running", driver=driver, crashes=lost, since=event.at, spent=spent)
        work.driven_by(driver)


def _run_waiting(work: _Work, event: Event, p: ev.RunWaiting | None) -> None:
    work.due = p.due if p else None
    if (run := work.run) is not None and run.open:
        work.amend(status="waiting", crashes=0, spent=run.spent + event.at - run.since)
    else:
        work.run = Run(event.run, "waiting", seq=event.seq, at=event.at)


def _run_finished(work: _Work, event: Event, p: ev.RunFinished | None) -> None:
    run = work.run or Run(event.run, "running", seq=event.seq, at=event.at)
    status, code = ("interrupted", None) if p is None else (p.status, p.code)
    work.run = replace(run, id=event.run, status=status, code=code)
    work.abort, work.due = None, p.due if p else None
    work.drop_contexts("step", "run")


def _abort_requested(work: _Work, event: Event, p: ev.AbortRequested | None) -> None:
    work.due = event.at
    run = work.run
    if run is not None and run.open and (p is None or p.run in (None, run.id)):
        work.abort = event.seq
    elif run is None and work.sub is not None:
        work.queue = ()  # a sub-agent that is stopped before it began does not begin


def _model_called(work: _Work, event: Event, p: ev.ModelCalled | None) -> None:
    work.take(p.inputs if p else ())
    if work.run is not None:
        work.amend(steps=work.run.steps + 1, answered=False)


def _tool_started(work: _Work, event: Event, p: ev.ToolStarted | None) -> None:
    # Which one was erased: any open call may have acted, but for those that were kept back.
    able = [id for id, call in work.calls.items() if call.status not in ("waiting", "denied")]
    more = {"repeat": p.repeat, "tell": p.tell} if p else {"repeat": False}
    for id in able if p is None else [p.call]:
        work.mark(id, event, "started", started=event.seq, **more)


def _tool_nested(work: _Work, event: Event, p: ev.ToolNested | None) -> None:
    if p is not None:
        call = OpenCall(p.call.name, event.seq, "proposed", event.seq, parent=p.parent)
        work.calls.setdefault(p.call.id, call)


def _tool_finished(work: _Work, event: Event, p: ev.ToolFinished | None) -> None:
    work.read(event)
    call = work.calls.pop(event.id.removeprefix("done:") if p is None else p.call, None)
    if p is None or p.outcome != "ok":
        return
    if call is not None and call.name == FINAL:
        work.amend(answered=True)
    for ref in p.refs:
        _file_changed(work, event, ref)


def _file_changed(work: _Work, event: Event, ref: Any) -> None:
    known = ref if isinstance(ref, dict) and ref.get("kind") == "file" else {}
    path, role = known.get("value"), known.get("role")
    if role in ("created", "modified") and isinstance(path, str) and len(path) <= PATH:
        before = work.files.get(path, File((), event.at))
        did = (*before.operations, role)[-OPERATIONS:]
        files = {**work.files, path: File(did, before.at)}
        work.files = dict(list(files.items())[-ENTRIES:])


def _pending_opened(work: _Work, event: Event, p: ev.PendingOpened | None) -> None:
    if p is None or p.id in work.pending:
        return
    work.pending[p.id] = OpenItem(p.what, event.seq, event.at, p.call, p.expires)
    work.mark(p.call, event, "waiting", item=p.id, parked=p.parked)


def _pending_settled(work: _Work, event: Event, p: ev.PendingSettled | None) -> None:
    work.due = event.at
    id = event.id.removeprefix("settle:") if p is None else p.id
    item = work.pending.pop(id, None)
    if item is None:
        _answered_early(work, event, id, p)
        return
    if item.call not in work.calls or work.calls[item.call].status != "waiting":
        return
    # Never a yes that cannot be read, nor one while something else is asked; the first no stays.
    outcome: CallStatus = "abandoned" if p is None else p.outcome
    asked = any(other.call == item.call for other in work.pending.values())
    if not (asked and outcome in ("approved", "answered")):
        more = {"answer": event.seq} if work.calls[item.call].parked else {}
        work.mark(item.call, event, outcome, item=id, **more)


def _answered_early(work: _Work, event: Event, id: str, p: ev.PendingSettled | None) -> None:
    """A sub-agent may have ended before its call has come to wait for it."""
    call = id.removesuffix(CHILD)
    if call != id and call in work.calls and work.calls[call].status == "started":
        outcome: CallStatus = "abandoned" if p is None else p.outcome
        work.mark(call, event, outcome, item=id, parked=True, answer=event.seq)


def _pending_warned(work: _Work, event: Event, p: ev.PendingWarned | None) -> None:
    if p is not None and (item := work.pending.get(p.id)) is not None:
        work.pending[p.id] = replace(item, warned=True)


def _pending_extended(work: _Work, event: Event, p: ev.PendingExtended | None) -> None:
    work.due = event.at
    if p is not None and (item := work.pending.get(p.id)) is not None:
        work.pending[p.id] = replace(item, expires=p.expires, warned=False)


def _queue_changed(work: _Work, event: Event, p: ev.QueueChanged | None) -> None:
    work.due = event.at
    if p is None:
        return
    work.take(p.remove)
    place = {seq: n for n, seq in enumerate(p.order)}
    known = sorted((q for q in work.queue if q.seq in place), key=lambda q: place[q.seq])
    queue = (*known, *(q for q in work.queue if q.seq not in place))
    work.queue = tuple(replace(q, text=event.seq) if str(q.seq) in p.texts else q for q in queue)


def _mode_changed(work: _Work, event: Event, p: ev.ModeChanged | None) -> None:
    if p is None:
        return
    if work.mode is None and p.left is not None:
        work.models = {name or p.left: model for name, model in work.models.items()}
    work.mode = p.mode


def _model_changed(work: _Work, event: Event, p: ev.ModelChanged | None) -> None:
    if p is None:
        return
    if p.mode is None:
        work.model = p.model
    mode = p.mode or work.mode or ""
    others = {name: model for name, model in work.models.items() if name != mode}
    kept = others if p.model is None else {**others, mode: p.model}
    work.models = dict(list(kept.items())[-ENTRIES:])


def _session_created(work: _Work, event: Event, p: ev.SessionCreated | None) -> None:
    if p is not None:
        _set_up(work, p.metadata)


def _metadata_changed(work: _Work, event: Event, p: ev.MetadataChanged | None) -> None:
    if p is not None:
        _set_up(work, p.set, p.drop)


def _set_up(work: _Work, entries: dict[str, Any], drop: Sequence[str] = ()) -> None:
    kept = {name: value for name, value in work.settings.items() if name not in drop}
    kept.update(entries)
    # The row refuses more than this, but that of a fork does not count what it inherited.
    if len(kept) <= LIMITS.map_entries and len(msgspec.json.encode(kept)) <= LIMITS.map_bytes:
        work.settings = kept


def _state_changed(work: _Work, event: Event, p: ev.StateChanged | None) -> None:
    if p is None:
        return
    data = {} if p.replace else {k: v for k, v in work.data.items() if k not in p.drop}
    data.update(p.set)
    if len(msgspec.json.encode(data)) <= LIMITS.map_bytes:  # the verb refuses what is larger
        work.data = data


def _permission_changed(work: _Work, event: Event, p: ev.PermissionChanged | None) -> None:
    if p is not None:
        tools = _merged(work.rules.tools, p.tools)
        work.rules = Rules(tools, _merged(work.rules.categories, p.categories))


def _merged(known: dict[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    after = dict(known)
    for name, rule in changes.items():
        if rule is None:
            after.pop(name, None)
        elif name in after or len(after) < LIMITS.map_entries:  # no rule that stands is dropped
            after[name] = rule
    return after


def _grant_given(work: _Work, event: Event, p: ev.GrantGiven | None) -> None:
    if p is None:
        return
    known = work.grants if work.grants.driver == p.driver else Grants(p.driver)
    tools = dict.fromkeys([*known.tools, *filter(None, [p.tool])])
    categories = dict.fromkeys([*known.categories, *filter(None, [p.category])])
    most = LIMITS.map_entries
    work.grants = Grants(p.driver, tuple(tools)[-most:], tuple(categories)[-most:])


def _grant_revoked(work: _Work, event: Event, p: ev.GrantRevoked | None) -> None:
    if p is None or (p.tool is None and p.category is None):
        work.grants = Grants()
        return
    tools = tuple(name for name in work.grants.tools if name != p.tool)
    categories = tuple(name for name in work.grants.categories if name != p.category)
    work.grants = Grants(work.grants.driver, tools, categories)


def _task_changed(work: _Work, event: Event, p: ev.TaskChanged | None) -> None:
    if p is not None:
        work.tasks_before, work.tasks = work.tasks, tuple(p.tasks[:ENTRIES])


def _context_built(work: _Work, event: Event, p: ev.ContextBuilt | None) -> None:
    work.context = p.hash if p else None


def _context_added(work: _Work, event: Event, p: ev.ContextAdded | None) -> None:
    if p is not None and (p.id in work.contexts or len(work.contexts) < ENTRIES):
        shown = Shown(event.seq, p.scope, p.consume, p.on, p.on is None)
        work.contexts[p.id] = shown


def _context_removed(work: _Work, event: Event, p: ev.ContextRemoved | None) -> None:
    for id in p.ids if p else ():
        work.contexts.pop(id, None)


def _compaction_made(work: _Work, event: Event, p: ev.CompactionMade | None) -> None:
    if p is not None:
        work.window = Window(p.upto, event.seq, p.tokens, p.turns)


def _timer_set(work: _Work, event: Event, p: ev.TimerSet | None) -> None:
    work.due = event.at
    if p is not None and (p.id in work.timers or len(work.timers) < ENTRIES):
        work.timers[p.id] = Timer(event.seq, p.at)


def _timer_gone(work: _Work, event: Event, p: ev.TimerCleared | ev.TimerFired | None) -> None:
    if event.kind == "timer.cleared":
        work.due = event.at
    if p is not None:
        work.timers.pop(p.id, None)


def _timer_planned(work: _Work, event: Event, p: ev.TimerPlanned | None) -> None:
    work.due = p.due if p else None


def _checkpoint_made(work: _Work, event: Event, p: ev.CheckpointMade | None) -> None:
    if p is not None:
        work.checkpoints[p.id] = event.seq
        while len(work.checkpoints) > ENTRIES:
            del work.checkpoints[next(iter(work.checkpoints))]


def _checkpoint_dropped(work: _Work, event: Event, p: ev.CheckpointDropped | None) -> None:
    if p is not None:
        work.checkpoints.pop(p.id, None)


_STEPS: dict[str, Callable[[_Work, Event, Any], None]] = {
    "session.created": _session_created,
    "metadata.changed": _metadata_changed,
    "session.expired": _session_expired,
    "session.reopened": _session_reopened,
    "thread.created": _thread_created,
    "thread.forked": _thread_forked,
    "thread.reported": _thread_reported,
    "message.received": _message_received,
    "message.completed": _message_completed,
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
    "pending.settled": _pending_settled,
    "pending.warned": _pending_warned,
    "pending.extended": _pending_extended,
    "queue.changed": _queue_changed,
    "mode.changed": _mode_changed,
    "model.changed": _model_changed,
    "state.changed": _state_changed,
    "permission.changed": _permission_changed,
    "grant.given": _grant_given,
    "grant.revoked": _grant_revoked,
    "task.changed": _task_changed,
    "context.built": _context_built,
    "context.added": _context_added,
    "context.removed": _context_removed,
    "compaction.made": _compaction_made,
    "timer.set": _timer_set,
    "timer.cleared": _timer_gone,
    "timer.fired": _timer_gone,
    "timer.planned": _timer_planned,
    "checkpoint.made": _checkpoint_made,
    "checkpoint.dropped": _checkpoint_dropped,
}
