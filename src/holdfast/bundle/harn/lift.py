"""A run record of Harn's as a session bundle: what a bundle says first-hand is lifted out of the
record, and the record itself stands in it whole. Pure; `workers` reads the files it names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ...log.events import new_id
from .names import TOPIC
from .shapes import ANCHOR, SCHEMA_ID, TYPE, VERSION, WORKSPACE_POLICY, MountedRoot, Usage
from .verify import outcomes

NOTE = "Share a sanitized bundle, never the run record itself: it may hold secrets."

Tree = dict[str, Any]


def lifted(
    record: Tree,
    *,
    version: str,
    created_at: str,
    bundle_id: str | None = None,
    attachments: bool = False,
    snapshots: list[Tree] | None = None,
) -> Tree:
    """The tree of a bundle with nothing redacted. `version` is the producer's; without an id it
    gets a new one, which rises with time."""
    transcripts = list(_transcripts(record))
    return {
        "_type": TYPE,
        "schema_version": VERSION,
        "bundle_id": bundle_id or f"bundle_{new_id()}",
        "created_at": created_at,
        "producer": {"name": "holdfast", "version": version, "schema_id": SCHEMA_ID},
        "source": _source(record),
        "runtime": _runtime(record, version),
        "workspace": workspace(_dict(_dict(record.get("transcript")).get("metadata")).get(ANCHOR)),
        "transcript": {"sections": [_section(*where) for where in transcripts]},
        "tools": {"schemas": _schemas(record), "calls": _list(record.get("tool_recordings"))},
        "permissions": list(_permissions(record)),
        "replay": _replay(record, snapshots or []),
        "attachments": list(_attachments(record)) if attachments else [],
        "metadata": {"format_note": NOTE},
    }


def _source(record: Tree) -> Tree:
    names = ("workflow_id", "workflow_name", "task", "status", "started_at", "finished_at")
    more = ("persisted_path", "root_run_id", "parent_run_id")
    return {
        "kind": "run_record",
        "run_record_id": record.get("id", ""),
        **{name: record[name] for name in (*names, *more) if name in record},
        "child_run_count": len(_list(record.get("child_runs"))),
    }


def _runtime(record: Tree, version: str) -> Tree:
    usage = record.get("usage")
    if not isinstance(usage, dict):
        return {"harn_version": version, "provider_models": [], "usage": None, "metadata": {}}
    kept = {name: usage[name] for name in Usage.__struct_fields__ if name in usage}
    models = _list(usage.get("models"))
    return {"harn_version": version, "provider_models": models, "usage": kept, "metadata": {}}


def workspace(anchor: Any) -> Tree | None:
    """The workspace that an anchor names; None for one that is malformed."""
    if not isinstance(anchor, dict) or not isinstance(anchor.get("primary"), str):
        return None
    if not isinstance(anchor.get("anchored_at"), str):
        return None
    try:
        roots = msgspec.convert(anchor.get("additional_roots") or [], list[MountedRoot])
    except msgspec.ValidationError:
        return None
    return {
        "primary": anchor["primary"],
        "additional_roots": msgspec.to_builtins(roots),
        "anchored_at": anchor["anchored_at"],
        "policy": WORKSPACE_POLICY,
    }


def _stages(record: Tree) -> list[Tree]:
    """Every stage at its place; what is no object is an empty one."""
    return [_dict(stage) for stage in _list(record.get("stages"))]


def _transcripts(record: Tree) -> Iterator[tuple[Tree, str, str, str, str]]:
    """Each transcript of the record: its content, and id, label, scope and place."""
    if isinstance(record.get("transcript"), dict):
        yield record["transcript"], "run", "Run transcript", "run", "$.transcript"
    for number, stage in enumerate(_stages(record)):
        if isinstance(stage.get("transcript"), dict):
            label = f"Stage {stage.get('node_id', '')}"
            place = f"$.stages[{number}].transcript"
            yield stage["transcript"], str(stage.get("id", "")), label, "stage", place


def _section(transcript: Tree, id: str, label: str, scope: str, location: str) -> Tree:
    summary = transcript.get("summary")
    return {
        "id": id,
        "label": label,
        "scope": scope,
        "location": location,
        "summary": summary if isinstance(summary, str) else None,
        "messages": _list(transcript.get("messages")),
        "events": _list(transcript.get("events")),
        "assets": _list(transcript.get("assets")),
        "metadata": _dict(transcript.get("metadata")),
    }


def _events(transcript: Any) -> list[Tree]:
    return [e for e in _list(_dict(transcript).get("events")) if isinstance(e, dict)]


def _kind(event: Tree) -> str:
    kind = event["type"] if "type" in event else event.get("kind")
    return kind if isinstance(kind, str) else ""


def _schemas(record: Tree) -> list[Tree]:
    found: list[tuple[str, Any]] = []

    def told(transcript: Any, source: str) -> None:
        events = [e for e in _events(transcript) if _kind(e) in ("tool_schemas", "tool_schema")]
        found.extend((source, event) for event in events)

    told(record.get("transcript"), "run.transcript")
    for stage in _stages(record):
        node, metadata = stage.get("node_id", ""), _dict(stage.get("metadata"))
        told(stage.get("transcript"), f"stage.{node}.transcript")
        for name in ("tool_schemas", "tools"):
            if metadata.get(name) is not None:
                found.append((f"stage.{node}.metadata", metadata[name]))
                break
    return [
        {"source": source, "index": number, "value": value}
        for number, (source, value) in enumerate(found)
    ]


def _permissions(record: Tree) -> Iterator[Tree]:
    """Questions first, then what the run's transcript says, then stage by stage."""
    for question in _list(record.get("hitl_questions")):
        asked = _dict(question)
        yield {
            "kind": "hitl_question",
            "source": "run.hitl_questions",
            "request_id": asked.get("request_id"),
            "agent": asked.get("agent") or None,
            "payload": question,
        }
    yield from _asked(record.get("transcript"), "run.transcript")
    for stage in _stages(record):
        node = stage.get("node_id", "")
        yield from _asked(stage.get("transcript"), f"stage.{node}.transcript")
        worker = _dict(_dict(stage.get("metadata")).get("worker"))
        policy = _dict(worker.get("audit")).get("approval_policy")
        if policy is not None:
            yield {
                "kind": "approval_policy",
                "source": f"stage.{node}.worker.audit",
                "request_id": None,
                "agent": _text(worker.get("name")) or _text(worker.get("worker_name")),
                "payload": policy,
            }


