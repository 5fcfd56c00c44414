"""What a state is made of: plain, bounded values. They keep numbers and names, never texts: a text
is in the event whose number stands here."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from .. import events as ev

VERSION = "5"  # of this fold; snapshots made by another one are not used

OPEN_CALLS = 256  # that are kept one by one; what a message holds beyond them is `Excess`
QUEUED = 256  # a driver takes far fewer; see _message_received
ENTRIES = 100  # timers, contexts, checkpoints and changed files that are kept, each
OPERATIONS = 10  # on one file that are kept
PATH = 256  # characters of a file's path; a longer one is not kept
FINAL = "final_result"  # the tool whose call is the answer of a run that wants a typed one

CallStatus: TypeAlias = Literal[
    "proposed",
    "waiting",  # for an item that is pending
    "approved",  # this and what follows: how that item was settled
    "denied",
    "answered",
    "expired",
    "superseded",
    "abandoned",
    "started",
]


class Run(Struct, frozen=True, omit_defaults=True):
    """The latest run; `id` is None for a driver that does not name its runs. `seq` and `at`
    are those of its start, `steps` counts model calls, `crashes` drivers that were lost
    since the last step that succeeded, `spent` the ms that it was driven until `since`,
    when it was taken up last; what a driver did after its last event is not known, and is not
    counted. `answered`: its last message calls nothing."""

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

    @property
    def open(self) -> bool:
        return self.status in ("running", "waiting")


class OpenCall(Struct, frozen=True, omit_defaults=True):
    """A tool call without an outcome: its message is event `seq`, its status came with
    event `since`, and `started` is the event that told of the latest start, if any did.
    `item` is the pending item that decided on it, `parent` the call that made it. One that
    is `parked` asked something itself; `answer` is the event with the latest answer."""

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


class Excess(Struct, frozen=True):
    """The calls at the end of message `seq` that are not kept one by one, since it holds more
    than `OPEN_CALLS`: the last `left` of them have no outcome yet."""

    seq: int
    left: int


class OpenItem(Struct, frozen=True, omit_defaults=True):
    """Something that waits for an answer; its wording is in event `seq`. `voters` are those who
    said yes, where `approvals` must."""

    what: str
    seq: int
    at: int
    call: str | None = None
    expires: int | None = None
    warned: bool = False
    approvals: int = 1
    voters: tuple[str, ...] = ()


class QueuedInput(Struct, frozen=True, omit_defaults=True):
    """A message that no run has taken up; `text` is the event that changed its words, `run`
    the run that sent it."""

    seq: int
    how: Literal["queue", "steer", "interrupt"] = "queue"
    text: int | None = None
    run: str | None = None


class Shown(Struct, frozen=True, omit_defaults=True):
    """Something that is added to what the model is shown; its words are in event `seq`."""

    seq: int
    scope: str
    consume: str
    on: str | None = None
    active: bool = True


class Rules(Struct, frozen=True, omit_defaults=True):
    """What is allowed, asked about or denied, by tool and by category of tools."""

    tools: dict[str, str] = {}
    categories: dict[str, str] = {}


class Grants(Struct, frozen=True, omit_defaults=True):
    """What is not asked about, as long as `driver` drives."""

    driver: str | None = None
    tools: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()


class Sub(Struct, frozen=True, omit_defaults=True):
    """Whose thread this is, if it is a sub-agent's: `item` in the log of thread `parent` waits
    for it, until it has `reported`; None in a fork of it, for which nobody waits. `forked` is
    one that began as a copy of its parent."""

    agent: str
    parent: str
    item: str | None
    forked: bool = False
    approval: Literal["auto", "ask", "deny", "tool"] = "tool"
    reported: bool = False


class Timer(Struct, frozen=True):
    """A message to come at `at` (ms); its words are in event `seq`."""

    seq: int
    at: int


class FileChanges(Struct, frozen=True, omit_defaults=True):
    """A file that tools changed: what they did to it, oldest first, and when (ms) first."""

    operations: tuple[str, ...]
    at: int


class Window(Struct, frozen=True, omit_defaults=True):
    """What a model reads of the conversation: what follows event `upto`, about so many
    tokens and turns; event `seq` has the summary of what came before."""

    upto: int = 0
    seq: int | None = None
    tokens: int = 0
    turns: int = 0


class State(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is so after event `head`. Open calls and pending items stand under their ids,
    oldest first. `due` is when a driver has to look, as the row says it. `models` are the
    models chosen in each mode, "" being the one that the log begins in; `model` is the latest
    choice. `settings` are the metadata of the log. `abort` is the event that wants the run to
    end, `driven` the time (ms) of the latest event of its driver. `too_new` is the first event
    that this version does not understand: as long as it is set, do not drive."""

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
    sub: Sub | None = None
    expired: bool = False
    too_new: int | None = None

    @property
    def active(self) -> Run | None:
        """The run that is going, or waits."""
        return self.run if self.run is not None and self.run.open else None

    def next_model(
        self, mode: str | None, own: str | None, default: str | None, run: str | None = None
    ) -> str | None:
        """The model of the next call: the run's, the one chosen in this mode, the mode's own, the
        latest choice in any mode, the default."""
        chosen = self.models.get("" if self.mode is None else mode or "")
        return run or chosen or own or self.model or default or None

    @property
    def owes(self) -> bool:
        """Whether the parent of this thread is yet to be told what came of it."""
        return self.sub is not None and self.sub.item is not None and not self.sub.reported

    @property
    def safe(self) -> bool:
        """Whether nothing is open here: a place to fork at, or to begin a window."""
        return not (self.active or self.calls or self.pending)
