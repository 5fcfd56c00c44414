"""The payload of each kind of event.

Once released, a kind keeps its meaning for ever; a field may be added with a default. `KINDS` at
the end is the list, before it stand the namespaces that are reserved.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct


class Payload(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The base of all payloads."""


class Call(Payload, frozen=True, kw_only=True):
    """One tool call of a model's message. The id is ours; the provider's is `provider_id`.
    `fingerprint` is that of the tool, its version and its schema, as they were then."""

    id: str
    name: str
    arguments: Any = None
    provider_id: str | None = None
    fingerprint: str | None = None


class SessionCreated(Payload, frozen=True, kw_only=True):
    agent: str | None = None
    title: str | None = None
    user: str | None = None
    workspace: str | None = None
    ttl: int | None = None
    expiry: int | None = None
    labels: list[str] = []
    metadata: dict[str, Any] = {}


class SessionTouched(Payload, frozen=True, kw_only=True):
    surface: str | None = None
    reason: str | None = None


class SessionSuspended(Payload, frozen=True, kw_only=True):
    reason: str | None = None


class SessionResumed(Payload, frozen=True, kw_only=True):
    reason: str | None = None


class SessionExpired(Payload, frozen=True, kw_only=True):
    reason: str | None = None


class SessionPinned(Payload, frozen=True, kw_only=True):
    pinned: bool = True
    reason: str | None = None


class SessionHeld(Payload, frozen=True, kw_only=True):
    """`hold` says why the session must not be deleted; None lifts it."""

    hold: str | None = None
    reason: str | None = None


class SessionTimed(Payload, frozen=True, kw_only=True):
    ttl: int | None = None
    expiry: int | None = None
    reason: str | None = None


class SessionMovedTo(Payload, frozen=True, kw_only=True):
    to: str


class SessionReopened(Payload, frozen=True, kw_only=True):
    reason: str | None = None


class ThreadCreated(Payload, frozen=True, kw_only=True):
    """With `item`, the thread is a sub-agent's: `call` in the parent's log waits for it as that
    pending item. `approval` is what the parent's mode said about tools then."""

    agent: str | None = None
    title: str | None = None
    parent: str | None = None
    item: str | None = None
    call: str | None = None
    approval: Literal["auto", "ask", "deny", "tool"] = "tool"


class ThreadForked(Payload, frozen=True, kw_only=True):
    """`item`, `call` and `approval` as in `ThreadCreated`."""

    parent: str
    at: int
    agent: str | None = None
    title: str | None = None
    item: str | None = None
    call: str | None = None
    approval: Literal["auto", "ask", "deny", "tool"] = "tool"


class ThreadReported(Payload, frozen=True, kw_only=True):
    """What a sub-agent came to stands in its parent's log, as the answer to `item`."""

    item: str
    due: int | None = None


class ThreadRenamed(Payload, frozen=True, kw_only=True):
    title: str


class LabelAdded(Payload, frozen=True, kw_only=True):
    label: str


class LabelRemoved(Payload, frozen=True, kw_only=True):
    label: str


class MetadataChanged(Payload, frozen=True, kw_only=True):
    set: dict[str, Any] = {}
    drop: list[str] = []
    reason: str | None = None


class SurfaceAttached(Payload, frozen=True, kw_only=True):
    """`touch` says whether it counts as activity."""

    surface: str
    address: str
    detail: dict[str, Any] = {}
    touch: bool = True
    reason: str | None = None


class SurfaceDetached(Payload, frozen=True, kw_only=True):
    surface: str
    address: str
    reason: str | None = None


class MessageReceived(Payload, frozen=True, kw_only=True):
    """`how` says what it does to a run that is going: wait for its end, join it at the next
    safe point, or end it. The rest are wishes for the run that it starts; `output` is
    the name and JSON Schema of the answer."""

    text: str = ""
    parts: list[Any] = []
    metadata: dict[str, Any] = {}
    how: Literal["queue", "steer", "interrupt"] = "queue"
    model: str | None = None
    limits: dict[str, float] = {}
    output: dict[str, Any] | None = None


class MessageCompleted(Payload, frozen=True, kw_only=True):
    """`parts` are what only `model` can read again, exactly as it gave them; `reason` says
    why it stopped."""

    text: str = ""
    parts: list[Any] = []
    calls: list[Call] = []
    model: str | None = None
    usage: dict[str, int] = {}
    thought: str = ""
    reason: str | None = None
    cost: float | None = None


