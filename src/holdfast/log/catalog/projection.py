"""Events to row changes: what each kind changes in its log's row. Pure.

`project` needs one event and no earlier row, so any row can be rebuilt from its log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import events as ev
from ..codec import typed
from ..events import Event, ids
from .encrypted_preview import BOXED, PREVIEW, as_shown
from .rows import Op, RowChange, surface_name

QUIET = {
    # Kinds that are bookkeeping about a session, not activity in it.
    "label.added",
    "label.removed",
    "metadata.changed",
    "surface.detached",
    "thread.renamed",
    "session.moved",
    "session.suspended",
    "session.expired",
    "session.pinned",
    "session.held",
    "session.timed",
    "timer.planned",
    "checkpoint.made",
    "checkpoint.dropped",
}


_MESSAGE = Op("add", "counts", "messages", 1)
_TOUCH = Op("move", "phase", value="touch")


def project(event: Event) -> RowChange:
    """The changes of one event to its log's row, independent of the row before."""
    ops = [] if event.kind in QUIET else [Op("latest", "active", value=event.at // 1000)]
    change = _CHANGES.get(event.kind)
    said = event if event.v <= BOXED else as_shown(event)
    if change is not None and (payload := typed(said)) is not None:
        if isinstance(payload, ev.SurfaceAttached) and not payload.touch:
            ops.clear()
        change(event, payload, ops)
    else:
        _without_data(event, ops)
    return tuple(ops)


def _preview(event: Event, text: str) -> str:
    """A text, cut to the length that a row shows; an encrypted text was cut before."""
    return text[:PREVIEW] if event.v <= BOXED else text


def _without_data(event: Event, ops: list[Op]) -> None:
    """What an erased event still changes: what was settled must not become pending again, and a
    session that was moved must not continue here."""
    if event.kind == "pending.settled":
        ops.append(Op("drop", "pending", ids.settled_item(event.id)))
        ops.append(Op("set", "due", value=event.at))
    elif event.kind in ("pending.extended", "timer.set", "timer.cleared"):
        ops.append(Op("set", "due", value=event.at))
    elif event.kind == "session.moved":
        ops.append(Op("seal", "sealed", value="erased"))


def _session_created(event: Event, p: ev.SessionCreated, ops: list[Op]) -> None:
    for name in ("agent", "title", "user", "workspace", "ttl", "expiry"):
        if (value := getattr(p, name)) is not None:
            ops.append(Op("set", name, value=value))
    ops.extend(Op("put", "labels", label, True) for label in p.labels)
    ops.extend(Op("put", "metadata", name, value) for name, value in p.metadata.items())


def _session_touched(event: Event, p: ev.SessionTouched, ops: list[Op]) -> None:
    ops.append(_TOUCH)


def _session_suspended(event: Event, p: ev.SessionSuspended, ops: list[Op]) -> None:
    ops.append(Op("move", "phase", value="suspend"))


def _session_resumed(event: Event, p: ev.SessionResumed, ops: list[Op]) -> None:
    ops.append(Op("move", "phase", value="resume"))


def _session_expired(event: Event, p: ev.SessionExpired, ops: list[Op]) -> None:
    ops.append(Op("move", "phase", value="expire"))


def _session_pinned(event: Event, p: ev.SessionPinned, ops: list[Op]) -> None:
    ops.append(Op("set", "pinned", value=p.pinned))


def _session_held(event: Event, p: ev.SessionHeld, ops: list[Op]) -> None:
    ops.append(Op("set", "hold", value=p.hold))


def _session_timed(event: Event, p: ev.SessionTimed, ops: list[Op]) -> None:
    ops.append(Op("set", "ttl", value=p.ttl))
    ops.append(Op("set", "expiry", value=p.expiry))


def _session_moved(event: Event, p: ev.SessionMovedTo, ops: list[Op]) -> None:
    ops.append(Op("seal", "sealed", value=p.to))


def _session_reopened(event: Event, p: ev.SessionReopened, ops: list[Op]) -> None:
    ops.append(Op("seal", "sealed", value=None))
    ops.append(Op("move", "phase", value="reopen"))


def _thread_created(event: Event, p: ev.ThreadCreated, ops: list[Op]) -> None:
    ops.append(Op("set", "agent", value=p.agent))
    ops.append(Op("set", "title", value=p.title))
    if p.parent is not None:
        ops.append(Op("set", "parent", value={"thread": p.parent}))


def _thread_forked(event: Event, p: ev.ThreadForked, ops: list[Op]) -> None:
    ops.append(Op("set", "agent", value=p.agent))
    ops.append(Op("set", "title", value=p.title))
    ops.append(Op("set", "parent", value={"thread": p.parent, "at": p.at}))


def _thread_reported(event: Event, p: ev.ThreadReported, ops: list[Op]) -> None:
    ops.append(Op("set", "due", value=p.due))


def _thread_renamed(event: Event, p: ev.ThreadRenamed, ops: list[Op]) -> None:
    ops.append(Op("set", "title", value=p.title))


def _label_added(event: Event, p: ev.LabelAdded, ops: list[Op]) -> None:
    ops.append(Op("put", "labels", p.label, True))


def _label_removed(event: Event, p: ev.LabelRemoved, ops: list[Op]) -> None:
    ops.append(Op("drop", "labels", p.label))


def _metadata_changed(event: Event, p: ev.MetadataChanged, ops: list[Op]) -> None:
    ops.extend(Op("drop", "metadata", name) for name in p.drop)
    ops.extend(Op("put", "metadata", name, value) for name, value in p.set.items())


def _surface_attached(event: Event, p: ev.SurfaceAttached, ops: list[Op]) -> None:
    name = surface_name(p.surface, p.address)
    ops.append(Op("put", "surfaces", name, {**p.detail, "at": event.at}))


def _surface_detached(event: Event, p: ev.SurfaceDetached, ops: list[Op]) -> None:
    ops.append(Op("drop", "surfaces", surface_name(p.surface, p.address)))


def _message_received(event: Event, p: ev.MessageReceived, ops: list[Op]) -> None:
    if p.text:
        ops.append(Op("set_once", "first_message", value=_preview(event, p.text)))
    ops += (_MESSAGE, _TOUCH, Op("set", "due", value=event.at))


def _message_completed(event: Event, p: ev.MessageCompleted, ops: list[Op]) -> None:
    ops += (Op("drop_draft", "drafts", event.id), _MESSAGE)
    ops += [Op("add", "usage", name, n) for name, n in p.usage.items()]
    if p.calls:
        ops.append(Op("add", "counts", "calls", len(p.calls)))
    elif event.run is None:
        # A log without a driver: the answer itself shows that the input is handled.
        ops.append(Op("set", "due", value=None))


def _message_interrupted(event: Event, p: ev.MessageInterrupted, ops: list[Op]) -> None:
    ops.append(Op("drop_draft", "drafts", event.id))


def _run_started(event: Event, p: ev.RunStarted, ops: list[Op]) -> None:
    ops.append(Op("set", "run", value="running"))
    ops.append(Op("add", "counts", "runs", 1))


def _run_waiting(event: Event, p: ev.RunWaiting, ops: list[Op]) -> None:
    ops.append(Op("set", "run", value="waiting"))
    ops.append(Op("set", "due", value=p.due))


def _run_finished(event: Event, p: ev.RunFinished, ops: list[Op]) -> None:
    ops.append(Op("set", "run", value=p.status))
    ops.append(Op("set", "due", value=p.due))


def _run_resumed(event: Event, p: ev.RunResumed, ops: list[Op]) -> None:
    ops.append(Op("set", "run", value="running"))


def _wanted(event: Event, p: Any, ops: list[Op]) -> None:
    """A driver must look at the log now."""
    ops.append(Op("set", "due", value=event.at))


def _timer_planned(event: Event, p: ev.TimerPlanned, ops: list[Op]) -> None:
    ops.append(Op("set", "due", value=p.due))


def _pending_opened(event: Event, p: ev.PendingOpened, ops: list[Op]) -> None:
    item: dict[str, Any] = {"what": p.what, "at": event.at, "seq": event.seq}
    for name in ("call", "assignee", "expires", "risk"):
        if (value := getattr(p, name)) is not None:
            item[name] = value
    if p.title is not None:
        item["title"] = _preview(event, p.title)
    if p.approvals > 1:
        item["approvals"] = p.approvals
    # Only once: a question that a person has seen does not change under the same id.
    ops.append(Op("put_once", "pending", p.id, item))


def _pending_settled(event: Event, p: ev.PendingSettled, ops: list[Op]) -> None:
    ops.append(Op("drop", "pending", p.id))
    ops.append(Op("set", "due", value=event.at))
    if p.outcome in ("approved", "denied", "answered"):
        ops.append(Op("move", "phase", value="revive"))


_CHANGES: dict[str, Callable[[Event, Any, list[Op]], None]] = {
    "session.created": _session_created,
    "session.touched": _session_touched,
    "session.suspended": _session_suspended,
    "session.resumed": _session_resumed,
    "session.expired": _session_expired,
    "session.pinned": _session_pinned,
    "session.held": _session_held,
    "session.timed": _session_timed,
    "session.moved": _session_moved,
    "session.reopened": _session_reopened,
    "thread.created": _thread_created,
    "thread.forked": _thread_forked,
    "thread.reported": _thread_reported,
    "thread.renamed": _thread_renamed,
    "label.added": _label_added,
    "label.removed": _label_removed,
    "metadata.changed": _metadata_changed,
    "surface.attached": _surface_attached,
    "surface.detached": _surface_detached,
    "message.received": _message_received,
    "message.completed": _message_completed,
    "message.interrupted": _message_interrupted,
    "run.started": _run_started,
    "run.resumed": _run_resumed,
    "run.waiting": _run_waiting,
    "run.finished": _run_finished,
    "abort.requested": _wanted,
    "pending.extended": _wanted,
    "queue.changed": _wanted,
    "timer.set": _wanted,
    "timer.cleared": _wanted,
    "timer.planned": _timer_planned,
    "pending.opened": _pending_opened,
    "pending.settled": _pending_settled,
}
