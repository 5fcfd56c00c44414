"""The projection of events: how each kind of event changes its log's row. Pure.

`project` needs one event and no earlier row, so any row can be rebuilt from its log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from .. import events as ev
from ..codec import typed
from ..events import Event, ids
from .encrypted_preview import BOXED, PREVIEW, as_shown
from .rows import Op, RowChange, surface_name

QUIET = {
    # Kinds that do not count as activity in a session.
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
    "timer.ticked",
}


Change: TypeAlias = Callable[[Event, Any, list[Op]], None]

WANTED = (
    *("pending.extended", "timer.set", "timer.cleared"),
    *("timer.scheduled", "timer.unscheduled", "timer.paused"),
)
_MESSAGE = Op("add", "counts", "messages", 1)
_TOUCH = Op("move", "phase", value="touch")


def project(event: Event) -> RowChange:
    """Return the changes that one event makes to its log's row. They do not depend on the previous
    row."""
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
    """Truncate text to the length that a row stores. Encrypted text is returned unchanged, because
    it was truncated before encryption."""
    return text[:PREVIEW] if event.v <= BOXED else text


def _without_data(event: Event, ops: list[Op]) -> None:
    """Add the row changes that an event makes even if its data was erased. For example, a settled
    item must not become pending again, and a moved session must not continue here."""
    if event.kind == "pending.settled":
        ops.append(Op("drop", "pending", ids.settled_item(event.id)))
        ops.append(Op("set", "due", value=event.at))
    elif event.kind in WANTED:
        ops.append(Op("set", "due", value=event.at))
    elif event.kind == "session.adopted":
        ops.append(Op("set", "due", value=None))
    elif event.kind == "session.moved":
        ops.append(Op("seal", "sealed", value="erased"))


def _always(*changes: Op) -> Change:
    """Return a projection that makes the same changes for every event of a kind."""
    return lambda event, p, ops: ops.extend(changes)


def _sets(*names: str, **fixed: Any) -> Change:
    """Return a projection that sets fields of the row: the fields in `fixed` to these values, and
    the fields in `names` to the values in the payload."""
    first = [Op("set", name, value=value) for name, value in fixed.items()]

    def change(event: Event, p: Any, ops: list[Op]) -> None:
        ops += first
        for name in names:
            ops.append(Op("set", name, value=getattr(p, name)))

    return change


_NAMED = _sets("agent", "title")


def _session_created(event: Event, p: ev.SessionCreated, ops: list[Op]) -> None:
    for name in ("agent", "title", "user", "workspace", "ttl", "expiry"):
        if (value := getattr(p, name)) is not None:
            ops.append(Op("set", name, value=value))
    ops.extend(Op("put", "labels", label, True) for label in p.labels)
    ops.extend(Op("put", "metadata", name, value) for name, value in p.metadata.items())


def _thread_created(event: Event, p: ev.ThreadCreated, ops: list[Op]) -> None:
    _NAMED(event, p, ops)
    if p.parent is not None:
        ops.append(Op("set", "parent", value={"thread": p.parent}))


def _thread_forked(event: Event, p: ev.ThreadForked, ops: list[Op]) -> None:
    _NAMED(event, p, ops)
    ops.append(Op("set", "parent", value={"thread": p.parent, "at": p.at}))


def _thread_rewound(event: Event, p: ev.ThreadRewound, ops: list[Op]) -> None:
    ops += (Op("set", "run", value=None), Op("set", "due", value=p.due))
    ops.append(Op("put", "counts", "messages", p.messages))
    if p.first is not None:
        first = _preview(event, p.first) or None
        ops.append(Op("set", "first_message", value=first))


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


def _run_finished(event: Event, p: ev.RunFinished, ops: list[Op]) -> None:
    ops.append(Op("set", "run", value=p.status))
    ops.append(Op("set", "due", value=p.due))


def _wanted(event: Event, p: Any, ops: list[Op]) -> None:
    """Mark the log as due, so that a driver checks it now."""
    ops.append(Op("set", "due", value=event.at))


def _pending_opened(event: Event, p: ev.PendingOpened, ops: list[Op]) -> None:
    item: dict[str, Any] = {"what": p.what, "at": event.at, "seq": event.seq}
    for name in ("call", "assignee", "expires", "risk"):
        if (value := getattr(p, name)) is not None:
            item[name] = value
    if p.title is not None:
        item["title"] = _preview(event, p.title)
    if p.approvals > 1:
        item["approvals"] = p.approvals
    # Only once: after a user has seen a question, it never changes under the same id.
    ops.append(Op("put_once", "pending", p.id, item))


def _pending_settled(event: Event, p: ev.PendingSettled, ops: list[Op]) -> None:
    ops.append(Op("drop", "pending", p.id))
    ops.append(Op("set", "due", value=event.at))
    if p.outcome in ("approved", "denied", "answered"):
        ops.append(Op("move", "phase", value="revive"))


def _run_charged(event: Event, p: ev.RunCharged, ops: list[Op]) -> None:
    ops += [Op("add", "usage", name, n) for name, n in p.usage.items()]


def _surface_delivered(event: Event, p: ev.SurfaceDelivered, ops: list[Op]) -> None:
    if p.looked is not None:
        ops.append(Op("put", "counts", "looked", p.looked))
    ops += (Op("put", "counts", "delivered", p.seq), Op("set", "due", value=p.due))


def _surface_failed(event: Event, p: ev.SurfaceFailed, ops: list[Op]) -> None:
    ops.append(Op("set", "due", value=p.due))
    if p.dead:
        ops.append(Op("put", "counts", "delivered", p.seq))


_CHANGES: dict[str, Change] = {
    "session.created": _session_created,
    "session.touched": _always(_TOUCH),
    "session.suspended": _always(Op("move", "phase", value="suspend")),
    "session.resumed": _always(Op("move", "phase", value="resume")),
    "session.expired": _always(Op("move", "phase", value="expire")),
    "session.pinned": _sets("pinned"),
    "session.held": _sets("hold"),
    "session.timed": _sets("ttl", "expiry"),
    "session.moved": lambda event, p, ops: ops.append(Op("seal", "sealed", value=p.to)),
    "session.reopened": _always(
        Op("seal", "sealed", value=None), Op("move", "phase", value="reopen")
    ),
    "session.adopted": _sets("agent", due=None),
    "thread.created": _thread_created,
    "thread.forked": _thread_forked,
    "thread.reported": _sets("due"),
    "thread.renamed": _sets("title"),
    "thread.rewound": _thread_rewound,
    "label.added": lambda event, p, ops: ops.append(Op("put", "labels", p.label, True)),
    "label.removed": lambda event, p, ops: ops.append(Op("drop", "labels", p.label)),
    "metadata.changed": _metadata_changed,
    "surface.attached": _surface_attached,
    "surface.detached": _surface_detached,
    "message.received": _message_received,
    "message.completed": _message_completed,
    "message.interrupted": _message_interrupted,
    "run.started": _always(Op("set", "run", value="running"), Op("add", "counts", "runs", 1)),
    "run.resumed": _always(Op("set", "run", value="running")),
    "run.waiting": _sets("due", run="waiting"),
    "run.finished": _run_finished,
    "abort.requested": _wanted,
    "pending.extended": _wanted,
    "queue.changed": _wanted,
    "timer.set": _wanted,
    "timer.cleared": _wanted,
    "timer.planned": _sets("due"),
    "pending.opened": _pending_opened,
    "pending.settled": _pending_settled,
    "timer.scheduled": _wanted,
    "timer.unscheduled": _wanted,
    "timer.paused": _wanted,
    "run.charged": _run_charged,
    "surface.hooked": _sets("due"),
    "surface.delivered": _surface_delivered,
    "surface.failed": _surface_failed,
}
