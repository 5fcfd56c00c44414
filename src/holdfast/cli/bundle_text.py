"""Formats bundles, comparisons of bundles and results of replays as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from ..bundle.differences import BundleDiff, Difference, ThreadDiff
from ..bundle.format import Document, Thread
from ..bundle.recorded import Divergence, Replayed
from ..harness import payload_fields
from ..log.events import Event
from .bundle_files import ReadBundle
from .output import json_text
from .render import facts_text, number, size

SHOWN = 300  # characters of a value that are shown
ENDS = {
    "no_answer": "stopped: no answer was recorded for a call",
    "waiting": "stopped: a pending item was not decided",
    "erased": "stopped: the events after it were erased",
}


def summary(document: Document) -> dict[str, Any]:
    """Return a summary of a bundle as a JSON value."""
    return {
        "bundle_id": document.bundle_id,
        "session": document.session.session,
        "tenant": document.session.tenant,
        "mode": document.mode,
        "purpose": document.purpose,
        "liveness": document.liveness,
    }


def bundle_lines(found: ReadBundle) -> Iterator[Text]:
    """Describe a bundle, as lines of text."""
    document, source = found.bundle.document, found.bundle.document.source
    totals = document.redaction.totals.items()
    return facts_text(
        {
            "bundle": document.bundle_id,
            "session": f"{document.session.session} of {document.session.tenant}",
            "format": found.format if found.format != "holdfast" else None,
            "mode": f"{document.mode}, {document.purpose}, {document.liveness}",
            "agent": source.agent,
            "title": document.session.title,
            "task": source.task,
            "times": f"{source.started_at} to {source.finished_at or document.created_at}",
            "thread": [_thread_events(thread) for thread in document.threads],
            "models": ", ".join(document.runtime.models),
            "calls": number(document.tools.total, "tool call"),
            "blobs": _blobs(document),
            "pending": [f"{item.what} {item.id}" for item in document.pending],
            "queue": number(len(document.queue), "message") if document.queue else None,
            "redacted": ", ".join(f"{count} {name}" for name, count in totals) or "nothing",
        }
    )


def _thread_events(thread: Thread) -> str:
    count = number(thread.head - thread.shared, "event")
    since = f", after {thread.shared} shared ones" if thread.shared else ""
    return f"{thread.thread}: {count}{since}"


def _blobs(document: Document) -> str | None:
    if not document.blobs:
        return None
    total = sum(blob.size for blob in document.blobs)
    left = sum(blob.part is None for blob in document.blobs)
    return f"{len(document.blobs)}, {size(total)}{f', {left} omitted' if left else ''}"


def diff_lines(found: BundleDiff) -> Iterator[str]:
    """Describe the differences between two bundles, as lines of text."""
    if found.same:
        yield f"same: {found.left}"
        return
    for thread in found.threads:
        yield from _thread(thread)
    yield from (_place(place) for place in found.facts)
    for side, blobs in (("left", found.blobs_left), ("right", found.blobs_right)):
        if blobs:
            yield f"only {side}: {number(len(blobs), 'blob')}"


def _thread(thread: ThreadDiff) -> Iterator[str]:
    status = thread.status.replace("_", " ")
    counts = f"{thread.left} and {number(thread.right, 'event')}, the first {thread.same} the same"
    yield f"thread {thread.thread}: {status} ({counts})"
    if thread.first is not None:
        yield f"  event {thread.first.seq}: {_place(thread.first)}"


def _place(place: Difference) -> str:
    return f"{place.path}: {_short(place.left)} | {_short(place.right)}"


def _short(value: Any) -> str:
    text = json_text(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def replay_lines(result: Replayed) -> Iterator[str]:
    """Describe the result of a replay, as lines of text."""
    counts = (
        f"{number(result.steps, 'model call')}, {number(result.compared, 'event')} compared, "
        f"{number(result.threads, 'thread')}"
    )
    if result.first is None:
        yield f"same: {counts}"
        if result.mode == "replay_only":
            yield "the bundle has no content, so only its structure was compared"
        return
    yield f"diverged: {counts}"
    yield from _divergence(result.first)
    for thread, events in result.events.items():
        for event in events:
            if event.kind == "message.completed":
                yield f"new answer of thread {thread}: {payload_fields(event).get('text', '')}"
    if result.stopped in ENDS:
        yield ENDS[result.stopped]


def _divergence(first: Divergence) -> Iterator[str]:
    place = f"thread {first.thread}, step {first.step}, event {first.seq or '?'} ({first.kind})"
    yield f"{place}: {first.path}"
    yield f"  recorded: {_short(first.recorded)}"
    yield f"  replayed: {_short(first.came)}"
    if first.why:
        yield f"  {first.why}"


def replay_json(result: Replayed) -> dict[str, Any]:
    """Return the result of a replay as a JSON value."""
    names = ("same", "first", "stopped", "steps", "compared", "given", "threads", "mode", "others")
    return {
        **{name: getattr(result, name) for name in names},
        "events": {thread: [_event(e) for e in events] for thread, events in result.events.items()},
    }


def _event(event: Event) -> dict[str, Any]:
    return {"seq": event.seq, "kind": event.kind, "data": payload_fields(event)}
