"""The values that a state consists of, all of bounded size. They contain numbers and names, but no
message text; to get a text, read the event with its number."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from .. import events as ev
from ..events import ids

VERSION = "8"  # of this fold; snapshots of other versions are ignored

OPEN_CALLS = 256  # calls that are tracked individually; further calls of a message are `Excess`
QUEUED = 256  # a driver takes far fewer; see _message_received
ENTRIES = 100  # limit for timers, contexts, checkpoints and changed files, each
OPERATIONS = 10  # changes that are kept per file
PATH = 256  # characters of a file's path; files with longer paths are ignored
WAITING = 100  # queued messages; to a longer queue, no schedule adds another
FINAL = "final_result"  # the tool whose call is the typed answer of a run

CallStatus: TypeAlias = Literal[
    "proposed",
    "waiting",  # for a pending item
    "approved",  # this and the following: how that item was settled
    "denied",
    "answered",
    "expired",
    "superseded",
    "abandoned",
    "started",
]


class Run(Struct, frozen=True, omit_defaults=True):
    """The latest run; `id` is None if its driver does not assign ids to runs. `seq` and `at` are
    the number and time of its start, `steps` counts model calls, `crashes` counts drivers lost
    since the last successful step. `spent` is the time in ms for which it was driven before
    `since`, the time when it was last resumed; the time that a lost driver spent after its last
    event is unknown and not counted. `answered` means that its last message has no calls. `version`
    is the version of the agent that started it.

    See [state and transcript](../the-log.md#state-and-transcript).
    """

    id: str | None
    status: Literal["running", "waiting", "done", "failed", "aborted", "interrupted"]
    seq: int = 0
    at: int = 0
    driver: str | None = None
    steps: int = 0
    crashes: int = 0
    since: int = 0
    spent: int = 0
    tokens: int = 0
    cost: float = 0.0
    answered: bool = False
    model: str | None = None
    limits: dict[str, float] = {}
    output: int | None = None
    chain: int = 0
    code: str | None = None
    version: str | None = None

    @property
    def open(self) -> bool:
        return self.status in ("running", "waiting")


class OpenCall(Struct, frozen=True, omit_defaults=True):
    """A tool call without an outcome. `seq` is the number of its message, `since` the event that
    set its status, and `started` the event of its latest start, if any. `item` is the pending item
    that decided on the call, `parent` the call that made it. A `parked` call asked a question
    itself; `answer` is the event with the latest answer. `probe` is the answer of the tool's probe
    since the latest start: `due` means that the tool has a probe that did not answer yet.

    See [state and transcript](../the-log.md#state-and-transcript).
    """

    name: str
    seq: int
    status: CallStatus
    since: int
    started: int | None = None
    item: str | None = None
    parked: bool = False
    answer: int | None = None
    parent: str | None = None
    repeat: bool = False
    tell: bool = False
    probe: Literal["due", "not_happened", "unknown"] | None = None


class Excess(Struct, frozen=True):
    """The calls of message `seq` that are not tracked individually, because the message has more
    than `OPEN_CALLS` calls. The last `left` of these calls have no outcome yet.

    See [state and transcript](../the-log.md#state-and-transcript).
    """

    seq: int
    left: int


class OpenItem(Struct, frozen=True, omit_defaults=True):
    """A pending item; event `seq` contains its text. `voters` are its approvers so far, `approvals`
    the required number.

    See [state and transcript](../the-log.md#state-and-transcript).
    """

    what: str
    seq: int
    at: int
    call: str | None = None
    expires: int | None = None
    warned: bool = False
    approvals: int = 1
    voters: tuple[str, ...] = ()


class QueuedInput(Struct, frozen=True, omit_defaults=True):
    """A queued message that no run has handled yet; `text` is the event that changed its text,
    `run` the run that sent it. A `report` is the result of a detached sub-agent.

    See [state and transcript](../the-log.md#state-and-transcript).
    """

    seq: int
    how: Literal["queue", "steer", "interrupt"] = "queue"
    text: int | None = None
    run: str | None = None
    report: bool = False


class Shown(Struct, frozen=True, omit_defaults=True):
    """A context that was added for the model; its text is in event `seq`.

    See [state and transcript](../the-log.md#state-and-transcript).
    """

    seq: int
    scope: str
    consume: str
    on: str | None = None
    active: bool = True


class Rules(Struct, frozen=True, omit_defaults=True):
    """Permanent permission rules (allow, ask or deny), by tool and by category of tools.

    See [state and transcript](../the-log.md#state-and-transcript).
    """

    tools: dict[str, str] = {}
    categories: dict[str, str] = {}


class Grants(Struct, frozen=True, omit_defaults=True):
    """The tools and categories of tools that need no approval while `driver` drives the session.

    See [state and transcript](../the-log.md#state-and-transcript).
    """

    driver: str | None = None
    tools: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()


class Sub(Struct, frozen=True, omit_defaults=True):
    """The link from a sub-agent's thread to its parent: `item` in the log of thread `parent` waits
    for its result until it has `reported`. A fork of such a thread has no link, because no parent
    waits for it. `forked` means that the thread began as a copy of its parent, `detached` that its
    result is a message to the parent, where nothing waits for it.

    See [state and transcript](../the-log.md#state-and-transcript).
    """

    agent: str
    parent: str
    item: str | None
    forked: bool = False
    approval: Literal["auto", "ask", "deny", "tool"] = "tool"
    reported: bool = False
    detached: bool = False


class Timer(Struct, frozen=True):
    """A message that is due at `at` (ms); its text is in event `seq`.

    See [state and transcript](../the-log.md#state-and-transcript).
    """

    seq: int
    at: int


class FileChanges(Struct, frozen=True, omit_defaults=True):
    """A file that tools changed: the changes, oldest first, and when (ms) the first was made.

    See [state and transcript](../the-log.md#state-and-transcript).
    """

    operations: tuple[str, ...]
    at: int


class Window(Struct, frozen=True, omit_defaults=True):
    """The part of the conversation that a model reads: the events after `upto`, with their
    estimated number of tokens and turns. Event `seq` contains the summary of the earlier part.

    See [state and transcript](../the-log.md#state-and-transcript).
    """

    upto: int = 0
    seq: int | None = None
    tokens: int = 0
    turns: int = 0


class Schedule(Struct, frozen=True, omit_defaults=True):
    """A message that is sent again and again, next at `next` (ms); its text is in event `seq`.
    `due` is the latest due time that was handled, `sent` the event of its latest message.

    See [state and transcript](../the-log.md#state-and-transcript).
    """

    seq: int
    next: int | None
    paused: bool = False
    due: int | None = None
    sent: int | None = None


class StateFields(Struct, kw_only=True, omit_defaults=True):
    """The fields of a state. See `State` for their meaning."""

    head: int = 0
    run: Run | None = None
    calls: dict[str, OpenCall] = {}
    excess: Excess | None = None
    pending: dict[str, OpenItem] = {}
    queue: tuple[QueuedInput, ...] = ()
    abort: int | None = None
    driven: int = 0
    due: int | None = None
    usage: dict[str, int] = {}
    total: int = 0
    cost: float | None = None
    mode: str | None = None
    model: str | None = None
    models: dict[str, str] = {}
    settings: dict[str, Any] = {}
    data: dict[str, Any] = {}
    rules: Rules = Rules()
    grants: Grants = Grants()
    tasks: tuple[ev.Task, ...] = ()
    tasks_before: tuple[ev.Task, ...] = ()
    files: dict[str, FileChanges] = {}
    contexts: dict[str, Shown] = {}
    context: str | None = None
    window: Window = Window()
    timers: dict[str, Timer] = {}
    checkpoints: dict[str, int] = {}
    rewound: int | None = None
    sub: Sub | None = None
    expired: bool = False
    too_new: int | None = None
    schedules: dict[str, Schedule] = {}


class State(StateFields, frozen=True):  # type: ignore[misc]  # a fold changes a mutable copy
    """The state after event `head`. Open calls and pending items are listed by id, oldest first.
    `due` is the time at which a driver must check the log, as in the row. `models` are the models
    chosen in each mode, with "" for the initial mode; `model` is the latest choice. `settings` are
    the metadata of the log. `abort` is the event that requests the end of the run, `driven` the
    time (ms) of the latest event of its driver. `rewound` is the event of the latest rewind.
    `too_new` is the first event that this version does not support: while it is set, do not
    drive.

    See [state and transcript](../the-log.md#state-and-transcript).
    """

    @property
    def active(self) -> Run | None:
        """The latest run if it has not ended, whether it is active or waiting; else None."""
        return self.run if self.run is not None and self.run.open else None

    def next_model(
        self, mode: str | None, own: str | None, default: str | None, run: str | None = None
    ) -> str | None:
        """Return the model of the next call, in this order of precedence: the run's model, the
        model chosen in this mode, the mode's own model, the latest choice in any mode, the
        default."""
        chosen = self.models.get("" if self.mode is None else mode or "")
        return run or chosen or own or self.model or default or None

    @property
    def owes(self) -> bool:
        """Whether the parent of this thread still waits for its result."""
        return self.sub is not None and self.sub.item is not None and not self.sub.reported

    @property
    def ticking(self) -> dict[str, int]:
        """When (ms) each schedule is due that can fire: one that is not paused, while the queue has
        room."""
        if not self.schedules or len(self.queue) >= WAITING:
            return {}
        items = self.schedules.items()
        return {name: s.next for name, s in items if s.next is not None and not s.paused}

    @property
    def alarm(self) -> int | None:
        """The time (ms) at which the next timer or schedule is due."""
        times = [timer.at for timer in self.timers.values()]
        return min((*times, *self.ticking.values()), default=None)

    @property
    def safe(self) -> bool:
        """Whether no run, call or item is open, so that a fork or a window can begin at this
        point. Questions about budgets do not count."""
        asked = any(not ids.is_budget(id) for id in self.pending)
        return not (self.active or self.calls or asked)
