"""Fold steps for the life cycle of a session and its threads, and for their settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from .. import events as ev
from ..codec import LIMITS
from ..events import Event
from .values import QueuedInput, Sub, Window
from .work import StateDraft, Step


def _session_expired(work: StateDraft, event: Event, p: ev.SessionExpired | None) -> None:
    work.expired, work.schedules = True, {}


def _session_reopened(work: StateDraft, event: Event, p: ev.SessionReopened | None) -> None:
    work.expired = False


def _session_adopted(work: StateDraft, event: Event, p: ev.SessionAdopted | None) -> None:
    work.due, work.queue, work.calls = None, (), {}


def _thread_created(work: StateDraft, event: Event, p: ev.ThreadCreated) -> None:
    if p.item is not None and p.agent is not None:
        parent = p.parent or "main"
        work.sub = Sub(p.agent, parent, p.item, approval=p.approval, detached=p.detached)


def _thread_reported(work: StateDraft, event: Event, p: ev.ThreadReported | None) -> None:
    work.due = p.due if p else None
    if work.sub is not None:
        work.sub = replace(work.sub, reported=True)


def _thread_forked(work: StateDraft, event: Event, p: ev.ThreadForked | None) -> None:
    if p is not None and p.item is not None and p.agent is not None:
        how: dict[str, Any] = {"approval": p.approval, "detached": p.detached}
        work.sub = Sub(p.agent, p.parent, p.item, forked=True, **how)
    elif work.sub is not None:
        work.sub = replace(work.sub, item=None)
    # As in the row of a fork: open items and counts of the parent are not inherited.
    work.run, work.abort, work.due, work.queue = None, None, None, ()
    work.calls, work.pending, work.usage, work.timers = {}, {}, {}, {}
    work.schedules = {}
    work.total, work.cost, work.driven = 0, None, 0
    work.drop_contexts("step", "run")


def _thread_rewound(work: StateDraft, event: Event, p: ev.ThreadRewound) -> None:
    """Return to an earlier point of the conversation. The state then has no run, and settled items
    stay settled. Queued messages, and calls without an outcome, are kept if they are from event
    `to` or earlier."""
    work.run, work.abort, work.excess, work.due = None, None, None, p.due
    work.queue = tuple(_queued(item, p.to) for item in work.queue if item.seq <= p.to)
    work.calls = {id: call for id, call in work.calls.items() if call.seq <= p.to}
    window = p.window
    work.window = Window(window.upto, window.seq, window.tokens, window.turns)
    work.rewound = event.seq


def _queued(item: QueuedInput, to: int) -> QueuedInput:
    """Return a queued message without the edits of its text that were rewound."""
    return replace(item, text=None) if (item.text or 0) > to else item


def _session_created(work: StateDraft, event: Event, p: ev.SessionCreated) -> None:
    _set_up(work, p.metadata)


def _metadata_changed(work: StateDraft, event: Event, p: ev.MetadataChanged) -> None:
    _set_up(work, p.set, p.drop)


def _set_up(work: StateDraft, entries: dict[str, Any], drop: Sequence[str] = ()) -> None:
    kept = {name: value for name, value in work.settings.items() if name not in drop}
    kept.update(entries)
    # The row rejects more than this, but a fork's row does not count what it inherited.
    if len(kept) <= LIMITS.map_entries and len(msgspec.json.encode(kept)) <= LIMITS.map_bytes:
        work.settings = kept


STEPS: dict[str, Step] = {
    "session.created": _session_created,
    "metadata.changed": _metadata_changed,
    "session.expired": _session_expired,
    "session.reopened": _session_reopened,
    "session.adopted": _session_adopted,
    "thread.created": _thread_created,
    "thread.forked": _thread_forked,
    "thread.reported": _thread_reported,
    "thread.rewound": _thread_rewound,
}

UNREADABLE = (
    *("session.expired", "session.reopened", "session.adopted"),
    *("thread.forked", "thread.reported"),
)
