"""The payload of each kind of event.

A released kind never changes its meaning; only fields with a default may be added. `KINDS` at the
end lists all kinds, after the reserved namespaces.
"""

from __future__ import annotations

from typing import Any, Literal

from .budget_payloads import RunCharged, RunWarned
from .probe_payloads import ToolProbed
from .session_payloads import (
    LabelAdded,
    LabelRemoved,
    MetadataChanged,
    Payload,
    SessionAdopted,
    SessionCreated,
    SessionExpired,
    SessionHeld,
    SessionMovedTo,
    SessionPinned,
    SessionReopened,
    SessionResumed,
    SessionSuspended,
    SessionTimed,
    SessionTouched,
    SurfaceAttached,
    SurfaceDetached,
    ThreadCreated,
    ThreadForked,
    ThreadRenamed,
    ThreadReported,
    ThreadRewound,
)
from .timer_payloads import (
    TimerCleared,
    TimerFired,
    TimerPaused,
    TimerPlanned,
    TimerScheduled,
    TimerSet,
    TimerTicked,
    TimerUnscheduled,
)
from .webhook_payloads import SurfaceDelivered, SurfaceFailed, SurfaceHooked, SurfaceUnhooked


class Call(Payload, frozen=True, kw_only=True):
    """One tool call in a model's message. `id` is assigned by Holdfast; `provider_id` is the
    provider's id. `fingerprint` identifies the tool with its version and schema at the time of the
    call.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    id: str
    name: str
    arguments: Any = None
    provider_id: str | None = None
    fingerprint: str | None = None


class MessageReceived(Payload, frozen=True, kw_only=True):
    """A message was received. `how` is the effect on an active run: the message waits for its end,
    joins it at the next safe point, or ends it. The other fields are options for the run that the
    message starts; `output` is the name and JSON Schema of the answer. `thread` is the thread of
    the detached sub-agent whose result the message is.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    text: str = ""
    parts: list[Any] = []
    metadata: dict[str, Any] = {}
    how: Literal["queue", "steer", "interrupt"] = "queue"
    model: str | None = None
    limits: dict[str, float] = {}
    output: dict[str, Any] | None = None
    thread: str | None = None


class MessageCompleted(Payload, frozen=True, kw_only=True):
    """A model completed a message. `parts` is data that only `model` can read, stored unchanged.
    `reason` says why the model stopped.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    text: str = ""
    parts: list[Any] = []
    calls: list[Call] = []
    model: str | None = None
    usage: dict[str, int] = {}
    thought: str = ""
    reason: str | None = None
    cost: float | None = None


class MessageInterrupted(Payload, frozen=True, kw_only=True):
    """The part of an interrupted answer that the user saw. `shown` is true if the model reads it
    later; it is false if the same answer was started again.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    text: str = ""
    reason: str | None = None
    model: str | None = None
    shown: bool = True


class RunStarted(Payload, frozen=True, kw_only=True):
    """A run was started. `driver` is the id of the driver; the other fields are options of the
    message that started the run. `output` is the number of the message that defines the format of
    the answer. If runs start each other by sending messages, `chain` is the number of runs before
    this one. `version` is the version of the agent.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    driver: str | None = None
    inputs: list[int] = []
    chain: int = 0
    model: str | None = None
    limits: dict[str, float] = {}
    output: int | None = None
    version: str | None = None


class RunResumed(Payload, frozen=True, kw_only=True):
    """A driver continues the run.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    driver: str | None = None
    reason: str | None = None


class RunWaiting(Payload, frozen=True, kw_only=True):
    """The run waits for an answer, or was handed over.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    due: int | None = None
    reason: str | None = None


class RunFinished(Payload, frozen=True, kw_only=True):
    """A run ended. `code` and `error` are the error code and its description if the run ended
    early. `stack` is present only if the error policy shows stack traces.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    status: Literal["done", "failed", "aborted", "interrupted"] = "done"
    due: int | None = None
    error: str | None = None
    code: str | None = None
    stack: str | None = None


class AbortRequested(Payload, frozen=True, kw_only=True):
    """A caller requested to abort a run. `run` is the run to abort; None means the active run.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    run: str | None = None
    reason: str | None = None


class ModelCalled(Payload, frozen=True, kw_only=True):
    """A model call was started. `inputs` are the numbers of the messages that join the run with
    this call.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    model: str
    step: int = 1
    inputs: list[int] = []


class ToolStarted(Payload, frozen=True, kw_only=True):
    """A tool call was started. `key` is the idempotency key for the tool, `by` is the rule or
    decision that allowed the call, `arguments` are set if an approver changed the arguments.
    If the outcome is lost, the tool's probe is asked first, if `probe` is set. `repeat` and `tell`
    say what to do if there is none, or if it does not know: start the call again, or report the
    loss to the model. If neither is set, the user is asked.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    call: str
    name: str
    key: str | None = None
    by: str | None = None
    arguments: Any = None
    repeat: bool = False
    tell: bool = False
    probe: bool = False


class ToolNested(Payload, frozen=True, kw_only=True):
    """A tool call was made by another tool call. The model sees only the result of the outer
    call.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    call: Call
    parent: str


