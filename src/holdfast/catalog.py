"""Rows, queries and pages: what lists show, and how events become it. Pure.

`project` turns one event into operations on its log's row, needing no earlier row;
`apply` carries them out. A store runs both inside the append and knows no event
kind; any row can be rebuilt from its log. What is derived from several fields
(`stale_at`, `wake`) is derived in one place, here.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from . import events as ev
from .codec import LIMITS, check_count, check_name, typed
from .errors import InvalidValue
from .events import Event, Key, Scope, to_json

T = TypeVar("T")

LONGEST = 1 << 63  # numbers in a cursor are below it
PREVIEW = 200  # characters of a text that a row shows


class Parent(Struct, frozen=True):
    """Where a thread came from: a thread of the same session, and the number it left at."""

    thread: str
    at: int = 0


class Row(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What lists show of one log. `created`, `last` and `due` are UTC ms; `active`,
    `stale_at` and `ttl` are seconds, so that an index on them moves at most once a second."""

    tenant: str
    session: str
    thread: str
    log: str
    head: int = 0
    agent: str | None = None
    title: str | None = None
    first_message: str | None = None
    user: str | None = None
    workspace: str | None = None
    phase: str = "created"
    run: str | None = None
    due: int | None = None
    labels: dict[str, bool] = {}
    metadata: dict[str, Any] = {}
    surfaces: dict[str, Any] = {}
    pending: dict[str, Any] = {}
    counts: dict[str, int] = {}
    usage: dict[str, int] = {}
    bytes: int = 0
    parent: Parent | None = None
    pinned: bool = False
    hold: str | None = None
    ttl: int | None = None
    stale_at: int | None = None
    wake: int | None = None
    sealed: str | None = None
    created: int = 0
    active: int = 0
    last: int = 0

    @property
    def key(self) -> Key:
        return Key(self.tenant, self.session, self.thread)

    @property
    def scope(self) -> Scope:
        return Scope(self.tenant, self.session)


