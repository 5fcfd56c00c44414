"""Fold steps for settings: mode and model, user state, permissions, tasks, contexts, the window,
timers and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .. import events as ev
from ..codec import LIMITS
from ..events import Event
from .values import ENTRIES, Grants, Rules, Shown, Timer, Window
from .work import StateDraft, Step


def _mode_changed(work: StateDraft, event: Event, p: ev.ModeChanged) -> None:
    if work.mode is None and p.left is not None:
        work.models = {name or p.left: model for name, model in work.models.items()}
    work.mode = p.mode


def _model_changed(work: StateDraft, event: Event, p: ev.ModelChanged) -> None:
    if p.mode is None:
        work.model = p.model
    mode = p.mode or work.mode or ""
    others = {name: model for name, model in work.models.items() if name != mode}
    kept = others if p.model is None else {**others, mode: p.model}
    work.models = dict(list(kept.items())[-ENTRIES:])


def _state_changed(work: StateDraft, event: Event, p: ev.StateChanged) -> None:
    data = {} if p.replace else {k: v for k, v in work.data.items() if k not in p.drop}
    data.update(p.set)
    if len(msgspec.json.encode(data)) <= LIMITS.map_bytes:  # writers reject more
        work.data = data


def _permission_changed(work: StateDraft, event: Event, p: ev.PermissionChanged) -> None:
    tools = _merged(work.rules.tools, p.tools)
    work.rules = Rules(tools, _merged(work.rules.categories, p.categories))


def _merged(known: dict[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    after = dict(known)
    for name, rule in changes.items():
        if rule is None:
            after.pop(name, None)
        elif name in after or len(after) < LIMITS.map_entries:  # no active rule is dropped
            after[name] = rule
    return after


def _grant_given(work: StateDraft, event: Event, p: ev.GrantGiven) -> None:
    known = work.grants if work.grants.driver == p.driver else Grants(p.driver)
    tools = dict.fromkeys([*known.tools, *filter(None, [p.tool])])
    categories = dict.fromkeys([*known.categories, *filter(None, [p.category])])
    most = LIMITS.map_entries
    work.grants = Grants(p.driver, tuple(tools)[-most:], tuple(categories)[-most:])


def _grant_revoked(work: StateDraft, event: Event, p: ev.GrantRevoked | None) -> None:
    if p is None or (p.tool is None and p.category is None):
        work.grants = Grants()
        return
    tools = tuple(name for name in work.grants.tools if name != p.tool)
    categories = tuple(name for name in work.grants.categories if name != p.category)
    work.grants = Grants(work.grants.driver, tools, categories)


def _task_changed(work: StateDraft, event: Event, p: ev.TaskChanged) -> None:
    work.tasks_before, work.tasks = work.tasks, tuple(p.tasks[:ENTRIES])


def _context_built(work: StateDraft, event: Event, p: ev.ContextBuilt | None) -> None:
    work.context = p.hash if p else None


def _context_added(work: StateDraft, event: Event, p: ev.ContextAdded) -> None:
    if p.id in work.contexts or len(work.contexts) < ENTRIES:
        work.contexts[p.id] = Shown(event.seq, p.scope, p.consume, p.on, p.on is None)


def _context_removed(work: StateDraft, event: Event, p: ev.ContextRemoved) -> None:
    for id in p.ids:
        work.contexts.pop(id, None)


def _compaction_made(work: StateDraft, event: Event, p: ev.CompactionMade) -> None:
    work.window = Window(p.upto, event.seq, p.tokens, p.turns)


def _timer_set(work: StateDraft, event: Event, p: ev.TimerSet | None) -> None:
    work.due = event.at
    if p is not None and (p.id in work.timers or len(work.timers) < ENTRIES):
        work.timers[p.id] = Timer(event.seq, p.at)


def _timer_cleared(work: StateDraft, event: Event, p: ev.TimerCleared | None) -> None:
    work.due = event.at
    if p is not None:
        work.timers.pop(p.id, None)


def _timer_fired(work: StateDraft, event: Event, p: ev.TimerFired) -> None:
    work.timers.pop(p.id, None)


def _timer_planned(work: StateDraft, event: Event, p: ev.TimerPlanned | None) -> None:
    work.due = p.due if p else None


def _checkpoint_made(work: StateDraft, event: Event, p: ev.CheckpointMade) -> None:
    work.checkpoints[p.id] = event.seq
    while len(work.checkpoints) > ENTRIES:
        del work.checkpoints[next(iter(work.checkpoints))]


def _checkpoint_dropped(work: StateDraft, event: Event, p: ev.CheckpointDropped) -> None:
    work.checkpoints.pop(p.id, None)


STEPS: dict[str, Step] = {
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
    "timer.cleared": _timer_cleared,
    "timer.fired": _timer_fired,
    "timer.planned": _timer_planned,
    "checkpoint.made": _checkpoint_made,
    "checkpoint.dropped": _checkpoint_dropped,
}

UNREADABLE = ("grant.revoked", "context.built", "timer.set", "timer.cleared", "timer.planned")
