"""The display of a session: one value with everything that a user interface shows, built from the
log and streaming text.

`reduce` updates a display by one event or delta, in the process of the driver or in a remote
client. `display_of` builds a display from scratch, with the same result. Pure: no store, no clock,
no waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from ..log import events as ev
from ..log.codec import typed
from ..log.events import Event, ids
from ..log.state import CallStatus, FileChanges, State, fold
from .delta import Delta, TextPieces
from .risk import risk
from .usage import Usage, spent

# Limit of the calls that are shown for a run. Above it, the oldest finished calls are dropped; if a
# single message has more calls, only the first are shown.
TOOLS = 200
WAITING = 256  # events that are collected before an unread display is updated
WAITING_BYTES = 1 << 20  # … or this many bytes of events
SUBAGENT = "subagent"  # the tool whose calls are sub-agents

ToolStatus: TypeAlias = Literal[
    "proposed", "waiting", "running", "done", "failed", "denied", "cancelled", "unknown"
]
OPEN: dict[CallStatus, ToolStatus] = {
    "proposed": "proposed",
    "waiting": "waiting",
    "approved": "proposed",
    "answered": "proposed",
    "denied": "denied",
    "expired": "denied",
    "superseded": "denied",
    "abandoned": "denied",
    "started": "running",
}
ENDED: dict[str, ToolStatus] = {
    "ok": "done",
    "failed": "failed",
    "denied": "denied",
    "cancelled": "cancelled",
    "unknown": "unknown",
}


class Said(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message of the model. It is still streaming until `done` is true. Its id is the id of the
    event that will contain it. `text` joins the pieces; `body.since(n)` is the text after code
    point n. `model` is the model that wrote the message, `reason` is the reason why the model
    stopped."""

    id: str
    body: TextPieces = field(default_factory=TextPieces.of, name="text")
    thinking: TextPieces = field(default_factory=TextPieces.of, name="thought")
    done: bool = False
    model: str | None = None
    reason: str | None = None

    @property
    def text(self) -> str:
        return str(self.body)

    @property
    def thought(self) -> str:
        return str(self.thinking)


