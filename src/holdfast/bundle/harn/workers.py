"""Snapshots of Harn's workers: into a bundle, as a bundle of their own, and back into files.

Files are read below a folder that the caller names, and written each as a whole or not at all; no
two snapshots meet in one file, and none that is there is touched. Blocks: run it in a thread.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ...errors import InvalidBundle, NotContinuable
from ...log.codec import LIMITS, too_deep
from ..conversion_loss import Losses
from .check import INSIDE
from .faults import fault, refused
from .names import file_name, sanitised
from .shapes import OBSERVABILITY_VERSION, SUSPENDED, HarnDocument

WHERE = "$.worker_snapshot"
LARGEST = LIMITS.blob_bytes  # bytes of a snapshot

Tree = dict[str, Any]


class Materialised(Struct, frozen=True, kw_only=True):
    """A snapshot that was written: whose, and where."""

    worker_id: str
    path: str


def embedded(record: Tree, folder: Path, losses: Losses) -> list[Tree]:
    """The snapshots that a record names, each path once: of its child runs, then of its lineage.

    A file that is missing, cannot be read, is no JSON object, is too large or is outside
    `folder` is left out and reported.
    """
    seen = record.get("observability")
    lineage = seen.get("worker_lineage") if isinstance(seen, dict) else None
    found: dict[str, Tree] = {}
    for name, workers in (("child_runs", record.get("child_runs")), ("worker_lineage", lineage)):
        for number, worker in enumerate(workers if isinstance(workers, list) else []):
            path = worker.get("snapshot_path") if isinstance(worker, dict) else None
            if not isinstance(path, str) or not path or path in found:
                continue
            try:
                value = load(Path(path), folder)
            except InvalidBundle as error:
                where = f"$.{name}[{number}].snapshot_path"
                losses.add(where, "a worker's snapshot", error.faults[0].problem)
                continue
            found[path] = _snapshot(worker, value, path)
    return list(found.values())


def _snapshot(worker: Tree, value: Tree, path: str) -> Tree:
    suspension = value.get("suspension")
    refs = suspension.get("snapshot_ref") if isinstance(suspension, dict) else None
    return {
        "worker_id": _first(worker.get("worker_id"), value.get("id")),
        "worker_name": _first(worker.get("worker_name"), value.get("name"), value.get("worker")),
        "status": _first(worker.get("status"), value.get("status")),
        "snapshot_ref": _first(refs, value.get("snapshot_path"), path),
        "source_path": path,
        "value": value,
    }


def load(path: Path, folder: Path | None = None) -> Tree:
    """The snapshot in a file. `InvalidBundle` says why there is none to be had; with `folder`
    also for a path that leads out of it, by itself or by a link."""
    try:
        real = path.resolve()
        if folder is not None and not real.is_relative_to(folder.resolve()):
            raise refused([fault("decode", WHERE, "is outside the folder of snapshots")])
        if real.stat().st_size > LARGEST:
            raise refused([fault("decode", WHERE, f"has more than {LARGEST} bytes")])
        text = real.read_bytes()
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise refused([fault("decode", WHERE, f"cannot be read ({reason})")]) from error
    try:
        value = None if too_deep(text, INSIDE) else msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise refused([fault("decode", WHERE, f"is not JSON ({error})")]) from error
    if not isinstance(value, dict):
        raise refused([fault("decode", WHERE, "is not a JSON object, or too deep")])
    return value


def checkpoint(value: Tree, path: str, *, now: str) -> Tree:
    """The run record of a suspended worker's snapshot, which goes on where it stopped.
    `InvalidBundle` with all faults for one that is not suspended, or not whole."""
    _check(value)
    id, suspension = value["id"], value["suspension"]
    run = f"checkpoint_{sanitised(id)}"
    suspended = _first(suspension.get("suspended_at"))
    times = (value.get("started_at"), value.get("created_at"), suspended, now)
    about = {
        "worker_id": id,
        "worker_name": _first(value.get("name")),
        "task": _first(value.get("task"), "Suspended worker"),
        "status": SUSPENDED,
        "parent_stage_id": value.get("parent_stage_id"),
        "run_id": value.get("child_run_id"),
        "run_path": value.get("child_run_path"),
        "snapshot_path": path,
        **_sessions(value),
    }
    workflow = {
        "workflow_id": "worker_snapshot_checkpoint",
        "workflow_name": "Worker snapshot checkpoint",
    }
    started = _first(*times)
    persisted = _first(suspended, value.get("finished_at"), value.get("started_at"), started)
    audit = value.get("audit")
    scope = audit.get("mutation_scope") if isinstance(audit, dict) else None
    empty = ("stages", "transitions", "pending_nodes", "completed_nodes", "artifacts", "handoffs")
    return {
        "_type": "run_record",
        "id": run,
        **workflow,
        "task": about["task"],
        "status": SUSPENDED,
        "started_at": started,
        "finished_at": None,
        **{name: [] for name in (*empty, "trace_spans", "tool_recordings", "hitl_questions")},
        "checkpoints": [
            {
                "id": f"{run}_turn_boundary",
                "ready_nodes": ["worker_snapshot_resume"],
                "completed_nodes": [],
                "last_stage_id": None,
                "persisted_at": persisted,
                "reason": "suspended_worker_snapshot_turn_boundary",
            }
        ],
        "child_runs": [
            {**about, "started_at": started, "mutation_scope": scope, "approval_policy": None}
        ],
        "transcript": value.get("transcript"),
        "replay_fixture": {
            "_type": "replay_fixture",
            "id": f"fixture_{run}",
            "source_run_id": run,
            **workflow,
            "created_at": persisted,
            "eval_kind": "worker_snapshot_checkpoint",
            "expected_status": SUSPENDED,
            "stage_assertions": [],
        },
        "observability": {"schema_version": OBSERVABILITY_VERSION, "worker_lineage": [about]},
        "metadata": {"checkpoint_kind": "worker_snapshot", "worker_snapshot_path": path},
    }


def _check(value: Tree) -> None:
    faults = []
    for name in ("_type", "status", "id"):
        if not isinstance(value.get(name), str) or not value[name]:
            faults.append(fault("missing_required", f"{WHERE}.{name}", "is missing or empty"))
    if (type := value.get("_type")) and type != "worker_snapshot":
        faults.append(fault("invalid_type", f"{WHERE}._type", "is not 'worker_snapshot'"))
    if (status := value.get("status")) and status != SUSPENDED:
        problem = f"is {str(status)[:40]!r}: only a suspended worker can go on from here"
        faults.append(fault("unsupported_checkpoint_state", f"{WHERE}.status", problem))
    for name in ("config", "suspension"):
        if not isinstance(value.get(name), dict):
            faults.append(fault("invalid_type", f"{WHERE}.{name}", "is not an object"))
    if faults:
        raise refused(faults)


def _sessions(value: Tree) -> Tree:
    spec, audit = value["config"].get("spec"), value.get("audit")
    told = [one for one in (spec, audit) if isinstance(one, dict)]
    return {
        name: _first(*(one.get(name) for one in told)) or None
        for name in ("session_id", "parent_session_id")
    }


def materialise(
    document: HarnDocument, folder: Path, *, accept_redacted: bool = False
) -> list[Materialised]:
    """Write each snapshot of a bundle into a file of its own below `folder`, which it then names.

    All are written or none: when one fails, those before it are taken away again. A bundle whose
    content was redacted or withheld is `NotContinuable` unless that is accepted. Without
    snapshots not even the folder is made.
    """
    snapshots = (document.raw.get("replay") or {}).get("worker_snapshots") or []
    if not snapshots:
        return []
    mode = document.view.redaction.mode
    if mode not in ("", "local") and not accept_redacted:
        raise NotContinuable(
            bundle=document.view.bundle_id,
            problem=f"is {mode}: its workers would go on from placeholders",
            remedy="export it as local, or say that you accept that",
        )
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Materialised] = []
    try:
        for number, snapshot in enumerate(snapshots):
            worker = snapshot.get("worker_id") or ""
            name = file_name(worker if worker.strip() else f"worker_{number}")
            path = _put(folder, name, snapshot.get("value"))
            written.append(Materialised(worker_id=worker, path=str(path)))
    except BaseException:
        for done in written:
            Path(done.path).unlink(missing_ok=True)
        raise
    return written


def _put(folder: Path, name: str, value: Any) -> Path:
    """A new file, whole; under a name with a number where the name is taken."""
    handle, part = tempfile.mkstemp(dir=folder, prefix=".", suffix=".part")
    try:
        os.close(handle)
        for path in _places(folder, name):
            text = msgspec.json.format(msgspec.json.encode(_moved(value, str(path))), indent=2)
            with Path(part).open("wb") as file:
                file.write(text + b"\n")
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(part, path)  # fails where something is there, also a link to nowhere
            except FileExistsError:
                continue
            return path
    finally:
        Path(part).unlink(missing_ok=True)
    raise AssertionError("the names never end")


def _places(folder: Path, name: str) -> Iterable[Path]:
    yield folder / f"{name}.json"
    number = 2
    while True:
        yield folder / f"{name}-{number}.json"
        number += 1


def _moved(value: Any, path: str) -> Any:
    """The snapshot as it is at a new place."""
    if not isinstance(value, dict):
        return value
    moved = {**value, "snapshot_path": path}
    if isinstance(value.get("suspension"), dict):
        moved["suspension"] = {**value["suspension"], "snapshot_ref": path}
    return moved


def _first(*values: Any) -> str:
    return next((value for value in values if isinstance(value, str) and value), "")