class MessageInterrupted(Payload, frozen=True, kw_only=True):
    """What a person saw of an answer that broke off. `shown` says whether a model is to
    read it: not where the same answer was begun again."""

    text: str = ""
    reason: str | None = None
    model: str | None = None
    shown: bool = True


class RunStarted(Payload, frozen=True, kw_only=True):
    """`driver` is who drives; the rest are the wishes of the input that started the run,
    `output` the number of the message that says how its answer is to look. `chain` counts
    the runs before it, each of which sent the message that started the next."""

    driver: str | None = None
    inputs: list[int] = []
    chain: int = 0
    model: str | None = None
    limits: dict[str, float] = {}
    output: int | None = None


class RunResumed(Payload, frozen=True, kw_only=True):
    driver: str | None = None
    reason: str | None = None


class RunWaiting(Payload, frozen=True, kw_only=True):
    due: int | None = None
    reason: str | None = None


class RunFinished(Payload, frozen=True, kw_only=True):
    """`code` names what ended a run that was not done; `error` says it in words. `stack` is
    there only where the error policy shows it."""

    status: Literal["done", "failed", "aborted", "interrupted"] = "done"
    due: int | None = None
    error: str | None = None
    code: str | None = None
    stack: str | None = None


class AbortRequested(Payload, frozen=True, kw_only=True):
    """`run` is the run that is meant; None is the one that is going."""

    run: str | None = None
    reason: str | None = None


class ModelCalled(Payload, frozen=True, kw_only=True):
    """`inputs` are the messages that join the run with this call."""

    model: str
    step: int = 1
    inputs: list[int] = []


class ToolStarted(Payload, frozen=True, kw_only=True):
    """`key` is the tool's idempotency key, `by` what allowed the call, `arguments` those of
    a person who changed them. `repeat` and `tell` say what is to be done if the outcome
    never comes: start again, or tell the model; neither: ask a person."""

    call: str
    name: str
    key: str | None = None
    by: str | None = None
    arguments: Any = None
    repeat: bool = False
    tell: bool = False


class ToolNested(Payload, frozen=True, kw_only=True):
    """A call that another call makes; the model sees only what the outer one returns."""

    call: Call
    parent: str


class ToolFinished(Payload, frozen=True, kw_only=True):
    """`result` is what a program reads, and the model too unless `content` stands beside it.
    `code` names what went wrong."""

    call: str
    outcome: Literal["ok", "failed", "denied", "cancelled", "unknown"] = "ok"
    result: Any = None
    error: str | None = None
    content: str | None = None
    refs: list[Any] = []
    metadata: dict[str, Any] = {}
    code: str | None = None


class ProgressReported(Payload, frozen=True, kw_only=True):
    call: str
    data: Any = None


class PendingOpened(Payload, frozen=True, kw_only=True):
    """`parked`: the call asked this itself, and goes on with the answer, whatever it is. `risk`
    is how much harm a call could do: a hint. `approvals` is how many people must say yes."""

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
    """The event's actor, one of several who must, said yes."""

    id: str
    reason: str | None = None
    channel: str | None = None


class PendingSettled(Payload, frozen=True, kw_only=True):
    id: str
    outcome: Literal["approved", "denied", "answered", "expired", "superseded", "abandoned"]
    answer: Any = None
    reason: str | None = None
    channel: str | None = None


class PendingWarned(Payload, frozen=True, kw_only=True):
    """The item is about to expire."""

    id: str


class PendingExtended(Payload, frozen=True, kw_only=True):
    """The item expires at another time; None is never."""

    id: str
    expires: int | None = None


class QueueChanged(Payload, frozen=True, kw_only=True):
    """The queue of inputs by their numbers: which leave it, in which order the rest stand,
    and which texts are to be read instead."""

    remove: list[int] = []
    order: list[int] = []
    texts: dict[str, str] = {}


class ModeChanged(Payload, frozen=True, kw_only=True):
    """`left` is the mode that it was before."""

    mode: str
    left: str | None = None
    reason: str | None = None


class ModelChanged(Payload, frozen=True, kw_only=True):
    """The thread's own choice of a model; None lifts it. It is remembered for a mode: `mode`,
    or without that the one that is current."""

    model: str | None = None
    mode: str | None = None


