"""Converts Harn's session bundles, run records and worker snapshots to Holdfast bundles.

Messages, tool calls and their results become events; every section after the first and every
worker's snapshot becomes a thread. The original document is kept as a blob, so that nothing is
lost.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import Counter
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from ...log import events as ev
from ...log.codec import LIMITS
from ...log.events import Scope, ids
from ..archive import Bundle
from ..conversion_loss import Losses, LossReport
from ..faults import invalid, unreadable
from ..foreign_bundle import ForeignSession, check_session, pack
from ..foreign_log import LogBuilder, as_name
from ..json_values import NOT_JSON, JsonObject, as_dict
from ..redaction.manifest import Mode, Redacted, Redaction
from ..timestamps import from_rfc3339, rfc3339
from .agent_events import AgentEvent
from .check import INNER_DEPTH, MAX_BYTES, check_tree, read_document
from .format import CLOSED, LIVENESS, MODES, SUSPENDED, HarnDocument
from .messages import KEPT, AgentEventReader, MessageReader
from .names import sanitised
from .record_tree import record_tree
from .run_record import run_record
from .snapshots import checkpoint_record, snapshot_entry

SOURCE, TARGET = "harn_session_bundle 1", "holdfast_bundle 1"
IMPORTED = "harn.imported"
TITLE = 200
OTHER_TYPES = ("run_record", "worker_snapshot")  # documents that are not bundles
NOT_EVENTS = (  # fields of a bundle that are reported as not converted
    *("runtime.usage", "workspace.additional_roots", "tools.schemas", "permissions"),
    *("replay.replay_fixture", "replay.run_record", "replay.observability", "replay.transitions"),
    *("replay.checkpoints", "replay.trace_spans", "attachments"),
)
# The final states of a run.
OVER = {"completed", "failed", "cancelled", "canceled", "error", "aborted", "success", "done"}

HarnInput: TypeAlias = str | os.PathLike[str] | bytes | JsonObject | HarnDocument


async def read_harn(
    source: HarnInput,
    *,
    session: str | None = None,
    tenant: str = "main",
    allow_secrets: bool = False,
) -> tuple[Bundle, LossReport]:
    """Convert a path, bytes or a JSON tree to a bundle; also returns what could not be converted.

    Raises `InvalidBundle` with all faults if it cannot be read. The default session id is the id of
    the run. A session that Harn marks as suspended can be continued. Redacted and withheld content
    is marked, and the restrictions on redacted bundles apply.

    See [other formats](../interchange.md).
    """
    losses = Losses()
    document = await asyncio.to_thread(document_of, source, allow_secrets=allow_secrets)
    found = await asyncio.to_thread(convert, document, losses, session, tenant)
    return await pack(found), losses.report(SOURCE, TARGET)


def document_of(source: HarnInput, *, allow_secrets: bool = False) -> HarnDocument:
    """Read the document of a source; a run record or a worker's snapshot is converted to a
    document. Blocking.
    """
    if isinstance(source, HarnDocument):
        return source
    if isinstance(source, (str, os.PathLike)):
        source = _file(Path(source))
    if isinstance(source, bytes):
        source = _tree(source) or source
    if isinstance(source, dict) and source.get("_type") in OTHER_TYPES:
        source = _bundle_tree(source)
    return read_document(source, allow_secrets=allow_secrets)


def _bundle_tree(source: JsonObject) -> JsonObject:
    """Build the tree of a bundle from a run record or a worker's snapshot."""
    check_tree(source, "$", INNER_DEPTH)
    record, snapshots, now = source, list[JsonObject](), rfc3339(0)
    if source["_type"] == "worker_snapshot":
        record = checkpoint_record(source, "", now=now)
        entry = snapshot_entry(source["id"], source.get("name", ""), source["status"], source)
        snapshots.append(entry)
    tree = record_tree(
        record,
        version="",
        created_at=record.get("finished_at") or record.get("started_at") or now,
        bundle_id=f"bundle_{sanitised(str(record.get('id', '')))}",
        snapshots=snapshots,
    )
    tree["redaction"] = {
        **{"mode": "local", "policy": "none", "placeholder": "", "entries": []},
        "unsafe_secret_markers_rejected": False,
    }
    for name in ("workflow_id", "task", "status"):
        tree["source"].setdefault(name, "")
    return tree


def _file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise unreadable(error, "decode") from error


def _tree(data: bytes) -> JsonObject | None:
    """Parse the bytes of a run record or a snapshot; None for everything else."""
    if len(data) > MAX_BYTES or not any(f'"{name}"'.encode() in data for name in OTHER_TYPES):
        return None
    try:
        found = msgspec.json.decode(data, type=JsonObject)
    except NOT_JSON:
        return None
    return found if found.get("_type") in OTHER_TYPES else None


def convert(
    document: HarnDocument, losses: Losses, session: str | None, tenant: str
) -> ForeignSession:
    """Convert a document to logs. Pure."""
    view = document.view
    if view.replay.run_record is not None:
        run_record(document)  # raises if the record is of another run
    name = session or view.source.run_record_id
    name = check_session(name, "decode", "$.source.run_record_id")
    text = msgspec.json.encode(document.raw)
    main = LogBuilder("main", "harn:", at=from_rfc3339(view.source.started_at) or 0)
    _begin(main, document, text)
    logs = [main, *_sections(main, document, losses), *_workers(document, losses)]
    _end(main, document, losses)
    return ForeignSession(
        scope=Scope(tenant, name),
        logs=tuple(logs),
        blobs=(text,),
        redaction=_redaction(document, losses),
        metadata={"harn": _facts(document)},
    )


