"""From Harn to Holdfast: a session bundle, a run record or a worker's snapshot as a bundle of ours.

People's and models' messages, tool calls and their results become events; every section beyond the
first and every worker's snapshot a thread of its own. The document itself stands beside the log
as a blob, byte for byte, so that what has no counterpart is not lost.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path
from typing import Any, cast

import msgspec

from ...errors import InvalidValue
from ...log import events as ev
from ...log.codec import LIMITS, check_name
from ...log.events import Scope, ids
from ..archive import Bundle
from ..conversion_loss import Losses, LossReport
from ..foreign_bundle import Packed, packed
from ..foreign_log import Telling, as_name
from ..redaction.manifest import Mode, Redacted, Redaction
from .check import INSIDE, LARGEST, check_size, read_document
from .faults import fault, refused
from .lift import lifted
from .messages import KEPT, Messages, Stream
from .names import from_rfc3339, rfc3339, sanitised
from .record import run_record
from .shapes import CLOSED, LIVENESS, MODES, SUSPENDED, HarnDocument
from .stream import AgentEvent
from .workers import checkpoint

SOURCE, TARGET = "harn_session_bundle 1", "holdfast_bundle 1"
IMPORTED = "harn.imported"
TITLE = 200
# A run that is at none of these goes on.
OVER = {"completed", "failed", "cancelled", "canceled", "error", "aborted", "success", "done"}

HarnSource = str | os.PathLike[str] | bytes | dict[str, Any] | HarnDocument


async def read_harn(
    source: HarnSource,
    *,
    session: str | None = None,
    tenant: str = "main",
    allow_secrets: bool = False,
) -> tuple[Bundle, LossReport]:
    """The bundle of a path, of bytes or of a tree, and what could not be carried over.

    `InvalidBundle` with every fault for what cannot be read. The session has the id of the run
    unless another is given. What Harn calls suspended can be continued; what it redacted or
    withheld keeps that mark, and with it the limits of such a bundle.
    """
    losses = Losses()
    document = await asyncio.to_thread(document_of, source, allow_secrets=allow_secrets)
    what = await asyncio.to_thread(converted, document, losses, session, tenant)
    return await packed(what), losses.report(SOURCE, TARGET)


def document_of(source: HarnSource, *, allow_secrets: bool = False) -> HarnDocument:
    """The document of a source; a run record or a worker's snapshot becomes one. Blocks."""
    if isinstance(source, HarnDocument):
        return source
    if isinstance(source, (str, os.PathLike)):
        source = _file(Path(source))
    if isinstance(source, bytes):
        source = _tree(source) or source
    kind = source.get("_type") if isinstance(source, dict) else None
    if isinstance(source, dict) and kind in ("run_record", "worker_snapshot"):
        check_size(source, "$", INSIDE)
        now = rfc3339(0)
        record = source if kind == "run_record" else checkpoint(source, "", now=now)
        made = {"id": f"bundle_{sanitised(str(record.get('id', '')))}", "at": now}
        at = record.get("finished_at") or record.get("started_at") or made["at"]
        snapshots = [] if kind == "run_record" else [_own_snapshot(source)]
        tree = lifted(record, version="", created_at=at, bundle_id=made["id"], snapshots=snapshots)
        tree["redaction"] = {
            **{"mode": "local", "policy": "none", "placeholder": "", "entries": []},
            "unsafe_secret_markers_rejected": False,
        }
        for name in ("workflow_id", "task", "status"):
            tree["source"].setdefault(name, "")
        source = tree
    return read_document(source, allow_secrets=allow_secrets)


def _own_snapshot(value: dict[str, Any]) -> dict[str, Any]:
    return {
        "worker_id": value["id"],
        "worker_name": value.get("name", ""),
        "status": value["status"],
        "snapshot_ref": "",
        "source_path": None,
        "value": value,
    }


def _file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise refused([fault("decode", "$", f"cannot be read ({reason})")]) from error