def is_permission(kind: str) -> bool:
    """Whether an event of this kind is about what is allowed."""
    low = kind.lower()
    return "permission" in low or "approval" in low or low.startswith("hitl_")


def _asked(transcript: Any, source: str) -> Iterator[Tree]:
    for event in _events(transcript):
        if not is_permission(kind := _kind(event)):
            continue
        about = _dict(event.get("metadata")).get("activity")
        activity = _dict(about)
        request = activity.get("request_id") or event.get("request_id") or event.get("id")
        requester = _dict(activity.get("requester")).get("agent_id")
        yield {
            "kind": kind,
            "source": source,
            "request_id": _text(request),
            "agent": _text(requester) or _text(event.get("agent")),
            "payload": about if isinstance(about, dict) else event,
        }


def _replay(record: Tree, snapshots: list[Tree]) -> Tree:
    seen = record.get("observability")
    spans = record.get("trace_spans") or _dict(record.get("evidence")).get("trace_spans")
    transitions, checkpoints = _list(record.get("transitions")), _list(record.get("checkpoints"))
    return {
        "replay_fixture": record.get("replay_fixture"),
        "run_record": record,
        **({"observability": seen} if seen is not None else {}),
        "verification_outcomes": outcomes(record),
        **({"worker_snapshots": snapshots} if snapshots else {}),
        "event_log_pointers": list(_pointers(_dict(seen))),
        "transitions": transitions,
        "checkpoints": checkpoints,
        "trace_spans": [_span(span) for span in _list(spans)],
        "deterministic_events": [
            {"source": f"run.{name}", "index": number, "value": value}
            for name, values in (("transitions", transitions), ("checkpoints", checkpoints))
            for number, value in enumerate(values)
        ],
    }


def _span(span: Any) -> Any:
    if isinstance(span, dict) and "parent_id" in span and "parent_span_id" not in span:
        return {("parent_span_id" if n == "parent_id" else n): v for n, v in span.items()}
    return span


def _pointers(seen: Tree) -> Iterator[Tree]:
    for pointer in _list(seen.get("transcript_pointers")):
        told = _dict(pointer)
        yield {
            "kind": told.get("kind", ""),
            "topic": None,
            "path": told.get("path"),
            "location": told.get("location", ""),
            "available": told.get("available", False),
        }
    for worker in map(_dict, _list(seen.get("worker_lineage"))):
        if session := worker.get("session_id"):
            path = worker.get("snapshot_path")
            yield {
                "kind": "agent_events",
                "topic": f"{TOPIC}{session}",
                "path": path,
                "location": f"worker.{worker.get('worker_id', '')}.session",
                "available": path is not None,
            }


def _attachments(record: Tree) -> Iterator[Tree]:
    for artifact in map(_dict, _list(record.get("artifacts"))):
        names = ("id", "kind", "title", "stage", "text", "data", "metadata")
        yield {name: artifact[name] for name in names if name in artifact}


def _dict(value: Any) -> Tree:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
