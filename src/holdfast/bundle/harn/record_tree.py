"""Builds the JSON tree of a session bundle from a run record of Harn. The bundle contains the whole
record; some of its fields are also copied to the top level. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ...log.events import new_id
from ..json_values import JsonObject, as_dict, as_list, as_str, as_text
from .format import ANCHOR, SCHEMA_ID, TYPE, VERSION, WORKSPACE_POLICY, HarnMountedRoot, HarnUsage
from .names import TOPIC
from .verification import outcomes

NOTE = "Share a sanitized bundle, never the run record itself: it may hold secrets."


def tree_head(version: str, bundle_id: str, created_at: str) -> JsonObject:
    """Return the first fields of every bundle. `version` is the version of the producer."""
    return {
        "_type": TYPE,
        "schema_version": VERSION,
        "bundle_id": bundle_id,
        "created_at": created_at,
        "producer": {"name": "holdfast", "version": version, "schema_id": SCHEMA_ID},
    }


def fixture(
    id: str, run: str, workflow: JsonObject, *, at: str, kind: str, status: str
) -> JsonObject:
    """Return the expected result of replaying a run."""
    return {
        "_type": "replay_fixture",
        "id": id,
        "source_run_id": run,
        "workflow_id": workflow["workflow_id"],
        "workflow_name": workflow["workflow_name"],
        "created_at": at,
        "eval_kind": kind,
        "expected_status": status,
        "stage_assertions": [],
    }


def record_tree(
    record: JsonObject,
    *,
    version: str,
    created_at: str,
    bundle_id: str | None = None,
    attachments: bool = False,
    snapshots: list[JsonObject] | None = None,
) -> JsonObject:
    """Build the tree of a bundle without redaction. `version` is the version of the producer. The
    default id is new and sorts by time.
    """
    metadata = as_dict(as_dict(record.get("transcript")).get("metadata"))
    return {
        **tree_head(version, bundle_id or f"bundle_{new_id()}", created_at),
        "source": _source(record),
        "runtime": _runtime(record, version),
        "workspace": _workspace(metadata.get(ANCHOR)),
        "transcript": {"sections": [_section(*where) for where in _transcripts(record)]},
        "tools": {"schemas": _schemas(record), "calls": as_list(record.get("tool_recordings"))},
        "permissions": list(_permissions(record)),
        "replay": _replay(record, snapshots or []),
        "attachments": list(_attachments(record)) if attachments else [],
        "metadata": {"format_note": NOTE},
    }


def _source(record: JsonObject) -> JsonObject:
    names = ("workflow_id", "workflow_name", "task", "status", "started_at", "finished_at")
    more = ("persisted_path", "root_run_id", "parent_run_id")
    return {
        "kind": "run_record",
        "run_record_id": record.get("id", ""),
        **{name: record[name] for name in (*names, *more) if name in record},
        "child_run_count": len(as_list(record.get("child_runs"))),
    }


def _runtime(record: JsonObject, version: str) -> JsonObject:
    usage = record.get("usage")
    found = as_dict(usage)
    kept = {name: found[name] for name in HarnUsage.__struct_fields__ if name in found}
    return {
        "harn_version": version,
        "provider_models": as_list(found.get("models")),
        "usage": kept if isinstance(usage, dict) else None,
        "metadata": {},
    }


def _workspace(anchor: Any) -> JsonObject | None:
    """Return the workspace of an anchor; None if the anchor is malformed."""
    names = ("primary", "anchored_at")
    if not isinstance(anchor, dict) or any(not isinstance(anchor.get(n), str) for n in names):
        return None
    try:
        roots = msgspec.convert(anchor.get("additional_roots") or [], list[HarnMountedRoot])
    except msgspec.ValidationError:
        return None
    return {
        "primary": anchor["primary"],
        "additional_roots": msgspec.to_builtins(roots),
        "anchored_at": anchor["anchored_at"],
        "policy": WORKSPACE_POLICY,
    }


def _stages(record: JsonObject) -> list[JsonObject]:
    """Return the stages of a record; a stage that is not an object is empty."""
    return [as_dict(stage) for stage in as_list(record.get("stages"))]


def _transcripts(record: JsonObject) -> Iterator[tuple[JsonObject, str, str, str, str]]:
    """Yield each transcript of the record: its content, and its id, label, scope and location."""
    if isinstance(record.get("transcript"), dict):
        yield record["transcript"], "run", "Run transcript", "run", "$.transcript"
    for number, stage in enumerate(_stages(record)):
        if isinstance(stage.get("transcript"), dict):
            label = f"Stage {stage.get('node_id', '')}"
            place = f"$.stages[{number}].transcript"
            yield stage["transcript"], str(stage.get("id", "")), label, "stage", place


def _section(transcript: JsonObject, id: str, label: str, scope: str, location: str) -> JsonObject:
    return {
        "id": id,
        "label": label,
        "scope": scope,
        "location": location,
        "summary": as_str(transcript.get("summary")),
        **{name: as_list(transcript.get(name)) for name in ("messages", "events", "assets")},
        "metadata": as_dict(transcript.get("metadata")),
    }


def _events(transcript: Any) -> list[JsonObject]:
    return [e for e in as_list(as_dict(transcript).get("events")) if isinstance(e, dict)]


def _kind(event: JsonObject) -> str:
    return as_str(event.get("type", event.get("kind"))) or ""


def _schemas(record: JsonObject) -> list[JsonObject]:
    found: list[tuple[str, Any]] = []

    def collect(transcript: Any, source: str) -> None:
        events = [e for e in _events(transcript) if _kind(e) in ("tool_schemas", "tool_schema")]
        found.extend((source, event) for event in events)

    collect(record.get("transcript"), "run.transcript")
    for stage in _stages(record):
        node, metadata = stage.get("node_id", ""), as_dict(stage.get("metadata"))
        collect(stage.get("transcript"), f"stage.{node}.transcript")
        for name in ("tool_schemas", "tools"):
            if metadata.get(name) is not None:
                found.append((f"stage.{node}.metadata", metadata[name]))
                break
    return [_entry(source, number, value) for number, (source, value) in enumerate(found)]


def _entry(source: str, number: int, value: Any) -> JsonObject:
    return {"source": source, "index": number, "value": value}


def _permissions(record: JsonObject) -> Iterator[JsonObject]:
    """Yield the permissions: first the questions, then the permissions in the run's transcript,
    then the permissions of each stage.
    """
    for question in as_list(record.get("hitl_questions")):
        asked = as_dict(question)
        request, agent = asked.get("request_id"), asked.get("agent") or None
        yield _permission("hitl_question", "run.hitl_questions", request, agent, question)
    yield from _asked(record.get("transcript"), "run.transcript")
    for stage in _stages(record):
        node = stage.get("node_id", "")
        yield from _asked(stage.get("transcript"), f"stage.{node}.transcript")
        worker = as_dict(as_dict(stage.get("metadata")).get("worker"))
        policy = as_dict(worker.get("audit")).get("approval_policy")
        if policy is not None:
            agent = as_text(worker.get("name")) or as_text(worker.get("worker_name"))
            yield _permission("approval_policy", f"stage.{node}.worker.audit", None, agent, policy)


def _permission(kind: str, source: str, request: Any, agent: Any, payload: Any) -> JsonObject:
    return {
        "kind": kind,
        "source": source,
        "request_id": request,
        "agent": agent,
        "payload": payload,
    }


def _is_permission(kind: str) -> bool:
    low = kind.lower()
    return "permission" in low or "approval" in low or low.startswith("hitl_")


def _asked(transcript: Any, source: str) -> Iterator[JsonObject]:
    for event in _events(transcript):
        if not _is_permission(kind := _kind(event)):
            continue
        about = as_dict(event.get("metadata")).get("activity")
        activity = as_dict(about)
        request = activity.get("request_id") or event.get("request_id") or event.get("id")
        requester = as_text(as_dict(activity.get("requester")).get("agent_id"))
        agent = requester or as_text(event.get("agent"))
        payload = about if isinstance(about, dict) else event
        yield _permission(kind, source, as_text(request), agent, payload)


def _replay(record: JsonObject, snapshots: list[JsonObject]) -> JsonObject:
    seen = record.get("observability")
    spans = record.get("trace_spans") or as_dict(record.get("evidence")).get("trace_spans")
    marks = {name: as_list(record.get(name)) for name in ("transitions", "checkpoints")}
    return {
        "replay_fixture": record.get("replay_fixture"),
        "run_record": record,
        **({"observability": seen} if seen is not None else {}),
        "verification_outcomes": outcomes(record),
        **({"worker_snapshots": snapshots} if snapshots else {}),
        "event_log_pointers": list(_pointers(as_dict(seen))),
        **marks,
        "trace_spans": [_span(span) for span in as_list(spans)],
        "deterministic_events": [
            _entry(f"run.{name}", number, value)
            for name, values in marks.items()
            for number, value in enumerate(values)
        ],
    }


def _span(span: Any) -> Any:
    if isinstance(span, dict) and "parent_id" in span and "parent_span_id" not in span:
        return {("parent_span_id" if n == "parent_id" else n): v for n, v in span.items()}
    return span


def _pointers(seen: JsonObject) -> Iterator[JsonObject]:
    for pointer in map(as_dict, as_list(seen.get("transcript_pointers"))):
        yield {
            "kind": pointer.get("kind", ""),
            "topic": None,
            "path": pointer.get("path"),
            "location": pointer.get("location", ""),
            "available": pointer.get("available", False),
        }
    for worker in map(as_dict, as_list(seen.get("worker_lineage"))):
        if session := worker.get("session_id"):
            path = worker.get("snapshot_path")
            yield {
                "kind": "agent_events",
                "topic": f"{TOPIC}{session}",
                "path": path,
                "location": f"worker.{worker.get('worker_id', '')}.session",
                "available": path is not None,
            }


def _attachments(record: JsonObject) -> Iterator[JsonObject]:
    for artifact in map(as_dict, as_list(record.get("artifacts"))):
        names = ("id", "kind", "title", "stage", "text", "data", "metadata")
        yield {name: artifact[name] for name in names if name in artifact}