class StateChanged(Payload, frozen=True, kw_only=True):
    """The user state: all of it replaced, or some entries set and dropped."""

    set: dict[str, Any] = {}
    drop: list[str] = []
    replace: bool = False


class PermissionChanged(Payload, frozen=True, kw_only=True):
    """Rules of the whole session, by tool and by category of tools; None takes one away."""

    tools: dict[str, Literal["allow", "ask", "deny"] | None] = {}
    categories: dict[str, Literal["allow", "ask", "deny"] | None] = {}


class GrantGiven(Payload, frozen=True, kw_only=True):
    """No more asking about this tool, or this category of tools, as long as `driver` drives."""

    driver: str
    tool: str | None = None
    category: str | None = None


class GrantRevoked(Payload, frozen=True, kw_only=True):
    """One of them is asked about again; without a name, all."""

    tool: str | None = None
    category: str | None = None


class Task(Payload, frozen=True, kw_only=True):
    """One thing to do, in the imperative, and while it is being done (`active`)."""

    id: str
    content: str
    status: Literal["pending", "in_progress", "completed"] = "pending"
    active: str | None = None


class TaskChanged(Payload, frozen=True, kw_only=True):
    """All tasks of the thread, as they are now."""

    tasks: list[Task] = []


class ContextBuilt(Payload, frozen=True, kw_only=True):
    """What a model is shown beside the conversation, when it is not what it was before."""

    hash: str
    mode: str | None = None
    system: str = ""
    messages: list[str] = []
    parts: list[Any] = []


class ContextAdded(Payload, frozen=True, kw_only=True):
    """Something to be shown to the model: from when (`on`, an event kind), for how long."""

    id: str
    content: str
    role: Literal["system", "message"] = "system"
    scope: Literal["step", "run", "session"] = "run"
    consume: Literal["once", "while_active"] = "once"
    on: str | None = None
    metadata: dict[str, Any] = {}


class ContextRemoved(Payload, frozen=True, kw_only=True):
    ids: list[str]


class CompactionMade(Payload, frozen=True, kw_only=True):
    """From here on a model reads `summary` in place of the events up to `upto`, but for the
    messages in `carry`, which a later run took up. `tokens` and `turns` count what it reads."""

    upto: int
    carry: list[int] = []
    summary: str | None = None
    model: str | None = None
    tokens: int = 0
    turns: int = 0


class TimerSet(Payload, frozen=True, kw_only=True):
    """At `at` (ms) the text is received as a message."""

    id: str
    at: int
    text: str
    metadata: dict[str, Any] = {}


class TimerCleared(Payload, frozen=True, kw_only=True):
    id: str


class TimerFired(Payload, frozen=True, kw_only=True):
    id: str


class TimerPlanned(Payload, frozen=True, kw_only=True):
    """When a driver has to look at the log again; None: when something comes."""

    due: int | None = None


class CheckpointMade(Payload, frozen=True, kw_only=True):
    """`shared` is the head of thread `main` at that time; None in that thread itself."""

    id: str
    label: str | None = None
    metadata: dict[str, Any] = {}
    shared: int | None = None


class CheckpointDropped(Payload, frozen=True, kw_only=True):
    id: str


# The first words of event kinds that programs may not use for their own. The list is closed: a
# later version adds kinds, and each begins with one of these, so that no kind of a program's own
# ever becomes ours. A process that meets an unknown kind of the core would drive past what a
# newer version meant by it, so it does not drive; an unknown kind of an adapter, or of any
# other namespace, never stops it.
CORE_NAMESPACES = frozenset(
    {
        *("abort", "checkpoint", "compaction", "context", "grant", "label", "message"),
        *("metadata", "mode", "model", "pending", "permission", "progress", "queue", "run"),
        *("session", "state", "surface", "task", "thread", "timer", "tool"),
    }
)
ADAPTER_NAMESPACES = frozenset({"adk", "claude", "langgraph", "openai", "pydantic_ai"})
RESERVED_NAMESPACES = CORE_NAMESPACES | ADAPTER_NAMESPACES

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
    "thread.created": ThreadCreated,
    "thread.forked": ThreadForked,
    "thread.reported": ThreadReported,
    "thread.renamed": ThreadRenamed,
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
}
