"""Errors of models, tools, sandboxes and runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from .root import HoldfastError, listed


@dataclass(eq=False, kw_only=True)
class ModelError(HoldfastError):
    """A model call failed. The provider's error is `__cause__`; `problem` contains its text only if
    the text is safe to show. `status` is the HTTP status, if there is one. `remedy` says how to
    correct a wrong configuration; it is shown to users in `Result.error`, so it never contains the
    provider's text.

    What to do: [`model_failed`](../errors.md#model_failed).
    """

    code = "model_failed"

    model: str
    problem: str
    status: int | None = None
    remedy: str | None = None

    def __str__(self) -> str:
        said = f"{self.model}: {self.problem}"
        return said if self.remedy is None else f"{said}; {self.remedy}"


@dataclass(eq=False, kw_only=True)
class Diverged(ModelError):
    """A replayed prompt differs from the recorded prompt. `step` is the index of the first message
    that differs, `expected` is the recorded content and `found` is the new content.

    What to do: [`replay_diverged`](../errors.md#replay_diverged).
    """

    code = "replay_diverged"

    expected: Any = None
    found: Any = None
    step: int = 0


@dataclass(eq=False, kw_only=True)
class ModelUnavailable(ModelError):
    """The provider failed, or its response was cut off. The same call may be retried.

    What to do: [`model_unavailable`](../errors.md#model_unavailable).
    """

    code = "model_unavailable"
    retryable = True


@dataclass(eq=False, kw_only=True)
class ModelRateLimited(ModelUnavailable):
    """The provider rejected the call because of a rate limit. `retry_after` is in seconds, or None
    if the provider did not send it.

    What to do: [`model_rate_limited`](../errors.md#model_rate_limited).
    """

    code = "model_rate_limited"

    retry_after: float | None = None


@dataclass(eq=False, kw_only=True)
class ModelTimeout(ModelUnavailable):
    """The provider did not respond in time.

    What to do: [`model_timeout`](../errors.md#model_timeout).
    """

    code = "model_timeout"


@dataclass(eq=False, kw_only=True)
class SandboxError(HoldfastError):
    """An operation in the sandbox failed. The error of the operating system, if any, is
    `__cause__`. `path` is the file or folder that the operation was for, if any.

    What to do: [`sandbox_failed`](../errors.md#sandbox_failed).
    """

    code = "sandbox_failed"
    template = "{problem}"

    problem: str
    path: str | None = None


@dataclass(eq=False, kw_only=True)
class NoSuchFile(SandboxError):
    """The sandbox has no file or folder with this path.

    What to do: [`no_such_file`](../errors.md#no_such_file).
    """

    code = "no_such_file"
    template = "{path!r}: No such file or directory"

    path: str = field()
    problem: str = "does not exist"


@dataclass(eq=False, kw_only=True)
class OutsideSandbox(SandboxError):
    """A path is outside the sandbox's folder, directly or through a link. The operation was not
    performed.

    What to do: [`outside_sandbox`](../errors.md#outside_sandbox).
    """

    code = "outside_sandbox"
    template = "{path!r} {problem}"

    path: str
    problem: str = "is outside the sandbox"


@dataclass(eq=False, kw_only=True)
class InvalidAgent(HoldfastError):
    """The definition of an agent or its harness is invalid. All faults are listed.

    What to do: [`invalid_agent`](../errors.md#invalid_agent).
    """

    code = "invalid_agent"

    agent: str
    faults: list[str]

    def __str__(self) -> str:
        return f"agent {self.agent!r} is invalid:{listed(self.faults)}"


@dataclass(eq=False, kw_only=True)
class ToolError(HoldfastError):
    """Raise this in a tool to send its text to the model. The text of other exceptions is not
    sent.

    What to do: [`tool_failed`](../errors.md#tool_failed).
    """

    code = "tool_failed"
    template = "{problem}"

    problem: str


@dataclass(eq=False, kw_only=True)
class ToolMissing(HoldfastError):
    """The session needs a tool that this agent does not have. Nothing was changed; a program whose
    agent has the tool can resume the session.

    What to do: [`tool_missing`](../errors.md#tool_missing).
    """

    code = "tool_missing"
    template = (
        "session {session!r} needs tool {tool!r}, which agent {agent!r} does not have: serve it "
        "with an agent that has this tool"
    )

    session: str
    agent: str
    tool: str


@dataclass(eq=False, kw_only=True)
class SessionBusy(HoldfastError):
    """A run is active, and the message was sent with `busy=\"reject\"` or the thread cannot be
    rewound. `since` is the start of the run in ms. For a rewind, `run` is None if no run is active
    but an item is pending.

    What to do: [`session_busy`](../errors.md#session_busy).
    """

    code = "session_busy"
    retryable = True

    session: str
    run: str | None
    since: int | None = None
    remedy: str = "wait, or queue the message"

    def __str__(self) -> str:
        run = "" if self.run is None else f" with run {self.run!r}"
        return f"session {self.session!r} is busy{run}: {self.remedy}"


@dataclass(eq=False, kw_only=True)
class QueueFull(HoldfastError):
    """The queue of the session is full.

    What to do: [`queue_full`](../errors.md#queue_full).
    """

    code = "queue_full"
    retryable = True
    template = "the queue of session {session!r} is full ({limit} messages): retry later"

    session: str
    limit: int


@dataclass(eq=False, kw_only=True)
class NotPending(HoldfastError):
    """No item with this id is pending. `pending` lists the pending items.

    What to do: [`not_pending`](../errors.md#not_pending).
    """

    code = "not_pending"

    session: str
    item: str | None
    pending: list[str]

    def __str__(self) -> str:
        if self.item is None and not self.pending:
            return f"nothing is pending in session {self.session!r}"
        listed = ", ".join(self.pending) or "none"
        if self.item is None:
            return (
                f"several items are pending in session {self.session!r}: pass the id of one of "
                f"them ({listed})"
            )
        return f"item {self.item!r} is not pending in session {self.session!r}; pending: {listed}"


@dataclass(eq=False, kw_only=True)
class AlreadyDecided(HoldfastError):
    """The item was already decided or has expired. Nothing was changed.

    What to do: [`already_decided`](../errors.md#already_decided).
    """

    code = "already_decided"

    session: str
    item: str
    outcome: str
    by: str | None
    at: int

    def __str__(self) -> str:
        when = f"{datetime.fromtimestamp(self.at / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"
        if self.outcome == "expired":
            return f"item {self.item!r} expired at {when} without a decision"
        by = "" if self.by is None else f" by {self.by}"
        return f"item {self.item!r} was already {self.outcome}{by} at {when}"


@dataclass(eq=False, kw_only=True)
class UnsafePoint(HoldfastError):
    """The event is in the middle of a turn, so a fork or a restore cannot start there. `nearest` is
    the nearest event at which it can start.

    What to do: [`unsafe_point`](../errors.md#unsafe_point).
    """

    code = "unsafe_point"
    template = "event {at} is in the middle of a turn: use event {nearest} instead"

    session: str
    at: int
    nearest: int


@dataclass(eq=False, kw_only=True)
class RunFailed(HoldfastError):
    """A run failed, was aborted or was interrupted. `reason` is the error code of the run.

    What to do: [`run_failed`](../errors.md#run_failed).
    """

    code = "run_failed"

    session: str
    run: str
    status: str
    reason: str | None
    problem: str

    def __str__(self) -> str:
        run = f"run {self.run}" if self.run else "a run"
        ended = self.status if self.status == "failed" else f"was {self.status}"
        return f"{run} of session {self.session!r} {ended}: {self.problem}"


@dataclass(eq=False, kw_only=True)
class HarnessClosed(HoldfastError):
    """The harness or session is closed. Open it again.

    What to do: [`harness_closed`](../errors.md#harness_closed).
    """

    code = "harness_closed"
    template = "{what} is closed"

    what: str
