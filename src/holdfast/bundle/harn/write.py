"""Converts a Holdfast bundle to Harn's run record and session bundle, version 1.

The main thread becomes the run's transcript and every other thread a stage. Every sub-agent becomes
a child run with a snapshot from which Harn can resume it. Events that are not messages are kept
unchanged in the `events` of the transcripts. Blocking if the parts of the bundle are in a file.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

from ...errors import BlobNotFound, HoldfastError, InvalidValue
from ..archive import Bundle
from ..conversion_loss import Losses, LossReport
from ..format import BundleSpan, Child, Mark, Thread, line_of
from ..json_values import JsonObject
from ..redaction.scrub import Mode, ScrubConfig
from ..timestamps import from_rfc3339
from .check import read_document
from .format import ANCHOR, CLOSED, COMPLETED, LIVENESS, SUSPENDED, HarnDocument
from .modes import in_mode, manifest_of
from .names import sanitised
from .read import IMPORTED, convert
from .record_tree import fixture, record_tree
from .snapshots import snapshot_entry
from .thread import ThreadWriter

SOURCE, TARGET = "holdfast_bundle 1", "harn_session_bundle 1"
WORKFLOW = {"workflow_id": "holdfast_session", "workflow_name": None}
STRICTER: dict[Mode, int] = {"local": 0, "sanitized": 1, "replay_only": 2}


def write_harn(
    bundle: Bundle,
    mode: Mode | None = None,
    *,
    scrub: ScrubConfig | None = None,
    attachments: bool = False,
    version: str = "1",
) -> tuple[HarnDocument, LossReport]:
    """Convert a bundle to Harn's format; also returns what could not be converted.

    The default mode is the mode of the bundle. A less strict mode raises `InvalidValue`, since
    redacted content cannot be restored. The same bundle yields the same bytes. `version` is the
    version of the producer. If the session was imported from Harn and not continued since, the
    result is the original document. Blocking: call it in a thread.

    See [other formats](../interchange.md).
    """
    document = bundle.document
    mode = mode or document.mode
    if STRICTER[mode] < STRICTER[document.mode]:
        problem = f"is {mode}, but the bundle is already {document.mode}"
        remedy = f"export the session again as {mode}"
        raise InvalidValue(field="mode", problem=problem, remedy=remedy)
    losses = Losses()
    if mode == "local" and (original := _original(bundle)) is not None:
        return original, losses.report(SOURCE, TARGET)
    record = session_record(bundle, losses, attachments=attachments)
    tree = record_tree(
        record,
        version=version,
        created_at=document.created_at,
        bundle_id=f"bundle_{document.bundle_id.removeprefix('sha256:')[:32]}",
        attachments=attachments,
        snapshots=list(_snapshots(bundle, record)),
    )
    tree["metadata"] |= {LIVENESS: _tag(bundle), "holdfast": _about(bundle)}
    if mode == document.mode and mode != "local":
        tree["redaction"] = manifest_of(document.redaction)
    else:
        tree = in_mode(tree, mode, scrub, attachments=attachments)
    return HarnDocument.of(tree), losses.report(SOURCE, TARGET)


def _original(bundle: Bundle) -> HarnDocument | None:
    """Return the document that the session was imported from, if nothing was added since."""
    facts = bundle.document.session
    try:
        first = [event for event, _ in zip(bundle.events("main"), range(2), strict=False)]
        if len(first) < 2 or first[1].kind != IMPORTED:
            return None
        text = bundle.blob(first[1].json()["document"]["sha256"])
        document = read_document(text, allow_secrets=True)
        again = convert(document, Losses(), facts.session, facts.tenant)
    except (HoldfastError, KeyError, TypeError):
        return None
    if {log.thread for log in again.logs} != {log.thread for log in bundle.document.threads}:
        return None
    for log in again.logs:
        if [*map(line_of, log.events)] != [*map(line_of, bundle.events(log.thread))]:
            return None
    return document


def _tag(bundle: Bundle) -> str:
    return SUSPENDED if bundle.document.liveness == "continuable" else CLOSED


def _about(bundle: Bundle) -> JsonObject:
    facts = bundle.document.session
    return {"bundle_id": bundle.id, "tenant": facts.tenant, "session": facts.session}


def session_record(bundle: Bundle, losses: Losses, *, attachments: bool = False) -> JsonObject:
    """Convert the session to a run record of Harn, without further redaction.

    See [other formats](../interchange.md).
    """
    document = bundle.document
    source, facts = document.source, document.session
    over = document.liveness == "closed"
    threads = {thread.thread: thread for thread in document.threads}
    main = threads.get("main") or document.threads[0]
    others = [thread for thread in document.threads if thread is not main]
    children = document.replay.children
    written = {thread.thread: ThreadWriter(bundle, thread, losses) for thread in document.threads}
    status = source.status if over and source.status in ("failed", "aborted") else COMPLETED
    status = status if over else SUSPENDED
    return {
        "_type": "run_record",
        "id": facts.session,
        "workflow_id": WORKFLOW["workflow_id"],
        "workflow_name": facts.title,
        "task": written[main.thread].task or f"Session {facts.session}",
        "status": status,
        "started_at": source.started_at,
        "finished_at": document.created_at if over else None,
        "root_run_id": source.first_run,
        "parent_run_id": None,
        "stages": [_stage(thread, written[thread.thread]) for thread in others],
        "transitions": [_transition(mark) for mark in document.replay.transitions],
        "checkpoints": [_checkpoint(mark) for mark in document.replay.checkpoints],
        "pending_nodes": [item.id for item in document.pending],
        "completed_nodes": [],
        "child_runs": [_child_run(c, written[c.thread]) for c in children if c.thread in written],
        "artifacts": list(_artifacts(bundle, losses, attachments)),
        "handoffs": [],
        "policy": {},
        "execution": None,
        "transcript": written[main.thread].transcript(_anchor(bundle)),
        "usage": _usage(bundle),
        "replay_fixture": fixture(
            f"fixture_from_session_{sanitised(facts.session)}",
            facts.session,
            WORKFLOW,
            at=document.created_at,
            kind="replay",
            status=status,
        ),
        "trace_spans": [_span(span) for span in document.replay.spans],
        "tool_recordings": [call for one in written.values() for call in one.recordings],
        "hitl_questions": [asked for one in written.values() for asked in one.questions],
        "persona_runtime": [],
        "metadata": {LIVENESS: _tag(bundle), "holdfast": _about(bundle)},
    }


def _transition(mark: Mark) -> JsonObject:
    return {"id": mark.id, "to_node_id": mark.label or mark.id, "timestamp": mark.at}


def _checkpoint(mark: Mark) -> JsonObject:
    return {"id": mark.id, "persisted_at": mark.at, "reason": mark.label or "checkpoint"}


def _anchor(bundle: Bundle) -> JsonObject:
    workspace = bundle.document.workspace
    if workspace is None or workspace.primary is None:
        return {}
    roots = [
        {"path": root.path, "mount_mode": root.mode, "mounted_at": root.mounted_at or ""}
        for root in workspace.roots
    ]
    at = workspace.anchored_at or bundle.document.source.started_at
    return {ANCHOR: {"primary": workspace.primary, "additional_roots": roots, "anchored_at": at}}


def _usage(bundle: Bundle) -> JsonObject | None:
    usage = bundle.document.runtime.usage
    if usage is None:
        return None
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "call_count": usage.calls,
        "total_duration_ms": usage.duration_ms,
        "total_cost": usage.cost or 0.0,
        "models": list(usage.models),
    }


def _span(span: BundleSpan) -> JsonObject:
    start = from_rfc3339(span.started_at) or 0
    end = from_rfc3339(span.finished_at) or start
    return {
        "trace_id": span.run or "",
        "span_id": f"{span.thread}:{span.start}",
        "parent_span_id": None,
        "kind": "run",
        "name": "run",
        "start_ms": start,
        "duration_ms": max(end - start, 0),
        "metadata": {"thread": span.thread, "status": span.status},
        "links": [],
    }


def _stage(thread: Thread, written: ThreadWriter) -> JsonObject:
    return {
        "id": thread.thread,
        "node_id": thread.agent or thread.thread,
        "kind": "thread",
        "status": written.status,
        "outcome": "",
        "started_at": thread.created_at,
        "finished_at": None,
        "transcript": written.transcript({}),
        "metadata": {"parent": thread.parent.thread if thread.parent else None},
    }


def _child_run(child: Child, written: ThreadWriter) -> JsonObject:
    return {
        "worker_id": child.thread,
        "worker_name": child.agent,
        "parent_stage_id": None if child.parent == "main" else child.parent,
        "session_id": child.thread,
        "parent_session_id": child.parent,
        "task": written.task or "",
        "status": written.status,
        "started_at": written.started_at,
        "finished_at": None,
        "snapshot_path": None,
    }


def _snapshots(bundle: Bundle, record: JsonObject) -> Iterator[JsonObject]:
    """Convert sub-agents to snapshots of Harn's workers."""
    stages = {stage["id"]: stage for stage in record["stages"]}
    for child in record["child_runs"]:
        suspended = child["status"] == SUSPENDED
        at = bundle.document.created_at
        spec = {name: child[name] for name in ("task", "session_id", "parent_session_id")}
        value = {
            "_type": "worker_snapshot",
            "id": child["worker_id"],
            "name": child["worker_name"],
            "task": child["task"],
            "status": child["status"],
            "started_at": child["started_at"],
            "finished_at": None if suspended else at,
            "mode": "sub_agent",
            "config": {"mode": "sub_agent", "spec": {"name": child["worker_name"], **spec}},
            "transcript": stages[child["worker_id"]]["transcript"],
            "suspension": {"reason": "exported", "suspended_at": at} if suspended else None,
        }
        yield snapshot_entry(child["worker_id"], child["worker_name"], child["status"], value)


def _artifacts(bundle: Bundle, losses: Losses, attachments: bool) -> Iterator[JsonObject]:
    for blob in bundle.document.blobs:
        about = {
            "_type": "artifact",
            "id": blob.sha256,
            "kind": blob.media_type or "application/octet-stream",
            "created_at": bundle.document.created_at,
            "metadata": {"size": blob.size, "encoding": "base64"},
        }
        path = f"$.blobs[{blob.sha256}]"
        if not attachments:
            losses.add("$.blobs", "bytes of a blob", "attachments were not requested")
            yield about
            continue
        try:
            yield {**about, "data": base64.b64encode(bundle.blob(blob.sha256)).decode()}
        except BlobNotFound:
            losses.add(path, "bytes of a blob", "they are not in the bundle")
            yield about
