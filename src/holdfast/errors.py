"""Every error that Holdfast raises on purpose.

Each has a stable `code`, says whether a retry can help (`retryable`), and carries
fields instead of prose: callers branch on the class and its fields, never on the
text. This module knows nothing of events, stores or drivers.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(eq=False, kw_only=True)
class HoldfastError(Exception):
    """The root of all our errors."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False

    @property
    def fields(self) -> dict[str, Any]:
        """The error's facts by name, as a server sends them."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.fields)


def _rebuild(cls: type[HoldfastError], fields: dict[str, Any]) -> HoldfastError:
    return cls(**fields)


@dataclass(eq=False, kw_only=True)
class InvalidValue(HoldfastError):
    """The one refusal of what cannot be stored or asked for; nothing was written."""

    code = "invalid_value"

    field: str
    problem: str
    remedy: str
    limit: int | None = None

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}; {self.remedy}"


@dataclass(eq=False, kw_only=True)
class SessionNotFound(HoldfastError):
    """No log has this key in this tenant: never made, or deleted."""

    code = "session_not_found"

    tenant: str
    session: str
    thread: str = "main"

    def __str__(self) -> str:
        return f"no thread {self.thread!r} of session {self.session!r} in tenant {self.tenant!r}"


@dataclass(eq=False, kw_only=True)
class SessionExists(HoldfastError):
    """The key that should begin a log has one already."""

    code = "session_exists"

    tenant: str
    session: str
    thread: str = "main"

    def __str__(self) -> str:
        return f"thread {self.thread!r} of session {self.session!r} exists already"


@dataclass(eq=False, kw_only=True)
class SessionMoved(HoldfastError):
    """The log was sealed because its session continues elsewhere."""

    code = "session_moved"

    tenant: str
    session: str
    thread: str
    to: str

    def __str__(self) -> str:
        return f"session {self.session!r} was moved to {self.to!r} and takes no new events here"


@dataclass(eq=False, kw_only=True)
class PhaseError(HoldfastError):
    """The session's phase does not allow this."""

    code = "phase_error"

    tenant: str
    session: str
    phase: str
    move: str

    def __str__(self) -> str:
        return f"session {self.session!r} is {self.phase}: {self.move} is not possible"


@dataclass(eq=False, kw_only=True)
class SurfaceTaken(HoldfastError):
    """Another live session has this surface: move it on purpose, or leave it there."""

    code = "surface_taken"

    tenant: str
    session: str
    surface: str
    address: str

    def __str__(self) -> str:
        return f"{self.surface} {self.address!r} is attached to session {self.session!r}"


@dataclass(eq=False, kw_only=True)
class DeletionRefused(HoldfastError):
    """The session must be kept: what keeps it is `reason`."""

    code = "deletion_refused"

    tenant: str
    session: str
    reason: str

    def __str__(self) -> str:
        return f"session {self.session!r} must be kept: {self.reason}"


@dataclass(eq=False, kw_only=True)
class HeadMoved(HoldfastError):
    """Another writer appended first: read what it wrote, then decide again."""

    code = "head_moved"
    retryable = True

    tenant: str
    session: str
    thread: str
    expected: int
    head: int

    def __str__(self) -> str:
        return (
            f"thread {self.thread!r} of session {self.session!r} "
            f"is at event {self.head}, not {self.expected}"
        )


@dataclass(eq=False, kw_only=True)
class LogReplaced(HoldfastError):
    """The log under this key is another one than the caller knew: start from its beginning."""

    code = "log_replaced"

    tenant: str
    session: str
    thread: str
    known: str
    log: str | None

    def __str__(self) -> str:
        return (
            f"thread {self.thread!r} of session {self.session!r} is not log {self.known!r} any more"
        )


@dataclass(eq=False, kw_only=True)
class LeaseLost(HoldfastError):
    """The lease was released, or somebody else took the thread over: stop driving."""

    code = "lease_lost"

    tenant: str
    session: str
    thread: str
    token: int
    newest: int
    owner: str | None

    def __str__(self) -> str:
        holder = f"held by {self.owner!r}" if self.owner else "released"
        return (
            f"lease {self.token} of thread {self.thread!r} of session {self.session!r} "
            f"is not the newest, which is {self.newest} ({holder})"
        )


