"""The audit record of a tool call, and the decisions about it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Decided(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A decision about a call: the id and kind of the pending item, the decision, and its actor,
    time (ms), channel and reason. The outcome `voted` is one of several required approvals.

    See [audit](../sessions.md#audit-what-was-done-and-who-approved-it).
    """

    item: str
    what: str
    outcome: str
    at: int
    by: str | None = None
    channel: str | None = None
    reason: str | None = None


class Probed(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer of a tool's probe about a call whose outcome was lost, its time (ms), and the
    reason if the probe does not know.

    See [what was done](../sessions.md#what-was-done-and-by-whose-leave).
    """

    outcome: str
    at: int
    reason: str | None = None


class Audited(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The audit record of one tool call. `asked` are the senders of the messages of its run. Times
    are in ms. `changed` are the arguments that an approver changed; `result` and `error` come from
    the tool.

    See [audit](../sessions.md#audit-what-was-done-and-who-approved-it).
    """

    thread: str
    seq: int
    call: str
    tool: str
    proposed: int
    run: str | None = None
    asked: list[str | None] = []
    model: str | None = None
    parent: str | None = None
    arguments: Any = None
    decisions: list[Decided] = []
    changed: Any = None
    started: int | None = None
    allowed_by: str | None = None
    ended: int | None = None
    outcome: str | None = None
    code: str | None = None
    result: Any = None
    error: str | None = None
    probes: list[Probed] = []