def _facts(document: HarnDocument) -> JsonObject:
    view = document.view
    return {
        "bundle_id": view.bundle_id,
        "schema_version": view.schema_version,
        "kind": view.source.kind,
        "status": view.source.status,
        "producer": msgspec.to_builtins(view.producer),
    }


def _begin(log: LogBuilder, document: HarnDocument, text: bytes) -> None:
    view = document.view
    task = " ".join(view.source.task.split())[:TITLE]
    workspace = view.workspace.primary if view.workspace else None
    created = ev.SessionCreated(title=task or None, workspace=as_name(workspace))
    log.add("session.created", created)
    digest = hashlib.sha256(text).hexdigest()
    about = {"type": "blob", "sha256": digest, "size": len(text), "media_type": "application/json"}
    log.add(IMPORTED, {**_facts(document), "document": about})


def _sections(main: LogBuilder, document: HarnDocument, losses: Losses) -> list[LogBuilder]:
    """Convert the first section to the main log, and each other section to a new log."""
    view, more = document.view, list[LogBuilder]()
    models = view.runtime.provider_models
    model = models[0] if len(models) == 1 else None
    for number, section in enumerate(view.transcript.sections):
        path = f"$.transcript.sections[{number}]"
        log = main if number == 0 else _thread(f"section:{number}:{section.id}", section.label)
        if log is not main:
            more.append(log)
        if view.source.kind == "event_log_session" and section.id == "agent_events":
            _agent_events(log, section.events, losses, path, closed=_closed(document))
            continue
        reader = MessageReader(log, losses, path, model)
        reader.read(section.messages)
        if number == 0:
            reader.read_recordings([msgspec.to_builtins(call) for call in view.tools.calls])
        for name in ("events", "assets", "metadata", "summary"):
            if getattr(section, name):
                losses.add(f"{path}.{name}", "a field of a section", "no counterpart", kept=KEPT)
    for path in NOT_EVENTS:
        value: Any = view
        for name in path.split("."):
            value = getattr(value, name, None)
        if value:
            losses.add(f"$.{path}", "a field of the bundle", "it is not an event", kept=KEPT)
    return more


def _agent_events(
    log: LogBuilder, events: list[Any], losses: Losses, path: str, *, closed: bool
) -> None:
    try:
        read = msgspec.convert(events, list[AgentEvent])
    except msgspec.ValidationError as error:
        raise invalid("decode", f"{path}.events", str(error)) from error
    reader = AgentEventReader(log, losses, path)
    reader.read(read)
    for id in reader.asked if closed else ():
        settled = ev.PendingSettled(id=id, outcome="abandoned", reason="closed")
        log.add("pending.settled", settled, id=ids.settle_id(id))


def _thread(name: str, title: str, agent: str | None = None) -> LogBuilder:
    whole = name if len(name.encode()) <= LIMITS.name_bytes // 2 else name[:40]
    log = LogBuilder("".join(c if c.isprintable() else "_" for c in whole), "harn:")
    log.add("thread.created", ev.ThreadCreated(parent="main", title=title, agent=as_name(agent)))
    return log


def _workers(document: HarnDocument, losses: Losses) -> list[LogBuilder]:
    """Convert each worker's snapshot to a thread with its conversation."""
    logs = []
    sections = {section.id for section in document.view.transcript.sections}
    for number, snapshot in enumerate(document.snapshots):
        path, value = f"$.replay.worker_snapshots[{number}]", as_dict(snapshot.get("value"))
        if snapshot.get("worker_id") in sections:
            what, why = "a worker's snapshot", "a section has the same conversation"
            losses.add(path, what, why, kept=KEPT)
            continue
        task, name = value.get("task"), snapshot.get("worker_name") or None
        title = task if isinstance(task, str) else name or "worker"
        log = _thread(f"worker:{number}:{snapshot.get('worker_id', '')}", title[:TITLE], name)
        messages = as_dict(value.get("transcript")).get("messages")
        if isinstance(messages, list):
            MessageReader(log, losses, f"{path}.value.transcript", None).read(messages)
        else:
            losses.add(path, "a worker's snapshot", "it has no messages", kept=KEPT)
        log.leave_open()
        logs.append(log)
    return logs


def _closed(document: HarnDocument) -> bool:
    view = document.view
    if (tag := view.metadata.get(LIVENESS)) in (SUSPENDED, CLOSED):
        return bool(tag == CLOSED)
    if view.source.status == SUSPENDED:
        return False
    return view.source.finished_at is not None or view.source.status.lower() in OVER


def _end(log: LogBuilder, document: HarnDocument, losses: Losses) -> None:
    source = document.view.source
    if not _closed(document):
        log.leave_open()
        return
    for call in log.abandon():
        losses.add("$.transcript", f"the result of call {call!r}", "the document has no result")
    at = from_rfc3339(source.finished_at)
    log.add("session.expired", ev.SessionExpired(reason=source.status or None), at=at)


def _redaction(document: HarnDocument, losses: Losses) -> Redaction:
    """Convert Harn's redaction manifest to Holdfast's format. An unknown mode counts as
    sanitized.
    """
    manifest = document.view.redaction
    if manifest.mode in ("", "local"):
        return Redaction()
    if manifest.mode not in MODES:
        losses.add("$.redaction.mode", "a mode", "it is unknown, and treated as sanitized")
    entries = [
        Redacted(rule=f"harn:{entry.action}", kind=entry.kind, path=entry.path, count=1)
        for entry in manifest.entries
    ]
    return Redaction(
        mode=cast(Mode, manifest.mode if manifest.mode in MODES else "sanitized"),
        policy="harn",
        placeholder=manifest.placeholder,
        entries=entries,
        totals=dict(Counter(entry.kind for entry in entries)),
    )