@dataclass(eq=False, kw_only=True)
class LeaseHeld(HoldfastError):
    """Somebody drives this thread: wait, or take over with `steal=reason`."""

    code = "lease_held"
    retryable = True

    tenant: str
    session: str
    thread: str
    owner: str
    since: int
    left: int

    def __str__(self) -> str:
        return (
            f"thread {self.thread!r} of session {self.session!r} is driven by {self.owner!r} "
            f"since {self.since} for {self.left} ms more"
        )


@dataclass(eq=False, kw_only=True)
class BlobNotFound(HoldfastError):
    """The session owns no blob with this hash."""

    code = "blob_not_found"

    tenant: str
    session: str
    sha256: str

    def __str__(self) -> str:
        return f"session {self.session!r} has no blob {self.sha256}"


@dataclass(eq=False, kw_only=True)
class StoreError(HoldfastError):
    """The backend failed; the driver's error is `__cause__`."""

    code = "store_error"

    problem: str

    def __str__(self) -> str:
        return self.problem


@dataclass(eq=False, kw_only=True)
class StoreUnavailable(StoreError):
    """The backend did not answer or refused to write; the same call may be sent again."""

    code = "store_unavailable"
    retryable = True


@dataclass(eq=False, kw_only=True)
class StoreTooNew(StoreError):
    """A newer Holdfast wrote this store: upgrade this program."""

    code = "store_too_new"

    found: int
    known: int


@dataclass(eq=False, kw_only=True)
class LogDamaged(StoreError):
    """One event cannot be read; all others can, `after=seq` goes on behind it."""

    code = "log_damaged"

    tenant: str
    session: str
    thread: str
    seq: int


@dataclass(eq=False, kw_only=True)
class UnknownStore(HoldfastError):
    """No store of this kind is to be had here: ask for one of `available`."""

    code = "unknown_store"

    kind: str
    available: list[str]

    def __str__(self) -> str:
        return f"there is no store of kind {self.kind!r}; there are {', '.join(self.available)}"


@dataclass(eq=False, kw_only=True)
class ModelError(HoldfastError):
    """A model call failed; the provider's own error is `__cause__`, never in `problem`'s
    place unless it is safe to show. `status` is that of HTTP, where there was one."""

    code = "model_failed"

    model: str
    problem: str
    status: int | None = None

    def __str__(self) -> str:
        return f"{self.model}: {self.problem}"


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
    """The sandbox could not do it; the system's error, if there was one, is `__cause__`."""

    code = "sandbox_failed"

    problem: str

    def __str__(self) -> str:
        return self.problem


@dataclass(eq=False, kw_only=True)
class NoSuchFile(SandboxError):
    """There is no file or folder of this path in the sandbox."""

    code = "no_such_file"

    path: str
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
    """A run is going, and the message was not to wait for it."""

    code = "session_busy"
    retryable = True

    session: str
    run: str | None

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
        listed = ", ".join(self.pending) or "nothing"
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
        return (
            f"item {self.item!r} was already {self.outcome} by {self.by or 'someone'} at {self.at}"
        )


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


@dataclass(eq=False, kw_only=True)
class InvalidSettings(HoldfastError):
    """A server cannot be run with these settings. Every fault is listed."""

    code = "invalid_settings"

    faults: list[str]

    def __str__(self) -> str:
        return "the server cannot be run:" + "".join(f"\n- {fault}" for fault in self.faults)


@dataclass(eq=False, kw_only=True)
class Unauthorized(HoldfastError):
    """The server does not know who asks: no key, or one that is wrong, expired or revoked."""

    code = "unauthorized"

    problem: str = "a valid key is needed"

    def __str__(self) -> str:
        return self.problem


@dataclass(eq=False, kw_only=True)
class Forbidden(HoldfastError):
    """Whoever asks may not do this; `scope` is what a key would need for it."""

    code = "forbidden"

    problem: str
    scope: str | None = None

    def __str__(self) -> str:
        return self.problem


@dataclass(eq=False, kw_only=True)
class NoRoute(HoldfastError):
    """The server has nothing at this path."""

    code = "not_found"

    path: str

    def __str__(self) -> str:
        return f"there is nothing at {self.path!r}"


@dataclass(eq=False, kw_only=True)
class MethodNotAllowed(HoldfastError):
    """What is at this path takes other methods."""

    code = "method_not_allowed"

    method: str
    allowed: list[str]

    def __str__(self) -> str:
        return f"{self.method} is not possible here: use {', '.join(self.allowed)}"


