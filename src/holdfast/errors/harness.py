"""What models, tools, sandboxes and runs refuse, and how they fail."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from .root import HoldfastError


@dataclass(eq=False, kw_only=True)
class ModelError(HoldfastError):
    """A model call failed; the provider's own error is `__cause__`, never in `problem`'s
    place unless it is safe to show. `status` is that of HTTP, where there was one. `remedy` is
    what to do about a mistake in the configuration: users read it in `Result.error`, so it never
    holds what a provider said."""

    code = "model_failed"

    model: str
    problem: str
    status: int | None = None
    remedy: str | None = None

    def __str__(self) -> str:
        said = f"{self.model}: {self.problem}"
        return said if self.remedy is None else f"{said}: {self.remedy}"


@dataclass(eq=False, kw_only=True)
class Diverged(ModelError):
    """A replay asked for something else than the log says: `step` is the place in the prompt,
    `expected` what the log has there, `found` what was asked."""

    code = "replay_diverged"

    expected: Any = None
    found: Any = None
    step: int = 0


@dataclass(eq=False, kw_only=True)
class ModelUnavailable(ModelError):
    """The provider failed, or its answer was cut short: the same call may be made again."""

    code = "model_unavailable"
    retryable = True


@dataclass(eq=False, kw_only=True)
class ModelRateLimited(ModelUnavailable):
    """The provider wants fewer calls; it said how long to wait, in seconds, or nothing."""

    code = "model_rate_limited"

    retry_after: float | None = None


@dataclass(eq=False, kw_only=True)
class ModelTimeout(ModelUnavailable):
    """The provider did not answer in time."""

    code = "model_timeout"


@dataclass(eq=False, kw_only=True)
class SandboxError(HoldfastError):
    """The sandbox could not do it; the system's error, if there was one, is `__cause__`. `path` is
    the file or folder that it is about, if it is about one."""

    code = "sandbox_failed"

    problem: str
    path: str | None = None

    def __str__(self) -> str:
        return self.problem


@dataclass(eq=False, kw_only=True)
class NoSuchFile(SandboxError):
    """There is no file or folder of this path in the sandbox."""

    code = "no_such_file"

    path: str = field()
    problem: str = "is not there"

    def __str__(self) -> str:
        return f"{self.path!r}: No such file or directory"


@dataclass(eq=False, kw_only=True)
class OutsideSandbox(SandboxError):
    """A path leads out of the sandbox's folder, by itself or by a link; nothing was touched."""

    code = "outside_sandbox"

    path: str
    problem: str = "leads outside the sandbox"

    def __str__(self) -> str:
        return f"{self.path!r} {self.problem}"


@dataclass(eq=False, kw_only=True)
class InvalidAgent(HoldfastError):
    """An agent, or the harness around it, cannot work as it is described. Every fault is listed."""

    code = "invalid_agent"

    agent: str
    faults: list[str]

    def __str__(self) -> str:
        listed = "".join(f"\n- {fault}" for fault in self.faults)
        return f"agent {self.agent!r} cannot be served:{listed}"


@dataclass(eq=False, kw_only=True)
class ToolError(HoldfastError):
    """For tools to raise: unlike any other exception, its words reach the model."""

    code = "tool_failed"

    problem: str

    def __str__(self) -> str:
        return self.problem


@dataclass(eq=False, kw_only=True)
class ToolMissing(HoldfastError):
    """The session needs a tool that this agent does not have: nothing was done, and the
    session can be resumed by a program that has it."""

    code = "tool_missing"

    session: str
    agent: str
    tool: str

    def __str__(self) -> str:
        return (
            f"session {self.session!r} waits for tool {self.tool!r}, which agent "
            f"{self.agent!r} does not have: serve it with an agent that has it"
        )


@dataclass(eq=False, kw_only=True)
class SessionBusy(HoldfastError):
    """A run is going, since `since` in ms, and the message was not to wait for it."""

    code = "session_busy"
    retryable = True

    session: str
    run: str | None
    since: int | None = None

    def __str__(self) -> str:
        return f"session {self.session!r} is busy with run {self.run!r}: wait, queue or steer"


@dataclass(eq=False, kw_only=True)
class QueueFull(HoldfastError):
    """As many messages wait as may wait."""

    code = "queue_full"
    retryable = True

    session: str
    limit: int

    def __str__(self) -> str:
        return f"{self.limit} messages wait in session {self.session!r}: send it again later"


@dataclass(eq=False, kw_only=True)
class NotPending(HoldfastError):
    """Nothing with this id waits for an answer; these do."""

    code = "not_pending"

    session: str
    item: str | None
    pending: list[str]

    def __str__(self) -> str:
        if self.item is None and not self.pending:
            return f"nothing waits in session {self.session!r}"
        what = "one of several items" if self.item is None else f"item {self.item!r}"
        if not self.pending:
            return f"{what} of session {self.session!r} does not wait: nothing does there"
        listed = ", ".join(self.pending)
        return f"{what} of session {self.session!r} cannot be meant: pending there is {listed}"


@dataclass(eq=False, kw_only=True)
class AlreadyDecided(HoldfastError):
    """Somebody else was first; nothing has changed."""

    code = "already_decided"

    session: str
    item: str
    outcome: str
    by: str | None
    at: int

    def __str__(self) -> str:
        when = f"{datetime.fromtimestamp(self.at / 1000, UTC):%Y-%m-%d %H:%M:%SZ}"
        if self.outcome == "expired":
            return f"item {self.item!r} expired at {when}, before anybody had decided"
        by = "" if self.by is None else f" by {self.by}"
        return f"item {self.item!r} was already {self.outcome}{by} at {when}"


@dataclass(eq=False, kw_only=True)
class UnsafePoint(HoldfastError):
    """Something is open at this place of the log, so nothing can begin there."""

    code = "unsafe_point"

    session: str
    at: int
    nearest: int

    def __str__(self) -> str:
        return f"event {self.at} is in the middle of a turn: the nearest place is {self.nearest}"


@dataclass(eq=False, kw_only=True)
class RunFailed(HoldfastError):
    """A run did not end well; its code says why."""

    code = "run_failed"

    session: str
    run: str
    status: str
    reason: str | None
    problem: str

    def __str__(self) -> str:
        return f"run {self.run} of session {self.session!r} {self.status}: {self.problem}"


@dataclass(eq=False, kw_only=True)
class HarnessClosed(HoldfastError):
    """The harness, or this session of it, was closed: open it again."""

    code = "harness_closed"

    what: str

    def __str__(self) -> str:
        return f"{self.what} is closed"
