"""Rows: the entries of lists, one per log, and the operations that change them. Pure.

Operations are data, so that a store does not depend on event kinds and can keep them in its files.
Fields that depend on several other fields (`stale_at`, `wake`) are computed here only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...errors import InvalidValue
from ..codec import LIMITS, check_count, check_name, is_erased
from ..events import ADAPTER_NAMESPACES, Event, Key, Scope
from .encrypted_preview import BOXED, size_of
from .phases import MOVES


class Parent(Struct, frozen=True):
    """The origin of a forked thread: the parent thread in the same session, and the number of the
    event at which it was forked.

    See [the life of a session](../sessions.md).
    """

    thread: str
    at: int = 0


class Row(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The entry of one log in lists. The times `created`, `changed` (when the phase changed),
    `last` and `due` are UTC in ms. `active`, `stale_at`, `ttl` (until stale) and `expiry` (from
    stale to expired) are in seconds, so that an index on them changes at most once a second. `link`
    is a hash over all events up to `head`: compared with a copy that was stored elsewhere, it
    proves that none of them was changed. `erased` is the number of events whose data was erased:
    when it rises, copies of the data must be removed.

    See [the life of a session](../sessions.md).
    """

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
    changed: int | None = None
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
    expiry: int | None = None
    stale_at: int | None = None
    wake: int | None = None
    sealed: str | None = None
    created: int = 0
    active: int = 0
    last: int = 0
    link: str | None = None
    erased: int = 0

    @property
    def key(self) -> Key:
        return Key(self.tenant, self.session, self.thread)

    @property
    def scope(self) -> Scope:
        return Scope(self.tenant, self.session)