@dataclass(eq=False, kw_only=True)
class UnsupportedMedia(HoldfastError):
    """The body of a request is of a type that is not taken here."""

    code = "unsupported_media_type"

    found: str
    wanted: str

    def __str__(self) -> str:
        return f"a body of type {self.found!r} is not taken here: send {self.wanted}"


@dataclass(eq=False, kw_only=True)
class RequestTooLarge(HoldfastError):
    """The body of a request has more bytes than are taken here; nothing of it was read."""

    code = "request_too_large"

    limit: int

    def __str__(self) -> str:
        return f"the body of a request may have {self.limit} bytes"


@dataclass(eq=False, kw_only=True)
class RequestTooSlow(HoldfastError):
    """The body of a request did not come in time; nothing was done."""

    code = "request_too_slow"
    retryable = True

    seconds: float

    def __str__(self) -> str:
        return f"the body of a request must be here within {self.seconds:g} seconds"


@dataclass(eq=False, kw_only=True)
class RateLimited(HoldfastError):
    """Too much at once: `limit` of `what` are allowed. Try again in `retry_after` seconds."""

    code = "rate_limited"
    retryable = True

    what: str
    limit: float
    retry_after: float

    def __str__(self) -> str:
        return f"{self.limit:g} {self.what} are allowed: try again in {self.retry_after:g} seconds"


@dataclass(eq=False, kw_only=True)
class KeyReused(HoldfastError):
    """The idempotency key stands for another request already; nothing was done."""

    code = "key_reused"

    key: str

    def __str__(self) -> str:
        return f"key {self.key!r} was used for another request: use a new key for a new request"


@dataclass(eq=False, kw_only=True)
class UnknownEngine(HoldfastError):
    """No engine of this name runs here: ask for one of `available`."""

    code = "unknown_engine"

    engine: str
    available: list[str]

    def __str__(self) -> str:
        return f"there is no engine {self.engine!r}; there are {', '.join(self.available)}"


@dataclass(eq=False, kw_only=True)
class UnknownAgent(HoldfastError):
    """No agent of this name is served here: ask for one of `available`."""

    code = "unknown_agent"

    agent: str
    available: list[str]

    def __str__(self) -> str:
        return f"there is no agent {self.agent!r}; there are {', '.join(self.available)}"


@dataclass(eq=False, kw_only=True)
class UnknownLoader(HoldfastError):
    """Agents are not loaded in this way here: use one of `available`."""

    code = "unknown_loader"

    loader: str
    available: list[str]

    def __str__(self) -> str:
        return f"there is no loader {self.loader!r}; there are {', '.join(self.available)}"


@dataclass(eq=False, kw_only=True)
class ServerError(HoldfastError):
    """A server failed, or said something that this client does not know: `reason` is the code
    that it gave, `status` that of HTTP."""

    code = "server_error"

    problem: str = "the server failed"
    status: int | None = None
    reason: str | None = None

    def __str__(self) -> str:
        return self.problem


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that is wrong with a bundle: a stable `code`, where it is, and what it is; never a
    value of the bundle."""

    code: str
    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


@dataclass(eq=False, kw_only=True)
class InvalidBundle(HoldfastError):
    """A bundle cannot be taken as it is; nothing was written. Every fault is listed, or as many as
    the limits say, and `more` counts the rest."""

    code = "invalid_bundle"

    faults: list[Fault]
    more: int = 0

    def __str__(self) -> str:
        listed = "".join(f"\n- {fault}" for fault in self.faults)
        return f"the bundle is refused:{listed}" + (f"\n- and {self.more} more" * bool(self.more))


@dataclass(eq=False, kw_only=True)
class NotContinuable(HoldfastError):
    """A bundle can be read, but its session cannot go on from it."""

    code = "not_continuable"

    bundle: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"bundle {self.bundle} {self.problem}; {self.remedy}"


@dataclass(eq=False, kw_only=True)
class ServerUnavailable(ServerError):
    """A server could not be reached, or did not answer, for as long as the client was to try. What
    was sent may have arrived: the same call, with the same key, may be made again."""

    code = "server_unavailable"
    retryable = True

    problem: str = "the server cannot be reached"


@dataclass(eq=False, kw_only=True)
class MissingExtra(HoldfastError, ImportError):
    """An optional package is needed for this."""

    code = "missing_extra"

    extra: str
    needed_for: str

    def __str__(self) -> str:
        return f"{self.needed_for} needs an optional package: pip install 'holdfast[{self.extra}]'"