def _tree(data: bytes) -> dict[str, Any] | None:
    """A run record or a snapshot in bytes; None for what `read_document` is to look at."""
    if len(data) > LARGEST or not any(n in data for n in (b'"run_record"', b'"worker_snapshot"')):
        return None
    try:
        found = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return found if found.get("_type") in ("run_record", "worker_snapshot") else None


def converted(document: HarnDocument, losses: Losses, session: str | None, tenant: str) -> Packed:
    view = document.view
    if view.replay.run_record is not None:
        run_record(document)  # refuses one that is not what the bundle says it is
    name = session or view.source.run_record_id
    try:
        check_name("session", name)
    except InvalidValue as error:
        problem = f"{error.problem}; name the session yourself"
        raise refused([fault("decode", "$.source.run_record_id", problem)]) from error
    text = msgspec.json.encode(document.raw)
    main = Telling("main", "harn:", at=from_rfc3339(view.source.started_at) or 0)
    _begin(main, document, text)
    logs = [main, *_sections(main, document, losses), *_workers(document, losses)]
    _end(main, document, losses)
    return Packed(
        scope=Scope(tenant, name),
        logs=tuple(logs),
        blobs=(text,),
        redaction=_redaction(document, losses),
        metadata={"harn": _facts(document)},
    )


def _facts(document: HarnDocument) -> dict[str, Any]:
    view = document.view
    return {
        "bundle_id": view.bundle_id,
        "schema_version": view.schema_version,
        "kind": view.source.kind,
        "status": view.source.status,
        "producer": msgspec.to_builtins(view.producer),
    }


def _begin(log: Telling, document: HarnDocument, text: bytes) -> None:
    view = document.view
    task = " ".join(view.source.task.split())[:TITLE]
    workspace = view.workspace.primary if view.workspace else None
    created = ev.SessionCreated(title=task or None, workspace=as_name(workspace))
    log.add("session.created", created)
    digest = hashlib.sha256(text).hexdigest()
    about = {"type": "blob", "sha256": digest, "size": len(text), "media_type": "application/json"}
    log.add(IMPORTED, {**_facts(document), "document": about})


def _sections(main: Telling, document: HarnDocument, losses: Losses) -> list[Telling]:
    """Tell the first section in the main log, and the others each in one of its own."""
    view, more = document.view, list[Telling]()
    models = view.runtime.provider_models
    model = models[0] if len(models) == 1 else None
    for number, section in enumerate(view.transcript.sections):
        path = f"$.transcript.sections[{number}]"
        log = main if number == 0 else _thread(f"section:{number}:{section.id}", section.label)
        if log is not main:
            more.append(log)
        if view.source.kind == "event_log_session" and section.id == "agent_events":
            _stream(log, section.events, losses, path, closed=_closed(document))
            continue
        told = Messages(log, losses, path, model)
        told.tell(section.messages, None)
        if number == 0:
            told.recorded([msgspec.to_builtins(call) for call in view.tools.calls])
        for name in ("events", "assets", "metadata", "summary"):
            if getattr(section, name):
                why = "it has no counterpart"
                losses.add(f"{path}.{name}", "what a section has beside messages", why, kept=KEPT)
    _beside(document, losses)
    return more


def _beside(document: HarnDocument, losses: Losses) -> None:
    view = document.view
    replay = view.replay
    for path, there in (
        ("$.runtime.usage", view.runtime.usage),
        ("$.workspace.additional_roots", view.workspace and view.workspace.additional_roots),
        ("$.tools.schemas", view.tools.schemas),
        ("$.permissions", view.permissions),
        ("$.replay.replay_fixture", replay.replay_fixture),
        ("$.replay.run_record", replay.run_record),
        ("$.replay.observability", replay.observability),
        ("$.replay.transitions", replay.transitions),
        ("$.replay.checkpoints", replay.checkpoints),
        ("$.replay.trace_spans", replay.trace_spans),
        ("$.attachments", view.attachments),
    ):
        if there:
            losses.add(path, "what a bundle has beside messages", "it is no event", kept=KEPT)


