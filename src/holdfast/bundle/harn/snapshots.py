"""Snapshots of Harn's workers: embeds them in bundles, builds bundles from them, and writes them
back to files.

Files are read only from a folder that the caller passes, and written completely or not at all. Each
snapshot gets its own file, and existing files are kept. Blocking: call it in a thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ...errors import Fault, InvalidBundle, NotContinuable
from ...log.codec import too_deep
from ..atomic_file import write_file
from ..conversion_loss import Losses
from ..faults import invalid, invalid_all, unreadable
from ..json_values import NOT_JSON, JsonObject, as_dict, as_list, as_text, first_text
from .check import INNER_DEPTH, MAX_BYTES, fault
from .format import OBSERVABILITY_VERSION, SUSPENDED, HarnDocument
from .names import file_name, sanitised
from .record_tree import fixture

WHERE = "$.worker_snapshot"
WORKFLOW = {
    "workflow_id": "worker_snapshot_checkpoint",
    "workflow_name": "Worker snapshot checkpoint",
}


class Materialised(Struct, frozen=True, kw_only=True):
    """A snapshot that was written to a file.

    See [other formats](../interchange.md).
    """

    worker_id: str
    path: str


def snapshot_entry(
    worker_id: str, name: str, status: str, value: Any, *, ref: str = "", path: str | None = None
) -> JsonObject:
    """Return the entry of a snapshot in a bundle."""
    return {
        "worker_id": worker_id,
        "worker_name": name,
        "status": status,
        "snapshot_ref": ref,
        "source_path": path,
        "value": value,
    }


def embedded(record: JsonObject, folder: Path, losses: Losses) -> list[JsonObject]:
    """Read the snapshots that a record refers to, each path once: first the snapshots of its child
    runs, then of its lineage.

    A file that is missing, unreadable, too large, not a JSON object or outside `folder` is omitted
    and reported.
    """
    lineage = as_dict(record.get("observability")).get("worker_lineage")
    found: dict[str, JsonObject] = {}
    for name, workers in (("child_runs", record.get("child_runs")), ("worker_lineage", lineage)):
        for number, worker in enumerate(map(as_dict, as_list(workers))):
            path = as_text(worker.get("snapshot_path"))
            if path is None or path in found:
                continue
            try:
                value = load(Path(path), folder)
            except InvalidBundle as error:
                where = f"$.{name}[{number}].snapshot_path"
                losses.add(where, "a worker's snapshot", error.faults[0].problem)
                continue
            ref = as_dict(value.get("suspension")).get("snapshot_ref")
            found[path] = snapshot_entry(
                first_text(worker.get("worker_id"), value.get("id")),
                first_text(worker.get("worker_name"), value.get("name"), value.get("worker")),
                first_text(worker.get("status"), value.get("status")),
                value,
                ref=first_text(ref, value.get("snapshot_path"), path),
                path=path,
            )
    return list(found.values())


def load(path: Path, folder: Path | None = None) -> JsonObject:
    """Read the snapshot in a file. Raises `InvalidBundle` if it cannot be read, or is outside
    `folder`, directly or through a symbolic link.
    """
    try:
        real = path.resolve()
        if folder is not None and not real.is_relative_to(folder.resolve()):
            raise invalid("decode", WHERE, "is outside the folder of snapshots")
        if real.stat().st_size > MAX_BYTES:
            raise invalid("decode", WHERE, f"has more than {MAX_BYTES} bytes")
        text = real.read_bytes()
    except (OSError, RuntimeError, ValueError) as error:
        raise unreadable(error, "decode", WHERE) from error
    try:
        value = None if too_deep(text, INNER_DEPTH) else msgspec.json.decode(text)
    except NOT_JSON as error:
        raise invalid("decode", WHERE, f"is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise invalid("decode", WHERE, "is not a JSON object, or is nested too deep")
    return value


def checkpoint_record(value: JsonObject, path: str, *, now: str) -> JsonObject:
    """Build the run record for a suspended worker's snapshot; the run continues where the worker
    stopped. Raises `InvalidBundle` with all faults if the snapshot is not suspended or is
    incomplete.
    """
    _check(value)
    run = f"checkpoint_{sanitised(value['id'])}"
    suspended = value["suspension"].get("suspended_at")
    begun = value.get("started_at")
    started = first_text(begun, value.get("created_at"), suspended, now)
    persisted = first_text(suspended, value.get("finished_at"), begun, started)
    worker = _worker(value, path)
    empty = ("stages", "transitions", "pending_nodes", "completed_nodes", "artifacts", "handoffs")
    checkpoint = {
        "id": f"{run}_turn_boundary",
        "ready_nodes": ["worker_snapshot_resume"],
        "completed_nodes": [],
        "last_stage_id": None,
        "persisted_at": persisted,
        "reason": "suspended_worker_snapshot_turn_boundary",
    }
    child = {
        **worker,
        "started_at": started,
        "mutation_scope": as_dict(value.get("audit")).get("mutation_scope"),
        "approval_policy": None,
    }
    kind = WORKFLOW["workflow_id"]
    return {
        "_type": "run_record",
        "id": run,
        **WORKFLOW,
        "task": worker["task"],
        "status": SUSPENDED,
        "started_at": started,
        "finished_at": None,
        **{name: [] for name in (*empty, "trace_spans", "tool_recordings", "hitl_questions")},
        "checkpoints": [checkpoint],
        "child_runs": [child],
        "transcript": value.get("transcript"),
        "replay_fixture": fixture(
            f"fixture_{run}", run, WORKFLOW, at=persisted, kind=kind, status=SUSPENDED
        ),
        "observability": {"schema_version": OBSERVABILITY_VERSION, "worker_lineage": [worker]},
        "metadata": {"checkpoint_kind": "worker_snapshot", "worker_snapshot_path": path},
    }


def _worker(value: JsonObject, path: str) -> JsonObject:
    sources = [as_dict(value["config"].get("spec")), as_dict(value.get("audit"))]
    return {
        "worker_id": value["id"],
        "worker_name": first_text(value.get("name")),
        "task": first_text(value.get("task"), "Suspended worker"),
        "status": SUSPENDED,
        "parent_stage_id": value.get("parent_stage_id"),
        "run_id": value.get("child_run_id"),
        "run_path": value.get("child_run_path"),
        "snapshot_path": path,
        **{
            name: first_text(*(source.get(name) for source in sources)) or None
            for name in ("session_id", "parent_session_id")
        },
    }


def _check(value: JsonObject) -> None:
    faults: list[Fault] = []
    for name in ("_type", "status", "id"):
        if as_text(value.get(name)) is None:
            faults.append(fault("missing_required", f"{WHERE}.{name}", "is missing or empty"))
    if (type := value.get("_type")) and type != "worker_snapshot":
        faults.append(fault("invalid_type", f"{WHERE}._type", "is not 'worker_snapshot'"))
    if (status := value.get("status")) and status != SUSPENDED:
        problem = f"is {str(status)[:40]!r}; only a suspended worker can be continued"
        faults.append(fault("unsupported_checkpoint_state", f"{WHERE}.status", problem))
    for name in ("config", "suspension"):
        if not isinstance(value.get(name), dict):
            faults.append(fault("invalid_type", f"{WHERE}.{name}", "is not an object"))
    if faults:
        raise invalid_all(faults)


def materialise(
    document: HarnDocument, folder: Path, *, accept_redacted: bool = False
) -> list[Materialised]:
    """Write each snapshot of a bundle to its own file in `folder`; the snapshot then contains the
    path of that file.

    All are written or none: if one fails, the others are removed again. Raises `NotContinuable` if
    content was redacted or withheld, unless `accept_redacted` is set. Without snapshots the folder
    is not created.

    See [other formats](../interchange.md).
    """
    snapshots = document.snapshots
    if not snapshots:
        return []
    mode = document.view.redaction.mode
    if mode not in ("", "local") and not accept_redacted:
        raise NotContinuable(
            bundle=document.view.bundle_id,
            problem=f"is {mode}, so its workers would continue with placeholders",
            remedy="export it as local, or pass accept_redacted=True",
        )
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Materialised] = []
    try:
        for number, snapshot in enumerate(snapshots):
            worker = snapshot.get("worker_id") or ""
            name = file_name(worker if worker.strip() else f"worker_{number}")
            path = _write(folder, name, snapshot.get("value"))
            written.append(Materialised(worker_id=worker, path=str(path)))
    except BaseException:
        for done in written:
            Path(done.path).unlink(missing_ok=True)
        raise
    return written


def _write(folder: Path, name: str, value: Any) -> Path:
    """Write a new file. If the name already exists, a number is added to it."""
    for path in _candidates(folder, name):
        text = msgspec.json.format(msgspec.json.encode(_moved(value, str(path))), indent=2)
        try:
            write_file(path, text + b"\n", replace=False)
        except FileExistsError:
            continue
        return path
    raise AssertionError("unreachable")


def _candidates(folder: Path, name: str) -> Iterator[Path]:
    yield folder / f"{name}.json"
    for number in count(2):
        yield folder / f"{name}-{number}.json"


def _moved(value: Any, path: str) -> Any:
    """Return a snapshot with its new path."""
    if not isinstance(value, dict):
        return value
    moved = {**value, "snapshot_path": path}
    if isinstance(value.get("suspension"), dict):
        moved["suspension"] = {**value["suspension"], "snapshot_ref": path}
    return moved
