"""The payloads of the events about webhook endpoints, which are in logs of reserved tenants.

A released kind never changes its meaning; only fields with a default may be added. `KINDS` in
`payloads` lists all kinds.
"""

from __future__ import annotations

from typing import Literal

from .session_payloads import Payload


class SurfaceHooked(Payload, frozen=True, kw_only=True):
    """A webhook endpoint was added or changed, or takes deliveries again; fields that are None stay
    as they are. `give_up` is in seconds; `since`, `replay` and `until` are in ms. `since` is the
    time of the first event to deliver; with `replay`, everything since then is delivered again. A
    `secret` is in a thread of its own; earlier secrets also sign until `until`.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    url: str | None = None
    kinds: list[str] | None = None
    agents: list[str] | None = None
    labels: list[str] | None = None
    give_up: int | None = None
    since: int | None = None
    replay: int | None = None
    secret: str | None = None
    until: int | None = None
    due: int | None = None
    reason: str | None = None


class SurfaceUnhooked(Payload, frozen=True, kw_only=True):
    """A webhook endpoint takes no deliveries: its receiver answered 410, or it is being removed.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    why: Literal["gone", "removed"] = "removed"
    reason: str | None = None


class SurfaceDelivered(Payload, frozen=True, kw_only=True):
    """A webhook endpoint has the events of `log` up to `seq`. If `due` is set, more events wait. In
    the other logs of the endpoint: the dead letter `seq` of `log` was delivered; all dead letters
    so far were `dismissed`; or all sessions were checked up to the second `looked`.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    session: str | None = None
    thread: str | None = None
    log: str | None = None
    seq: int = 0
    due: int | None = None
    looked: int | None = None
    dismissed: bool = False


class SurfaceFailed(Payload, frozen=True, kw_only=True):
    """A webhook endpoint did not accept event `seq` of `log`. It is tried again at `due` (ms). If
    it is `dead`, it became a dead letter, and the endpoint gets the next event. `since` is the time
    of the first attempt, in ms.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    session: str | None = None
    thread: str | None = None
    log: str | None = None
    seq: int = 0
    since: int = 0
    attempts: int = 1
    error: str | None = None
    status: int | None = None
    due: int | None = None
    dead: bool = False