class ToolFinished(Payload, frozen=True, kw_only=True):
    """A tool call ended. `result` is for programs, and also for the model unless `content` is
    present. `code` is the error code of a failed call. If the result was too large, `content` is a
    preview, and `stored` has the reference to the blob with the full text: its hash, size, media
    type and `length` in characters.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    call: str
    outcome: Literal["ok", "failed", "denied", "cancelled", "unknown"] = "ok"
    result: Any = None
    error: str | None = None
    content: str | None = None
    refs: list[Any] = []
    metadata: dict[str, Any] = {}
    code: str | None = None
    stored: list[Any] = []


class ProgressReported(Payload, frozen=True, kw_only=True):
    """A tool reports progress.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    call: str
    data: Any = None


class PendingOpened(Payload, frozen=True, kw_only=True):
    """A pending item was opened. `parked` means that the tool asked the question while running, and
    continues when it is answered. `risk` is a hint at the harm that the call could do. `approvals`
    is the required number of approvals.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    id: str
    what: Literal["approval", "question", "plan", "access", "external"]
    call: str | None = None
    title: str | None = None
    assignee: str | None = None
    expires: int | None = None
    detail: Any = None
    parked: bool = False
    risk: str | None = None
    approvals: int = 1


class PendingVoted(Payload, frozen=True, kw_only=True):
    """One of several required approvals was given, by the actor of the event.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    id: str
    reason: str | None = None
    channel: str | None = None


class PendingSettled(Payload, frozen=True, kw_only=True):
    """A pending item was decided, or has expired.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    id: str
    outcome: Literal["approved", "denied", "answered", "expired", "superseded", "abandoned"]
    answer: Any = None
    reason: str | None = None
    channel: str | None = None


class PendingWarned(Payload, frozen=True, kw_only=True):
    """The pending item is about to expire.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    id: str


class PendingExtended(Payload, frozen=True, kw_only=True):
    """The expiry time of a pending item was changed. None means that the item never expires.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    id: str
    expires: int | None = None


class QueueChanged(Payload, frozen=True, kw_only=True):
    """The input queue was changed: some queued messages were removed, reordered, or had their text
    replaced. Each message is identified by its event number.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    remove: list[int] = []
    order: list[int] = []
    texts: dict[str, str] = {}


class ModeChanged(Payload, frozen=True, kw_only=True):
    """The mode of the agent was changed. `left` is the previous mode.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    mode: str
    left: str | None = None
    reason: str | None = None


class ModelChanged(Payload, frozen=True, kw_only=True):
    """The thread's choice of a model was changed; None removes the choice. The choice applies to
    `mode`, or by default to the current mode.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    model: str | None = None
    mode: str | None = None


class StateChanged(Payload, frozen=True, kw_only=True):
    """The user state was changed: either replaced as a whole, or some entries were set and
    removed.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    set: dict[str, Any] = {}
    drop: list[str] = []
    replace: bool = False


class PermissionChanged(Payload, frozen=True, kw_only=True):
    """Permission rules of the whole session were changed, by tool and by category of tools; None
    removes a rule.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    tools: dict[str, Literal["allow", "ask", "deny"] | None] = {}
    categories: dict[str, Literal["allow", "ask", "deny"] | None] = {}


class GrantGiven(Payload, frozen=True, kw_only=True):
    """A grant was given: calls of this tool, or of this category of tools, need no approval while
    `driver` drives the session.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    driver: str
    tool: str | None = None
    category: str | None = None


class GrantRevoked(Payload, frozen=True, kw_only=True):
    """A grant was revoked. If no tool or category is named, all grants are revoked.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    tool: str | None = None
    category: str | None = None


class Task(Payload, frozen=True, kw_only=True):
    """One task of an agent's task list. `content` is the task in the imperative; `active` is the
    text to show while the task is in progress.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    id: str
    content: str
    status: Literal["pending", "in_progress", "completed"] = "pending"
    active: str | None = None


class TaskChanged(Payload, frozen=True, kw_only=True):
    """The task list of the thread was replaced.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    tasks: list[Task] = []


class ContextBuilt(Payload, frozen=True, kw_only=True):
    """The context that a model sees in addition to the conversation was rebuilt, and has
    changed.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    hash: str
    mode: str | None = None
    system: str = ""
    messages: list[str] = []
    parts: list[Any] = []


class ContextAdded(Payload, frozen=True, kw_only=True):
    """Context for the model was added. It applies after the next event of kind `on`, or immediately
    if `on` is None. `scope` and `consume` define how long it applies.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    id: str
    content: str
    role: Literal["system", "message"] = "system"
    scope: Literal["step", "run", "session"] = "run"
    consume: Literal["once", "while_active"] = "once"
    on: str | None = None
    metadata: dict[str, Any] = {}