def _stream(log: Telling, events: list[Any], losses: Losses, path: str, *, closed: bool) -> None:
    try:
        read = msgspec.convert(events, list[AgentEvent])
    except msgspec.ValidationError as error:
        raise refused([fault("decode", f"{path}.events", str(error))]) from error
    told = Stream(log, losses, path)
    told.tell(read)
    for id in told.asked if closed else ():
        settled = ev.PendingSettled(id=id, outcome="abandoned", reason="closed")
        log.add("pending.settled", settled, id=ids.settle_id(id))


def _thread(name: str, title: str, agent: str | None = None) -> Telling:
    whole = name if len(name.encode()) <= LIMITS.name_bytes // 2 else name[:40]
    log = Telling("".join(c if c.isprintable() else "_" for c in whole), "harn:")
    log.add("thread.created", ev.ThreadCreated(parent="main", title=title, agent=as_name(agent)))
    return log


def _workers(document: HarnDocument, losses: Losses) -> list[Telling]:
    """Each worker's snapshot as a thread, with what was said in it."""
    logs = []
    sections = {section.id for section in document.view.transcript.sections}
    snapshots = (document.raw.get("replay") or {}).get("worker_snapshots") or []
    for number, snapshot in enumerate(snapshots):
        path, value = f"$.replay.worker_snapshots[{number}]", snapshot.get("value")
        if snapshot.get("worker_id") in sections:
            what, why = "a worker's snapshot", "a section tells the same conversation"
            losses.add(path, what, why, kept=KEPT)
            continue
        task = value.get("task") if isinstance(value, dict) else None
        name = snapshot.get("worker_name") or None
        title = task if isinstance(task, str) else name or "worker"
        log = _thread(f"worker:{number}:{snapshot.get('worker_id', '')}", title[:TITLE], name)
        transcript = value.get("transcript") if isinstance(value, dict) else None
        messages = transcript.get("messages") if isinstance(transcript, dict) else None
        if isinstance(messages, list):
            Messages(log, losses, f"{path}.value.transcript", None).tell(messages, None)
        else:
            losses.add(path, "a worker's snapshot", "it has no messages", kept=KEPT)
        log.left_open()
        logs.append(log)
    return logs


def _closed(document: HarnDocument) -> bool:
    view = document.view
    if (tag := view.metadata.get(LIVENESS)) in (SUSPENDED, CLOSED):
        return bool(tag == CLOSED)
    if view.source.status == SUSPENDED:
        return False
    return view.source.finished_at is not None or view.source.status.lower() in OVER


def _end(log: Telling, document: HarnDocument, losses: Losses) -> None:
    source = document.view.source
    if not _closed(document):
        log.left_open()
        return
    for call in log.abandon():
        losses.add("$.transcript", f"the result of call {call!r}", "the document has none")
    at = from_rfc3339(source.finished_at)
    log.add("session.expired", ev.SessionExpired(reason=source.status or None), at=at)


def _redaction(document: HarnDocument, losses: Losses) -> Redaction:
    """What Harn did, in our words; a mode that is not known counts as sanitized."""
    told = document.view.redaction
    if told.mode in ("", "local"):
        return Redaction()
    if told.mode not in MODES:
        losses.add("$.redaction.mode", "a mode", "it is unknown, and taken for sanitized")
    mode = cast(Mode, told.mode if told.mode in MODES else "sanitized")
    entries = [
        Redacted(rule=f"harn:{entry.action}", kind=entry.kind, path=entry.path, count=1)
        for entry in told.entries
    ]
    totals: dict[str, int] = {}
    for entry in entries:
        totals[entry.kind] = totals.get(entry.kind, 0) + 1
    return Redaction(
        mode=mode, policy="harn", placeholder=told.placeholder, entries=entries, totals=totals
    )
