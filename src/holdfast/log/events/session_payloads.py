"""The payloads of the events about a session as a whole: its life, threads, labels and surfaces.

A released kind never changes its meaning; only fields with a default may be added. `KINDS` in
`payloads` lists all kinds.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct


class Payload(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The base class of the payloads of all event kinds.

    Kind and fields: [events](../formats/log.md#kinds).
    """


class SessionCreated(Payload, frozen=True, kw_only=True):
    """A session begins, with its owner, times and labels.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    agent: str | None = None
    title: str | None = None
    user: str | None = None
    workspace: str | None = None
    ttl: int | None = None
    expiry: int | None = None
    labels: list[str] = []
    metadata: dict[str, Any] = {}


class SessionTouched(Payload, frozen=True, kw_only=True):
    """A user of the session was active.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    surface: str | None = None
    reason: str | None = None


class SessionSuspended(Payload, frozen=True, kw_only=True):
    """The session is idle.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    reason: str | None = None


class SessionResumed(Payload, frozen=True, kw_only=True):
    """A suspended session is active again.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    reason: str | None = None


class SessionExpired(Payload, frozen=True, kw_only=True):
    """The session is over.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    reason: str | None = None


class SessionPinned(Payload, frozen=True, kw_only=True):
    """The session is exempt from sweeps, or no longer.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    pinned: bool = True
    reason: str | None = None


class SessionHeld(Payload, frozen=True, kw_only=True):
    """A legal hold of the session was set or lifted. `hold` is the reason why the session must not
    be deleted; None lifts the hold.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    hold: str | None = None
    reason: str | None = None


class SessionTimed(Payload, frozen=True, kw_only=True):
    """The time limits of the session changed, in seconds.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    ttl: int | None = None
    expiry: int | None = None
    reason: str | None = None


class SessionMovedTo(Payload, frozen=True, kw_only=True):
    """The session continues in the store `to`; the log takes no new events.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    to: str


class SessionReopened(Payload, frozen=True, kw_only=True):
    """A moved or expired session takes events again.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    reason: str | None = None


class SessionAdopted(Payload, frozen=True, kw_only=True):
    """The session was handed over to `agent`. Unanswered messages and calls without an outcome stay
    in the conversation, but no run handles them.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    agent: str
    reason: str | None = None


class ThreadCreated(Payload, frozen=True, kw_only=True):
    """A thread was created. If `item` is set, the thread belongs to a sub-agent: `call` in the
    parent's log waits for it with that pending item. If it is `detached`, nothing waits for it, and
    its result is a message to the parent. `approval` is the parent's setting for tools at that
    time.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    agent: str | None = None
    title: str | None = None
    parent: str | None = None
    item: str | None = None
    call: str | None = None
    approval: Literal["auto", "ask", "deny", "tool"] = "tool"
    detached: bool = False


class ThreadForked(Payload, frozen=True, kw_only=True):
    """A thread was forked from another thread. `item`, `call`, `approval` and `detached` have the
    same meaning as in `ThreadCreated`.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    parent: str
    at: int
    agent: str | None = None
    title: str | None = None
    item: str | None = None
    call: str | None = None
    approval: Literal["auto", "ask", "deny", "tool"] = "tool"
    detached: bool = False


class ThreadReported(Payload, frozen=True, kw_only=True):
    """The result of a sub-agent was written to its parent's log: as the answer to `item`, or as a
    message if the sub-agent is detached.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    item: str
    due: int | None = None


class RewoundWindow(Payload, frozen=True, kw_only=True):
    """The window after a rewind: the part of the conversation that a model reads. It contains the
    events after `upto`, with estimated `tokens` and `turns`. Event `seq` is the compaction that set
    the window; None if there was none.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    upto: int = 0
    seq: int | None = None
    tokens: int = 0
    turns: int = 0


class ThreadRewound(Payload, frozen=True, kw_only=True):
    """The conversation was reset to its content right after event `to`; 0 clears it. The writer
    computes the other fields from the log, so that a fold and a row need no other event: the
    `window` after event `to`, the time at which a driver must check the log (`due`), and the number
    of messages. `first` is empty if the message that the row shows is no longer the first one, and
    None if the row does not change.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    to: int
    window: RewoundWindow
    due: int | None = None
    messages: int = 0
    first: str | None = None


class ThreadRenamed(Payload, frozen=True, kw_only=True):
    """The thread has a new title.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    title: str


class LabelAdded(Payload, frozen=True, kw_only=True):
    """The session has one more label.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    label: str


class LabelRemoved(Payload, frozen=True, kw_only=True):
    """A label was removed.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    label: str


class MetadataChanged(Payload, frozen=True, kw_only=True):
    """Metadata of the session was set or removed.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    set: dict[str, Any] = {}
    drop: list[str] = []
    reason: str | None = None


class SurfaceAttached(Payload, frozen=True, kw_only=True):
    """A surface was bound to the session. `touch` is true if this counts as activity.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    surface: str
    address: str
    detail: dict[str, Any] = {}
    touch: bool = True
    reason: str | None = None


class SurfaceDetached(Payload, frozen=True, kw_only=True):
    """The session is no longer reached by this surface.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    surface: str
    address: str
    reason: str | None = None