class ContextRemoved(Payload, frozen=True, kw_only=True):
    """A text that was added to the prompt was removed.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    ids: list[str]


class CompactionMade(Payload, frozen=True, kw_only=True):
    """The conversation was compacted. From this event on, a model reads `summary` in place of the
    events up to `upto`. The messages in `carry` are not replaced, because a later run handled them.
    `tokens` and `turns` are the size of the text that the model reads.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    upto: int
    carry: list[int] = []
    summary: str | None = None
    model: str | None = None
    tokens: int = 0
    turns: int = 0


class CheckpointMade(Payload, frozen=True, kw_only=True):
    """A checkpoint was created. `shared` is the head of thread `main` at that time; None in thread
    `main` itself.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    id: str
    label: str | None = None
    metadata: dict[str, Any] = {}
    shared: int | None = None


class CheckpointDropped(Payload, frozen=True, kw_only=True):
    """A checkpoint was removed.

    Kind and fields: [events](../formats/log.md#kinds).
    """

    id: str


# Reserved namespaces of event kinds, which programs must not use for their own kinds. The list
# never changes: kinds of later versions begin with one of these namespaces, so they never collide
# with kinds of programs. A process does not drive a log with an unknown kind of a core namespace,
# because a newer version may rely on it. Unknown kinds of adapters and of other namespaces do not
# prevent driving.
CORE_NAMESPACES = frozenset(
    {
        *("abort", "checkpoint", "compaction", "context", "grant", "label", "message"),
        *("metadata", "mode", "model", "pending", "permission", "progress", "queue", "run"),
        *("session", "state", "surface", "task", "thread", "timer", "tool"),
    }
)
ADAPTER_NAMESPACES = frozenset({"adk", "claude", "langgraph", "openai", "pydantic_ai"})
RESERVED_NAMESPACES = CORE_NAMESPACES | ADAPTER_NAMESPACES
ADK_STATE_TENANT = "~adk:"  # prefix of the tenant: state of users and apps of Google ADK
USAGE_TENANT = "~usage:"  # prefix of the tenant: what sessions, users and tenants have used

KINDS: dict[str, type[Payload]] = {
    "session.created": SessionCreated,
    "session.touched": SessionTouched,
    "session.suspended": SessionSuspended,
    "session.resumed": SessionResumed,
    "session.expired": SessionExpired,
    "session.pinned": SessionPinned,
    "session.held": SessionHeld,
    "session.timed": SessionTimed,
    "session.moved": SessionMovedTo,
    "session.reopened": SessionReopened,
    "session.adopted": SessionAdopted,
    "thread.created": ThreadCreated,
    "thread.forked": ThreadForked,
    "thread.reported": ThreadReported,
    "thread.renamed": ThreadRenamed,
    "thread.rewound": ThreadRewound,
    "label.added": LabelAdded,
    "label.removed": LabelRemoved,
    "metadata.changed": MetadataChanged,
    "surface.attached": SurfaceAttached,
    "surface.detached": SurfaceDetached,
    "message.received": MessageReceived,
    "message.completed": MessageCompleted,
    "message.interrupted": MessageInterrupted,
    "run.started": RunStarted,
    "run.resumed": RunResumed,
    "run.waiting": RunWaiting,
    "run.finished": RunFinished,
    "abort.requested": AbortRequested,
    "model.called": ModelCalled,
    "tool.started": ToolStarted,
    "tool.nested": ToolNested,
    "tool.finished": ToolFinished,
    "progress.reported": ProgressReported,
    "pending.opened": PendingOpened,
    "pending.voted": PendingVoted,
    "pending.settled": PendingSettled,
    "pending.warned": PendingWarned,
    "pending.extended": PendingExtended,
    "queue.changed": QueueChanged,
    "mode.changed": ModeChanged,
    "model.changed": ModelChanged,
    "state.changed": StateChanged,
    "permission.changed": PermissionChanged,
    "grant.given": GrantGiven,
    "grant.revoked": GrantRevoked,
    "task.changed": TaskChanged,
    "context.built": ContextBuilt,
    "context.added": ContextAdded,
    "context.removed": ContextRemoved,
    "compaction.made": CompactionMade,
    "timer.set": TimerSet,
    "timer.cleared": TimerCleared,
    "timer.fired": TimerFired,
    "timer.planned": TimerPlanned,
    "checkpoint.made": CheckpointMade,
    "checkpoint.dropped": CheckpointDropped,
    "tool.probed": ToolProbed,
    "timer.scheduled": TimerScheduled,
    "timer.unscheduled": TimerUnscheduled,
    "timer.paused": TimerPaused,
    "timer.ticked": TimerTicked,
    "run.charged": RunCharged,
    "run.warned": RunWarned,
    "surface.hooked": SurfaceHooked,
    "surface.unhooked": SurfaceUnhooked,
    "surface.delivered": SurfaceDelivered,
    "surface.failed": SurfaceFailed,
}
