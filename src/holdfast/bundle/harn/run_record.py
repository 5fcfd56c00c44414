"""Returns the run record of a bundle: the embedded record, or a record rebuilt from the replay
fixture. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import Fault
from ..faults import invalid, invalid_all
from ..json_values import JsonObject
from .check import fault
from .format import OBSERVABILITY_VERSION, HarnDocument


def run_record(document: HarnDocument) -> JsonObject:
    """Return the run record of a bundle, with the bundle's observability data if the record has
    none. Raises `InvalidBundle` if the bundle has neither a record nor a fixture, or if the record
    belongs to another run.

    See [other formats](../interchange.md).
    """
    replay = document.raw.get("replay") or {}
    embedded = replay.get("run_record")
    if embedded is None and replay.get("replay_fixture") is None:
        problem = "has neither a run record nor a replay fixture"
        raise invalid("missing_run_record", "$.replay", problem)
    if embedded is None:
        return _rebuilt(document)
    if faults := _disagreements(document, embedded):
        raise invalid_all(faults)
    seen = _observability(replay)
    if embedded.get("observability") is None and seen is not None:
        return {**embedded, "observability": seen}
    return dict(embedded)


def _disagreements(document: HarnDocument, embedded: Any) -> list[Fault]:
    path = "$.replay.run_record"
    if not isinstance(embedded, dict):
        return [fault("invalid_type", path, "is not an object")]
    faults = []
    if embedded.get("_type", "run_record") != "run_record":
        faults.append(fault("invalid_type", f"{path}._type", "is not 'run_record'"))
    source = document.view.source
    for name, field in (("id", "run_record_id"), ("workflow_id", "workflow_id")):
        wanted = getattr(source, field)
        if wanted and embedded.get(name, wanted) != wanted:
            problem = f"differs from $.source.{field}"
            faults.append(fault("id_mismatch", f"{path}.{name}", problem))
    return faults


def _observability(replay: JsonObject) -> JsonObject | None:
    seen, outcomes = replay.get("observability"), replay.get("verification_outcomes")
    if seen is None and not outcomes:
        return None
    filled = dict(seen or {})
    filled["schema_version"] = filled.get("schema_version") or OBSERVABILITY_VERSION
    if not filled.get("verification_outcomes"):
        filled["verification_outcomes"] = outcomes or []
    return filled


def _rebuilt(document: HarnDocument) -> JsonObject:
    raw, view = document.raw, document.view
    replay, source = raw["replay"], raw["source"]
    sections = raw["transcript"].get("sections") or []
    names = ("workflow_id", "workflow_name", "task", "status", "started_at", "finished_at")
    lineage = ("root_run_id", "parent_run_id", "persisted_path")
    questions = [p for p in raw["permissions"] if p.get("kind") == "hitl_question"]
    lists = ("stages", "pending_nodes", "completed_nodes", "child_runs", "handoffs")
    return {
        "_type": "run_record",
        "id": source["run_record_id"],
        **{name: source.get(name) for name in (*names, *lineage)},
        **{name: [] for name in (*lists, "persona_runtime")},
        **{name: replay.get(name) or [] for name in ("transitions", "checkpoints", "trace_spans")},
        "artifacts": raw.get("attachments") or [],
        "policy": {},
        "transcript": _transcript(sections[0]) if sections else None,
        "usage": raw["runtime"].get("usage"),
        "replay_fixture": replay["replay_fixture"],
        "observability": _observability(replay),
        "tool_recordings": raw["tools"].get("calls") or [],
        "hitl_questions": [question.get("payload") for question in questions],
        "metadata": {
            "imported_from_session_bundle": view.bundle_id,
            "session_bundle_schema_version": view.schema_version,
            "worker_snapshot_count": len(document.snapshots),
        },
    }


def _transcript(section: JsonObject) -> JsonObject:
    names = ("messages", "events", "assets", "summary", "metadata")
    return {"_type": "transcript", **{name: section.get(name) for name in names}}


def with_paths(record: JsonObject, materialised: Sequence[tuple[str, str]]) -> JsonObject:
    """Return the record with the new snapshot paths of these workers; other workers keep their
    paths.

    See [other formats](../interchange.md).
    """
    paths = dict(materialised)
    if not paths:
        return record

    def patched(workers: Any) -> Any:
        if not isinstance(workers, list):
            return workers
        return [
            {**worker, "snapshot_path": paths[worker["worker_id"]]}
            if isinstance(worker, dict) and worker.get("worker_id") in paths
            else worker
            for worker in workers
        ]

    after = dict(record)
    if "child_runs" in after:
        after["child_runs"] = patched(after["child_runs"])
    if isinstance(seen := after.get("observability"), dict) and "worker_lineage" in seen:
        after["observability"] = {**seen, "worker_lineage": patched(seen["worker_lineage"])}
    metadata = after.get("metadata")
    if isinstance(metadata, dict) and "worker_snapshot_path" in metadata:
        after["metadata"] = {**metadata, "worker_snapshot_path": materialised[0][1]}
    return after