class ToolShown(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call of the run. `progress` is the last progress report of the tool, `error` the error
    message. `thread` is the thread of the sub-agent that the call started, `parent` the call that
    made this call. `over` is true if the call has an outcome. `probed` is the last answer of the
    tool's probe, if it was asked. `stored` refers to the blob of a result that was too large."""

    name: str
    arguments: Any = None
    status: ToolStatus = "proposed"
    progress: Any = None
    result: Any = None
    error: str | None = None
    parent: str | None = None
    thread: str | None = None
    over: bool = False
    probed: Literal["happened", "not_happened", "unknown"] | None = None
    stored: list[Any] = []


class ItemShown(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pending item; `risk` is a hint at the harm that the call could do. `approvals` is the
    required number of approvers; `approved_by` lists the users who have approved so far."""

    what: str
    title: str
    call: str | None = None
    detail: Any = None
    expires: int | None = None
    risk: str | None = None
    approvals: int = 1
    approved_by: tuple[str, ...] = ()


class SubagentShown(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sub-agent that a call of the run has started or will start. The call of one that is
    `detached` has an outcome while the sub-agent still works."""

    agent: str | None = None
    thread: str | None = None
    status: ToolStatus = "proposed"
    detached: bool = False


class ScheduleShown(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A recurring schedule: the time (UTC, ms) of its next firing, and whether it is paused."""

    next: int | None = None
    paused: bool = False


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The error of a run that did not succeed: an error code and a description."""

    code: str
    problem: str = ""


class Display(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The display after event `head`. `run` is the latest run; message, tools, sub-agents and error
    belong to this run, all other fields to the thread. `message` is the streaming message, or else
    the last message of the run. Tools and sub-agents are keyed by the id of their call, pending
    items by their id, files by their path. `budgets` are those that the run has nearly used up: the
    used fraction by scope, period and measure, such as `user/day tokens`. Treat a display as
    immutable.

    The last five fields are used by `reduce` only: the last complete message, whether the run is
    open (None if there is no run), the agent's modes with the model of each, the default model, and
    the state of the log.
    """

    session: str = ""
    thread: str = ""
    mode: str | None = None
    model: str | None = None
    run: str | None = None
    phase: str = "idle"
    running: bool = False
    message: Said | None = None
    queued: int = 0
    usage: Usage = Usage()
    tools: dict[str, ToolShown] = {}
    pending: dict[str, ItemShown] = {}
    subagents: dict[str, SubagentShown] = {}
    files: dict[str, FileChanges] = {}
    tasks: tuple[ev.Task, ...] = ()
    previous_tasks: tuple[ev.Task, ...] = ()
    error: Problem | None = None
    budgets: dict[str, float] = {}
    head: int = 0
    said: Said | None = None
    open: bool | None = None
    modes: dict[str, str | None] = {}
    default: str | None = None
    state: State = State()
    schedules: dict[str, ScheduleShown] = {}


def reduce(display: Display, item: Event | Delta) -> Display:
    """Return the display after one more event or delta. Events that were already applied change
    nothing. The arguments are not modified."""
    if isinstance(item, Delta):
        return _grown(display, item)
    if item.seq <= display.head:
        return display
    return _drawn(_staged(display, item), fold((item,), display.state))


def display_of(
    state: State, events: Iterable[Event], flying: Said | None = None, start: Display | None = None
) -> Display:
    """Return the display of a log in this state. `events` are the events of the log from number
    `since(state)` on. `start` has the fields that do not come from events: the names of the
    session, and its modes."""
    display = start or Display()
    for event in events:
        display = _staged(display, event)
    return in_flight(_drawn(display, state), flying)


def since(state: State) -> int:
    """Return the number of the first event that a display needs: the start of the latest run, or
    the first event of a pending item."""
    seqs = [item.seq for item in state.pending.values()]
    if state.run is not None:
        seqs.append(state.run.seq)
    return min(seqs, default=state.head + 1)


def in_flight(display: Display, message: Said | None) -> Display:
    """Return the display with a streaming message as its message."""
    return display if message is None else replace(display, message=message)


def phase(state: State) -> str:
    """Return what the log's run is doing, as one word such as `idle`, `running_tool` or
    `waiting_approval`."""
    run = state.run
    if run is None or not run.open:
        failed = run is not None and run.status == "failed"
        return "queued" if state.queue else "error" if failed else "idle"
    if state.pending and all(ids.is_child(id) for id in state.pending):
        return "running_tool"
    if state.pending and run.status == "waiting":
        return "waiting_approval"
    if run.status == "waiting":
        return "waiting"
    if any(call.status == "started" for call in state.calls.values()):
        return "running_tool"
    return "closing" if run.answered else "waiting_model"


def to_json(display: Display) -> bytes:
    """Encode a display as JSON."""
    return msgspec.json.encode(display, enc_hook=str)


def from_json(text: bytes) -> Display:
    """Decode a display from JSON. `reduce` accepts the result."""
    return msgspec.json.decode(text, type=Display, dec_hook=_read)


def _read(kind: type, value: Any) -> Any:
    return TextPieces.of(value) if kind is TextPieces else value


# Streaming text


def _grown(display: Display, delta: Delta) -> Display:
    message = display.message
    if message is None or message.id != delta.message:
        message = Said(id=delta.message)
    if message.done:
        return display
    if delta.thought:
        return replace(
            display, message=replace(message, thinking=message.thinking.plus(delta.text))
        )
    known = message.body.length
    more = delta.text[max(0, known - delta.offset) :]
    if delta.offset > known or not more:  # the event of the message will have the missing text
        return display
    return replace(display, message=replace(message, body=message.body.plus(more)))


# Changes by events. None of these functions reads the fields that come from the state.


def _staged(display: Display, event: Event) -> Display:
    step = _STAGED.get(event.kind)
    return display if step is None else step(display, event, typed(event))


def _cleared(display: Display, event: Event, p: ev.RunStarted | None = None) -> Display:
    """Return the display at the start of a new run, without any content of earlier runs."""
    none: dict[str, Any] = {"message": None, "said": None, "error": None, "tools": {}}
    none["budgets"] = {}
    return replace(display, run=event.run, open=True, **none)


def _run_waiting(display: Display, event: Event, p: ev.RunWaiting | None) -> Display:
    return _quiet(display if display.open else _cleared(display, event))


def _run_finished(display: Display, event: Event, p: ev.RunFinished | None) -> Display:
    if display.open is None:
        display = _cleared(display, event)
    p = p or ev.RunFinished(status="interrupted")
    error = None
    if p.status != "done":
        error = Problem(code=p.code or f"run_{p.status}", problem=p.error or "")
    return replace(_quiet(display), run=event.run, open=False, error=error)


def _quiet(display: Display, event: Event | None = None, p: ev.Payload | None = None) -> Display:
    """Replace the streaming message by the last complete message."""
    return replace(display, message=display.said)


def _forked(display: Display, event: Event, p: ev.ThreadForked | None = None) -> Display:
    return replace(_cleared(display, event), run=None, open=None, pending={})


def _rewound(display: Display, event: Event, p: ev.ThreadRewound | None) -> Display:
    """Clear the display after a rewind: like a new fork, it shows no content of earlier runs, but
    the pending items are kept."""
    return display if p is None else replace(_forked(display, event), pending=display.pending)


def _message_completed(display: Display, event: Event, p: ev.MessageCompleted | None) -> Display:
    if p is None or not _of_run(display, event):
        return display
    tools = dict(display.tools)
    for call in p.calls[:TOOLS]:
        tools.setdefault(call.id, ToolShown(name=call.name, arguments=call.arguments))
    ended = [id for id, shown in tools.items() if shown.over]
    for id in ended[: max(0, len(tools) - TOOLS)]:
        del tools[id]
    return replace(_spoken(display, event, p, p.thought), tools=tools)


def _message_interrupted(
    display: Display, event: Event, p: ev.MessageInterrupted | None
) -> Display:
    return _spoken(display, event, p) if p and _of_run(display, event) else display


def _of_run(display: Display, event: Event) -> bool:
    return display.open is not None and event.run == display.run


def _spoken(
    display: Display,
    event: Event,
    p: ev.MessageCompleted | ev.MessageInterrupted,
    thought: str = "",
) -> Display:
    said = Said(
        id=event.id,
        body=TextPieces.of(p.text),
        thinking=TextPieces.of(thought),
        done=True,
        model=p.model,
        reason=p.reason,
    )
    return replace(display, message=said, said=said)


def _tool_nested(display: Display, event: Event, p: ev.ToolNested | None) -> Display:
    if p is None or p.parent not in display.tools or p.call.id in display.tools:
        return display
    shown = ToolShown(name=p.call.name, arguments=p.call.arguments, parent=p.parent)
    return replace(display, tools={**display.tools, p.call.id: shown})


def _tool_started(display: Display, event: Event, p: ev.ToolStarted | None) -> Display:
    if p is None or p.arguments is None:
        return display
    return _with_call(display, p.call, arguments=p.arguments)


def _progress_reported(display: Display, event: Event, p: ev.ProgressReported | None) -> Display:
    return display if p is None else _with_call(display, p.call, progress=p.data)


def _tool_finished(display: Display, event: Event, p: ev.ToolFinished | None) -> Display:
    if p is None:
        return _with_call(display, ids.done_call(event.id), status="unknown", over=True)
    result = p.content if p.result is None else p.result
    error = None if p.outcome == "ok" else p.error or p.content or p.code
    shown: dict[str, Any] = {"status": ENDED[p.outcome], "result": result, "error": error}
    call = display.tools.get(p.call)
    if call is not None and call.name == SUBAGENT and isinstance(p.metadata.get("thread"), str):
        shown["thread"] = p.metadata["thread"]
    return _with_call(display, p.call, over=True, stored=p.stored, **shown)


def _tool_probed(display: Display, event: Event, p: ev.ToolProbed | None) -> Display:
    return display if p is None else _with_call(display, p.call, probed=p.outcome)


def _with_call(display: Display, call: str, **changes: Any) -> Display:
    shown = display.tools.get(call)
    if shown is None or shown.over:  # the first outcome of a call counts
        return display
    return replace(display, tools={**display.tools, call: replace(shown, **changes)})


def _pending_opened(display: Display, event: Event, p: ev.PendingOpened | None) -> Display:
    if p is None or p.id in display.pending:
        return display
    if ids.is_child(p.id):
        call = ids.child_call(p.id)
        return _with_call(display, call, thread=f"sub/{call}")
    item = ItemShown(
        what=p.what,
        title=p.title or p.what,
        call=p.call,
        detail=p.detail,
        expires=p.expires,
        risk=risk(p),
    )
    return replace(display, pending={**display.pending, p.id: item})


def _run_warned(display: Display, event: Event, p: ev.RunWarned | None) -> Display:
    if p is None or not _of_run(display, event):
        return display
    return replace(display, budgets={**display.budgets, f"{p.budget} {p.measure}": p.share})


_STAGED: dict[str, Callable[[Display, Event, Any], Display]] = {
    "thread.forked": _forked,
    "thread.rewound": _rewound,
    "run.started": _cleared,
    "run.resumed": _quiet,
    "run.waiting": _run_waiting,
    "run.finished": _run_finished,
    "model.called": _quiet,
    "message.completed": _message_completed,
    "message.interrupted": _message_interrupted,
    "tool.nested": _tool_nested,
    "tool.started": _tool_started,
    "tool.finished": _tool_finished,
    "progress.reported": _progress_reported,
    "pending.opened": _pending_opened,
    "tool.probed": _tool_probed,
    "run.warned": _run_warned,
}
ENDS = ("run.started", "run.resumed", "run.waiting", "run.finished", "model.called")


# Fields that come from the state


def _drawn(display: Display, state: State) -> Display:
    tools, run = _tools(display, state), state.run
    return replace(
        display,
        state=state,
        head=state.head,
        run=run.id if run is not None else None,
        phase=phase(state),
        running=run is not None and run.status == "running",
        queued=len(state.queue),
        usage=spent(state),
        tools=tools,
        pending=_pending(display, state),
        subagents={id: _subagent(shown) for id, shown in tools.items() if shown.name == SUBAGENT},
        files=dict(state.files),
        tasks=state.tasks,
        previous_tasks=state.tasks_before,
        schedules=_schedules(state),
        **_chosen(display, state),
    )


def _chosen(display: Display, state: State) -> dict[str, str | None]:
    """Return the current mode, and the model of the next call in this mode."""
    modes = display.modes
    mode = state.mode if state.mode in modes or not modes else next(iter(modes))
    run = state.active.model if state.active is not None else None
    model = state.next_model(mode, modes.get(mode or ""), display.default, run)
    return {"mode": mode, "model": model}


def _tools(display: Display, state: State) -> dict[str, ToolShown]:
    tools = display.tools
    for id, call in state.calls.items():
        if id in tools and not tools[id].over and tools[id].status != OPEN[call.status]:
            tools = {**tools, id: replace(tools[id], status=OPEN[call.status])}
    return tools


def _pending(display: Display, state: State) -> dict[str, ItemShown]:
    """Return the items that a user can answer. Calls that wait for a sub-agent are not included."""
    found: dict[str, ItemShown] = {}
    for id, item in state.pending.items():
        if not ids.is_child(id):
            shown = display.pending.get(id) or ItemShown(
                what=item.what, title=item.what, call=item.call
            )
            found[id] = replace(
                shown, expires=item.expires, approvals=item.approvals, approved_by=item.voters
            )
    return found


def _schedules(state: State) -> dict[str, ScheduleShown]:
    return {
        name: ScheduleShown(next=None if known.paused else known.next, paused=known.paused)
        for name, known in state.schedules.items()
    }


def _subagent(shown: ToolShown) -> SubagentShown:
    given = shown.arguments if isinstance(shown.arguments, dict) else {}
    detached = given.get("detached") is True and shown.thread is not None
    return SubagentShown(
        agent=given.get("agent"), thread=shown.thread, status=shown.status, detached=detached
    )


class LiveDisplay:
    """The display of a log that is still growing. New events are collected, and applied when the
    display is read."""

    def __init__(self, most: int = WAITING) -> None:
        self._display = Display()
        self._most = most
        self._waiting: list[Event] = []
        self._size = 0  # total size in bytes of the waiting events

    def begin(self, state: State, events: Iterable[Event]) -> None:
        """Start with the display of a log in this state."""
        self._display, self._waiting = display_of(state, events, start=self._display), []
        self._size = 0

    def name(self, **names: Any) -> None:
        """Set fields that do not come from events, such as the names of the session."""
        if any(getattr(self._display, name) != said for name, said in names.items()):
            self._display = _drawn(replace(self._display, **names), self._display.state)

    def put(self, event: Event, state: State) -> None:
        """Add one event, and the state after it, which is used if the display must be rebuilt."""
        self._waiting.append(event)
        self._size += len(event.data)
        if len(self._waiting) > self._most or self._size > WAITING_BYTES:
            first = since(state)
            self.begin(state, [event for event in self._waiting if event.seq >= first])

    def now(self, flying: Said | None = None) -> Display:
        """Return the current display."""
        for event in self._waiting:
            self._display = reduce(self._display, event)
        self._waiting.clear()
        self._size = 0
        return in_flight(self._display, flying)