class Pending(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question that a user or an external system must answer.

    See [the life of a session](../sessions.md).
    """

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
    risk: str | None = None
    approvals: int = 1


class Op(Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """One operation on a row, as data: `["put", "labels", "vip", true]` in JSON."""

    do: Literal[
        "set", "set_once", "add", "latest", "put", "put_once", "drop", "drop_draft", "seal", "move"
    ]
    field: str
    key: str = ""
    value: Any = None


RowChange: TypeAlias = tuple[Op, ...]
Project: TypeAlias = Callable[[Event], RowChange]

SKEW = 5_000  # ms by which the clocks of processes that share a store may differ
MAPS = ("labels", "metadata", "surfaces", "pending")
LIMITED = (*MAPS, "usage")


def apply(
    row: Row, events: Sequence[Event], changes: Sequence[RowChange], link: str | None = None
) -> Row:
    """Return the row after `events`; `link` is the link of the last event. Raises `InvalidValue` if
    a map would exceed its limit."""
    new: dict[str, Any] = {}
    size, erased = row.bytes, row.erased
    active = row.active
    for event, change in zip(events, changes, strict=True):
        if is_erased(event):
            erased += 1
            size += size_of(event)
        else:
            size += len(event.data) if event.v <= BOXED else size_of(event)
        for op in change:
            do, name = op.do, op.field
            if do in ("set", "seal"):
                new[name] = op.value
            elif name == "active":
                active = max(active, op.value)
            elif do == "add":
                counts = new.get(name)
                if counts is None:
                    counts = new[name] = dict(getattr(row, name))
                counts[op.key] = counts.get(op.key, 0) + op.value
            elif do == "move":
                _move(row, new, op, event.at)
            elif do != "drop_draft":
                _operate(row, new, op)
    _check_row(new)
    if "parent" in new:
        new["parent"] = msgspec.convert(new["parent"], Parent | None)
    last = events[-1]
    new.update(head=last.seq, last=last.at, bytes=size, active=active, link=link, erased=erased)
    after = replace(row, **new)
    derived = (stale_at(after), wake(after))
    if derived != (after.stale_at, after.wake):
        after = replace(after, stale_at=derived[0], wake=derived[1])
    return after


def _move(row: Row, new: dict[str, Any], op: Op, at: int) -> None:
    phase = new.get("phase", row.phase)
    to = MOVES.get(op.value, {}).get(phase, phase)
    if to != phase:
        new["phase"] = to
        new["changed"] = at


def _operate(row: Row, new: dict[str, Any], op: Op) -> None:
    name = op.field
    value = new.get(name, getattr(row, name))
    if op.do == "set_once":
        if value is None:
            new[name] = op.value
    elif op.do == "latest":
        new[name] = max(value, op.value)
    else:
        if name not in new:
            value = new[name] = dict(value)
        if op.do == "put":
            value[op.key] = op.value
        elif op.do == "put_once":
            value.setdefault(op.key, op.value)
        else:
            value.pop(op.key, None)


def _check_row(new: dict[str, Any]) -> None:
    """Reject values that some store could not search by, and maps that would exceed their limit."""
    for name in ("agent", "user", "workspace"):
        if new.get(name) is not None:
            check_name(name, new[name])
    for name in ("due", "ttl", "expiry"):
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
    """Return the time from which a sweep may suspend the session, or expire it if it is already
    suspended. Returns None while something in the session is active."""
    busy = row.run in ("running", "waiting") or row.pending or has_work(row) or row.pinned
    if busy or row.sealed is not None:
        return None
    if row.phase in ("created", "active"):
        return None if row.ttl is None else row.active + row.ttl
    if row.phase == "suspended" and row.expiry is not None:
        return (row.changed or 0) // 1000 + row.expiry
    return None


def has_work(row: Row) -> bool:
    """Return whether the log has work for a driver, now or later. A session that belongs to the
    adapter of an SDK never has a driver."""
    return row.due is not None and row.agent not in ADAPTER_NAMESPACES


def agrees(stored: Row, projected: Row) -> bool:
    """Return whether a stored row equals the row computed from its log. Ignores `link`, and the
    fields `changed` and `erased` if the row was written before they were introduced."""
    changed = None if stored.changed is None else projected.changed
    erased = projected.erased if stored.erased else 0
    return stored == replace(projected, changed=changed, erased=erased, link=stored.link)


def wake(row: Row) -> int | None:
    """Return the time from which the log needs a driver: 0 for an open run, `due` for other
    work."""
    if row.sealed is not None:
        return None
    return 0 if row.run == "running" else row.due


def ahead(now: int) -> int:
    """Return the latest second that is plausible for a log's last activity, allowing for clock
    differences. A later activity means that the clock was set back."""
    return (now + SKEW) // 1000


def is_due(row: Row, now: int) -> bool:
    """Return whether the log needs a driver now. If its last activity is in the future, the clock
    was set back. Then everything that was due at the time of that activity is due now, so that no
    session waits until the clock catches up. Timers for a later time still wait for the clock."""
    if row.wake is None or row.wake <= now:
        return row.wake is not None
    return row.active > ahead(now) and row.wake < (row.active + 1) * 1000


def unseals(change: RowChange) -> bool:
    """Return whether a change reopens a sealed log."""
    return any(op.do == "seal" and op.value is None for op in change)


def surface_name(surface: str, address: str) -> str:
    """Return the name of a surface binding: a JSON array of surface and address, so that names
    never collide."""
    return msgspec.json.encode((surface, address)).decode()


def bound(row: Row) -> list[str]:
    """Return the surfaces that the session must have claimed. Returns an empty list if the session
    has ended, since other sessions may have claimed its surfaces."""
    return [] if row.phase == "expired" or row.sealed is not None else list(row.surfaces)


SURFACE_CLAIM = "surface:"  # prefix of the claim of an attached surface; `surface_name` follows


def _known(item: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a pending item that this version knows. A newer version may have written
    additional fields."""
    return {name: value for name, value in item.items() if name in Pending.__struct_fields__}


def waiting(row: Row) -> dict[str, Any]:
    """Return the pending items of a log that can be answered. Returns an empty dict if the session
    was moved."""
    return row.pending if row.sealed is None else {}


def pending_items(row: Row) -> list[Pending]:
    """Return the pending items of one log, oldest first."""
    items = [
        Pending(tenant=row.tenant, session=row.session, thread=row.thread, id=name, **_known(item))
        for name, item in waiting(row).items()
    ]
    return sorted(items, key=lambda item: (item.at, item.seq))