class Pending(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a person or an outside system must answer, wherever it waits."""

    tenant: str
    session: str
    thread: str
    id: str
    what: str
    at: int
    seq: int
    call: str | None = None
    title: str | None = None
    assignee: str | None = None
    expires: int | None = None


class Op(Struct, frozen=True, array_like=True, omit_defaults=True):
    """One operation on a row, as data: `["put", "labels", "vip", true]` in JSON."""

    do: Literal["set", "set_once", "add", "latest", "put", "put_once", "drop", "drop_draft", "seal"]
    field: str
    key: str = ""
    value: Any = None


RowChange: TypeAlias = tuple[Op, ...]
Project: TypeAlias = Callable[[Event], RowChange]

MAPS = ("labels", "metadata", "surfaces", "pending")
LIMITED = (*MAPS, "usage")
QUIET = {
    # Kinds that are bookkeeping about a session, not activity in it.
    "label.added",
    "label.removed",
    "metadata.changed",
    "surface.detached",
    "thread.renamed",
    "session.moved",
}


def project(event: Event) -> RowChange:
    """What one event changes in its log's row, with no need of the row before."""
    ops = [] if event.kind in QUIET else [Op("latest", "active", value=event.at // 1000)]
    change = _CHANGES.get(event.kind)
    if change is not None and (payload := typed(event)) is not None:
        change(event, payload, ops)
    else:
        _without_data(event, ops)
    return tuple(ops)


def _without_data(event: Event, ops: list[Op]) -> None:
    """What an event still says after its data was erased: what was settled must not wait
    again, and what was moved must not go on here."""
    if event.kind == "pending.settled":
        ops.append(Op("drop", "pending", event.id.removeprefix("settle:")))
    elif event.kind == "session.moved":
        ops.append(Op("seal", "sealed", value="erased"))


def _session_created(event: Event, p: ev.SessionCreated, ops: list[Op]) -> None:
    for name in ("agent", "title", "user", "workspace", "ttl"):
        if (value := getattr(p, name)) is not None:
            ops.append(Op("set", name, value=value))
    ops.extend(Op("put", "labels", label, True) for label in p.labels)
    ops.extend(Op("put", "metadata", name, value) for name, value in p.metadata.items())


def _session_touched(event: Event, p: ev.SessionTouched, ops: list[Op]) -> None:
    ops.append(Op("set", "phase", value="active"))


def _session_moved(event: Event, p: ev.SessionMovedTo, ops: list[Op]) -> None:
    ops.append(Op("seal", "sealed", value=p.to))


def _session_reopened(event: Event, p: ev.SessionReopened, ops: list[Op]) -> None:
    ops.append(Op("seal", "sealed", value=None))


def _thread_created(event: Event, p: ev.ThreadCreated, ops: list[Op]) -> None:
    ops.append(Op("set", "agent", value=p.agent))
    ops.append(Op("set", "title", value=p.title))
    if p.parent is not None:
        ops.append(Op("set", "parent", value={"thread": p.parent}))


def _thread_forked(event: Event, p: ev.ThreadForked, ops: list[Op]) -> None:
    ops.append(Op("set", "agent", value=p.agent))
    ops.append(Op("set", "title", value=p.title))
    ops.append(Op("set", "parent", value={"thread": p.parent, "at": p.at}))


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
        ops.append(Op("set_once", "first_message", value=p.text[:PREVIEW]))
    ops.append(Op("add", "counts", "messages", 1))
    ops.append(Op("set", "phase", value="active"))
    ops.append(Op("set", "due", value=event.at))


def _message_completed(event: Event, p: ev.MessageCompleted, ops: list[Op]) -> None:
    ops.append(Op("drop_draft", "drafts", event.id))
    ops.append(Op("add", "counts", "messages", 1))
    ops.extend(Op("add", "usage", name, n) for name, n in p.usage.items())
    if p.calls:
        ops.append(Op("add", "counts", "calls", len(p.calls)))
    elif event.run is None:
        # A log that nobody drives: the answer itself says that the input is done with.
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


def _pending_opened(event: Event, p: ev.PendingOpened, ops: list[Op]) -> None:
    item: dict[str, Any] = {"what": p.what, "at": event.at, "seq": event.seq}
    for name in ("call", "assignee", "expires"):
        if (value := getattr(p, name)) is not None:
            item[name] = value
    if p.title is not None:
        item["title"] = p.title[:PREVIEW]
    # Once: a question that a person has seen is not put differently under its id.
    ops.append(Op("put_once", "pending", p.id, item))


def _pending_settled(event: Event, p: ev.PendingSettled, ops: list[Op]) -> None:
    ops.append(Op("drop", "pending", p.id))
    ops.append(Op("set", "due", value=event.at))


_CHANGES: dict[str, Callable[[Event, Any, list[Op]], None]] = {
    "session.created": _session_created,
    "session.touched": _session_touched,
    "session.moved": _session_moved,
    "session.reopened": _session_reopened,
    "thread.created": _thread_created,
    "thread.forked": _thread_forked,
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
    "run.waiting": _run_waiting,
    "run.finished": _run_finished,
    "pending.opened": _pending_opened,
    "pending.settled": _pending_settled,
}


def apply(row: Row, events: Sequence[Event], changes: Sequence[RowChange]) -> Row:
    """The row after `events`; refuses a map that would outgrow its limit."""
    new: dict[str, Any] = {}
    size = row.bytes
    active = row.active
    for event, change in zip(events, changes, strict=True):
        size += len(event.data)
        for op in change:
            if op.do == "set":
                new[op.field] = op.value
            elif op.field == "active":
                active = max(active, op.value)
            else:
                _operate(row, new, op)
    _check_row(new)
    if "parent" in new:
        new["parent"] = msgspec.convert(new["parent"], Parent | None)
    last = events[-1]
    after = replace(row, head=last.seq, last=last.at, bytes=size, active=active, **new)
    derived = (stale_at(after), wake(after))
    if derived != (after.stale_at, after.wake):
        after = replace(after, stale_at=derived[0], wake=derived[1])
    return after


def _operate(row: Row, new: dict[str, Any], op: Op) -> None:
    name = op.field
    if op.do == "drop_draft":
        return
    if op.do == "seal":
        new[name] = op.value
        return
    value = new.get(name, getattr(row, name))
    if op.do == "set_once":
        if value is None:
            new[name] = op.value
    elif op.do == "latest":
        new[name] = max(value, op.value)
    else:
        if name not in new:
            value = new[name] = dict(value)
        if op.do == "add":
            value[op.key] = value.get(op.key, 0) + op.value
        elif op.do == "put":
            value[op.key] = op.value
        elif op.do == "put_once":
            value.setdefault(op.key, op.value)
        else:
            value.pop(op.key, None)


def _check_row(new: dict[str, Any]) -> None:
    """Refuse what some store could not search by, and maps that would outgrow their limit."""
    for name in ("agent", "user", "workspace"):
        if new.get(name) is not None:
            check_name(name, new[name])
    for name in ("due", "ttl"):
        if new.get(name) is not None:
            check_count(name, new[name], least=0)
    for name in LIMITED:
        if name in new:
            _check_map(name, new[name])


def _check_map(name: str, entries: dict[str, Any]) -> None:
    if len(entries) > LIMITS.map_entries:
        raise InvalidValue(
            field=name,
            problem=f"would have {len(entries)} entries",
            remedy=f"keep at most {LIMITS.map_entries} at a time",
            limit=LIMITS.map_entries,
        )
    for key in entries:
        check_name(name, key, limit=LIMITS.claim_bytes if name == "surfaces" else LIMITS.name_bytes)
    limit = LIMITS.map_bytes if name != "pending" else LIMITS.map_bytes * 8
    if (size := len(msgspec.json.encode(entries))) > limit:
        raise InvalidValue(
            field=name,
            problem=f"would have {size} bytes",
            remedy="keep large values in events or blobs",
            limit=limit,
        )


def stale_at(row: Row) -> int | None:
    """When a sweep may suspend the session, or None while anything is going on in it."""
    busy = row.run in ("running", "waiting") or row.pending or row.due is not None or row.pinned
    if row.ttl is None or busy or row.phase not in ("created", "active") or row.sealed is not None:
        return None
    return row.active + row.ttl


def wake(row: Row) -> int | None:
    """From when on the log wants a driver: 0 for an open run, `due` for other work."""
    if row.sealed is not None:
        return None
    return 0 if row.run == "running" else row.due


def unseals(change: RowChange) -> bool:
    """Whether a change opens a sealed log again."""
    return any(op.do == "seal" and op.value is None for op in change)


def surface_name(surface: str, address: str) -> str:
    """A surface binding as one name; a JSON array, so that no two can collide."""
    return msgspec.json.encode((surface, address)).decode()


SURFACE_CLAIM = "surface:"  # + surface_name: the claim that belongs to an attached surface


# Queries


class Query(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which sessions to list, or with `session` which of its threads. Times as in `Row`;
    `_from` is inclusive, `_until` exclusive."""

    tenant: str = "main"
    session: str | None = None
    user: str | None = None
    workspace: str | None = None
    agent: str | None = None
    phases: tuple[str, ...] = ()
    run: str | None = None
    label: str | None = None
    surface: tuple[str, str] | None = None
    metadata: dict[str, Any] = {}
    created_from: int | None = None
    created_until: int | None = None
    active_from: int | None = None
    active_until: int | None = None
    stale_until: int | None = None
    order: Literal["active", "created"] = "active"
    newest_first: bool = True
    total: bool = False


class PendingQuery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which pending items to list, oldest first."""

    tenant: str = "main"
    session: str | None = None
    what: str | None = None
    assignee: str | None = None


class Page(Struct, Generic[T], frozen=True, kw_only=True):
    """Some of the answers; `cursor` continues behind them and is None at the end."""

    items: list[T]
    cursor: str | None = None
    total: int | None = None


def terms(query: Query) -> list[tuple[str, str, str]]:
    """The query's conditions on maps, as (map, key, term)."""
    found = [("metadata", name, term(value)) for name, value in query.metadata.items()]
    if query.label is not None:
        found.append(("labels", query.label, term(True)))
    if query.surface is not None:
        found.append(("surfaces", surface_name(*query.surface), term(None)))
    return found


def row_terms(row: Row) -> set[tuple[str, str, str]]:
    """What a row offers to conditions on maps; a surface counts by its name alone."""
    found = {("metadata", name, term(value)) for name, value in row.metadata.items()}
    found.update(("labels", name, term(True)) for name in row.labels)
    found.update(("surfaces", name, term(None)) for name in row.surfaces)
    return found


def term(value: Any) -> str:
    """A JSON value as short text that is equal exactly when the values are."""
    text = msgspec.json.encode(value, order="deterministic")
    return text.decode() if len(text) <= 128 else "sha256:" + hashlib.sha256(text).hexdigest()


def matches(query: Query, row: Row) -> bool:
    """Whether a row answers a query; the meaning that every store's index must have."""
    if row.tenant != query.tenant or (query.session is None and row.thread != "main"):
        return False
    for name in ("session", "user", "workspace", "agent", "run"):
        if (wanted := getattr(query, name)) is not None and getattr(row, name) != wanted:
            return False
    if query.phases and row.phase not in query.phases:
        return False
    return _in_range(query, row) and set(terms(query)) <= row_terms(row)


def _in_range(query: Query, row: Row) -> bool:
    ranges = (
        (row.created, query.created_from, query.created_until),
        (row.active, query.active_from, query.active_until),
        (row.stale_at, None, query.stale_until),
    )
    for value, start, end in ranges:
        if start is not None and (value is None or value < start):
            return False
        if end is not None and (value is None or value >= end):
            return False
    return True


def pending_matches(query: PendingQuery, item: Pending) -> bool:
    """Whether a pending item answers a query."""
    return item.tenant == query.tenant and all(
        (wanted := getattr(query, name)) is None or getattr(item, name) == wanted
        for name in ("session", "what", "assignee")
    )


def pending_items(row: Row) -> list[Pending]:
    """The open items of one log, oldest first."""
    items = [
        Pending(tenant=row.tenant, session=row.session, thread=row.thread, id=name, **item)
        for name, item in row.pending.items()
    ]
    return sorted(items, key=lambda item: (item.at, item.seq))


# Cursors


def make_cursor(query: Struct, value: int, tie: int | str) -> str:
    """A place in the answers to `query`, behind (value, tie)."""
    text = msgspec.json.encode((_digest(query), value, tie))
    return base64.urlsafe_b64encode(text).decode()


def read_cursor(query: Struct, cursor: str) -> tuple[int, int | str]:
    """The place that `make_cursor` named; refuses one that belongs to another query."""
    try:
        text = base64.urlsafe_b64decode(cursor.encode())
        digest, value, tie = msgspec.json.decode(text, type=tuple[str, int, int | str])
        if not all(isinstance(n, str) or -LONGEST <= n < LONGEST for n in (value, tie)):
            raise ValueError("a number that no cursor of ours has")
    except (AttributeError, ValueError) as error:  # msgspec's errors are ValueErrors
        raise InvalidValue(
            field="cursor", problem="is not one of ours", remedy="pass a page's cursor unchanged"
        ) from error
    if digest != _digest(query):
        raise InvalidValue(
            field="cursor", problem="belongs to another query", remedy="start from the first page"
        )
    return value, tie


def _digest(query: Struct) -> str:
    text = type(query).__name__.encode() + msgspec.json.encode(query, order="deterministic")
    return hashlib.sha256(text).hexdigest()[:16]


def check_query(query: Query | PendingQuery, limit: int) -> None:
    """Refuse empty strings, bad orders and bad limits instead of taking them for "all"."""
    check_count("limit", limit, least=1, most=LIMITS.page)
    for name in (
        "tenant",
        "session",
        "user",
        "workspace",
        "agent",
        "run",
        "label",
        "what",
        "assignee",
    ):
        value = getattr(query, name, None)
        if value == "":
            raise InvalidValue(field=name, problem="is empty", remedy="leave it out, or name one")
        if value is not None:
            check_name(name, value)
    if isinstance(query, Query):
        _check_find(query)


def _check_find(query: Query) -> None:
    if query.order not in ("active", "created"):
        raise InvalidValue(
            field="order", problem=f"is {query.order!r}", remedy="use 'active' or 'created'"
        )
    for name in query.__struct_fields__:
        if name.endswith(("_from", "_until")) and getattr(query, name) is not None:
            check_count(name, getattr(query, name), least=0)
    for phase in query.phases:
        check_name("phases", phase)
    if query.surface is not None:
        for part in query.surface:
            check_name("surface", part)
    for name in query.metadata:
        check_name("metadata", name)
    to_json(query.metadata)
