"""Computes the overview of a thread in a bundle: usage, messages, calls, permissions and pending
items.

`Digest` takes the events of one thread one by one, in bounded memory; `summary` combines the
digests. Pure: the overview depends only on the events, so it stays the same when a bundle is
imported and exported again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..log import catalog
from ..log import events as ev
from ..log.catalog import Row
from ..log.codec import typed
from ..log.events import Event
from ..log.state import State, fold
from ..log.transcript import ROLES, Message, transcript
from . import format as f
from .json_values import as_dict, as_str
from .liveness import closes, is_closed
from .timestamps import rfc3339

SOME, SIZE = 256, 1 << 20  # events to fold at a time, and their bytes of data
MODELS = 100  # models that are listed

_READ = {
    *(*ROLES, "tool.started", "tool.finished", "queue.changed", "run.started", "model.called"),
    "thread.rewound",
}
_DECISIONS = {"permission.changed": "rule", "grant.given": "grant", "grant.revoked": "grant"}


class _Open(Struct):
    """A call without a result: its position in the list, and its start time."""

    place: int | None
    started: int | None = None


class Overview:
    """The lists and totals of a document that are computed from the events. A list has at most
    `LISTED` entries; the complete data is in the events.
    """

    def __init__(self) -> None:
        self.calls: list[f.Called] = []
        self.permissions: list[f.BundlePermission] = []
        self.attachments: list[f.Attachment] = []
        self.fixtures: list[f.Fixture] = []
        self.transitions: list[f.Mark] = []
        self.checkpoints: list[f.Mark] = []
        self.spans: list[f.BundleSpan] = []
        self.models: dict[str, None] = {}
        self.total = self.duration = self.answers = 0  # calls, ms of model calls, their answers

    def include(self, other: Overview) -> None:
        """Add the lists and totals of another overview."""
        for name, known in vars(Overview()).items():
            mine, more = getattr(self, name), getattr(other, name)
            if isinstance(known, list):
                mine += more[: f.LISTED - len(mine)]
            elif isinstance(known, dict):
                mine |= more
            else:
                setattr(self, name, mine + more)


class Digest(Overview):
    """Computes the overview of a thread from its events. Call `add` for each event, then `end`."""

    def __init__(
        self, thread: f.Thread, tenant: str, session: str, *, transcript: bool = True
    ) -> None:
        super().__init__()
        self.thread = thread
        self.row = Row(
            tenant=tenant, session=session, thread=thread.thread, log="", head=thread.shared
        )
        self.state = State()
        self.first = self.last = 0
        self.events = 0
        self.tools: dict[str, str | None] = {}
        self.summary: int | None = None
        self.call: str | None = None
        self._closed = False
        self._some: list[Event] = []
        self._transcript_events: list[Event] | None = [] if transcript else None
        self._size = self._waiting = 0
        self._open: dict[str, _Open] = {}
        self._asked: dict[str, int] = {}
        self._called: int | None = None
        self._answer: str | None = None
        self._summaries: dict[int, int] = {}  # the latest summary at each compaction

    def add(self, event: Event) -> None:
        """Process the next event of the thread's part."""
        self.events += 1
        self.last = event.at
        self._closed = closes(event, self._closed)
        self._some.append(event)
        self._waiting += len(event.data)
        if len(self._some) == SOME or self._waiting > SIZE:
            self._fold()
        if event.seq > self.thread.shared:
            if not self.first:
                self.first = event.at
                self.row = replace(self.row, created=event.at, active=event.at // 1000)
            self.row = catalog.apply(self.row, [event], [catalog.project(event)])
        self._tell(event)
        if (payload := typed(event)) is not None:
            self._note(event, payload)

    def end(self) -> None:
        """Process the events that are still buffered. Call this after the last event."""
        self._fold()

    @property
    def closed(self) -> bool:
        return is_closed(self.state, self._closed)

    @property
    def messages(self) -> list[Message] | None:
        """Return the messages of the part; None if they are too large."""
        return None if self._transcript_events is None else transcript(self._transcript_events)

    def _fold(self) -> None:
        self.state = fold(self._some, self.state)
        self._some, self._waiting = [], 0

    def _tell(self, event: Event) -> None:
        if self._transcript_events is None or event.kind not in _READ:
            return
        self._size += len(event.data)
        self._transcript_events.append(event)
        if self._size > f.SECTION_BYTES:
            self._transcript_events = None

    def _note(self, event: Event, p: ev.Payload) -> None:
        if isinstance(p, ev.MessageCompleted):
            self._completed(event, p)
        elif isinstance(p, ev.MessageReceived):
            self._attached(event, p.parts)
        elif isinstance(p, ev.ToolStarted):
            if p.call in self._open:
                self._open[p.call].started = event.at
        elif isinstance(p, ev.ToolNested):
            self._proposed(event, p.call)
        elif isinstance(p, ev.ToolFinished):
            self._finished(event, p)
        elif isinstance(p, ev.ModelCalled):
            self._called = event.at
            self._model(p.model)
        elif isinstance(p, ev.CompactionMade):
            self._summarised(event, p)
        elif isinstance(p, ev.ThreadRewound):
            self.summary = self._summaries.get(p.window.seq or 0)
        elif isinstance(p, (ev.RunStarted, ev.RunFinished)):
            self._run(event, p)
        elif isinstance(p, ev.CheckpointMade):
            self._mark(self.checkpoints, event, p.id, p.label)
        elif isinstance(p, ev.ModeChanged):
            self._mark(self.transitions, event, p.mode, p.left)
        elif isinstance(p, (ev.ThreadCreated, ev.ThreadForked)):
            self.call = p.call
        elif isinstance(p, ev.PendingSettled):
            self._settled(event, p)
        elif isinstance(p, ev.PendingOpened) or event.kind in _DECISIONS:
            self._permission(event, p)

    def _summarised(self, event: Event, p: ev.CompactionMade) -> None:
        self.summary = event.seq if p.summary is not None else self.summary
        if self.summary is not None:
            self._summaries[event.seq] = self.summary

    def _completed(self, event: Event, p: ev.MessageCompleted) -> None:
        self.answers += 1
        if self._called is not None:
            self.duration += max(0, event.at - self._called)
            self._called = None
        if p.model is not None:
            self._model(p.model)
        if not p.calls:
            self._answer = digest(p.text)
        for call in p.calls:
            self._proposed(event, call)

    def _model(self, model: str) -> None:
        if len(self.models) < MODELS:
            self.models.setdefault(model)

    def _proposed(self, event: Event, call: ev.Call) -> None:
        self.total += 1
        if len(self.tools) < f.LISTED:
            self.tools.setdefault(call.name, call.fingerprint)
        place = None
        if len(self.calls) < f.LISTED:
            place = len(self.calls)
            called = f.Called(
                thread=self.thread.thread,
                seq=event.seq,
                id=call.id,
                name=call.name,
                provider_id=call.provider_id,
                arguments_hash=digest(call.arguments),
                step=len(self.spans),
                at=rfc3339(event.at),
            )
            self.calls.append(called)
        if len(self._open) < f.LISTED:
            self._open.setdefault(call.id, _Open(place))

    def _finished(self, event: Event, p: ev.ToolFinished) -> None:
        self._attached(event, p.stored)
        found = self._open.pop(p.call, None)
        if found is None or found.place is None:
            return
        took = None if found.started is None else max(0, event.at - found.started)
        self.calls[found.place] = replace(
            self.calls[found.place],
            outcome=p.outcome,
            rejected=p.outcome == "denied",
            result_hash=digest(p.result if p.error is None else p.error),
            duration_ms=took,
        )

    def _attached(self, event: Event, parts: Sequence[Any]) -> None:
        for part in parts:
            blob = as_dict(part)
            sha256, kind = as_str(blob.get("sha256")), as_str(blob.get("media_type"))
            listed = len(self.attachments) < f.LISTED
            if blob.get("type") == "blob" and sha256 is not None and listed:
                self.attachments.append(
                    f.Attachment(
                        id=f"{self.thread.thread}:{event.seq}:{sha256}",
                        kind="application/octet-stream" if kind is None else kind,
                        title=as_str(blob.get("name")),
                        thread=self.thread.thread,
                        seq=event.seq,
                        sha256=sha256,
                    )
                )

    def _run(self, event: Event, p: ev.RunStarted | ev.RunFinished) -> None:
        thread, at = self.thread.thread, rfc3339(event.at)
        if isinstance(p, ev.RunStarted):
            self._answer = None
            if len(self.spans) < f.LISTED:
                self.spans.append(
                    f.BundleSpan(thread=thread, run=event.run, start=event.seq, started_at=at)
                )
        elif self.spans and self.spans[-1].end is None:
            self.spans[-1] = replace(self.spans[-1], end=event.seq, finished_at=at, status=p.status)
            self._fold()
            steps = self.state.run.steps if self.state.run is not None else 0
            self.fixtures.append(
                f.Fixture(
                    thread=thread,
                    run=event.run,
                    expected_status=p.status,
                    steps=steps,
                    answer_hash=self._answer if p.status == "done" else None,
                )
            )

    def _mark(self, marks: list[f.Mark], event: Event, id: str, label: str | None) -> None:
        if len(marks) < f.LISTED:
            at = rfc3339(event.at)
            thread = self.thread.thread
            marks.append(f.Mark(thread=thread, seq=event.seq, id=id, label=label, at=at))

    def _settled(self, event: Event, p: ev.PendingSettled) -> None:
        if (place := self._asked.pop(p.id, None)) is not None:
            self.permissions[place] = replace(
                self.permissions[place], settled=event.seq, outcome=p.outcome, by=event.actor
            )

    def _permission(self, event: Event, p: ev.Payload) -> None:
        if len(self.permissions) >= f.LISTED:
            return
        kind: str
        request = None
        if isinstance(p, ev.PendingOpened):
            self._asked[p.id] = len(self.permissions)
            kind, request = p.what, p.id
            found = {"title": p.title, "call": p.call, "expires": p.expires}
            payload = {name: value for name, value in found.items() if value is not None}
        else:
            kind, payload = _DECISIONS[event.kind], msgspec.to_builtins(p)
        self.permissions.append(
            f.BundlePermission(
                kind=kind,
                source=self.thread.thread,
                seq=event.seq,
                request_id=request,
                agent=event.actor,
                payload=payload,
            )
        )


def digest(value: Any) -> str:
    """Return the SHA-256 hash of a JSON value, with sorted keys."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()
