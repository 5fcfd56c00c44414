"""Builds Harn session bundles from Harn's run records and worker snapshots, in any mode. Blocking:
the snapshots that a record refers to are read from disk.
"""

from __future__ import annotations

from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import msgspec

from ...environment import wall_clock
from ..conversion_loss import Losses, LossReport
from ..faults import invalid
from ..json_values import JsonObject
from ..redaction.scrub import Mode, ScrubConfig
from ..timestamps import rfc3339
from .check import INNER_DEPTH, check_tree
from .format import HarnDocument
from .modes import in_mode
from .record_tree import record_tree
from .snapshots import checkpoint_record, embedded, load

SOURCE, TARGET = "harn run_record", "harn_session_bundle 1"


def record_bundle(
    record: JsonObject,
    mode: Mode = "sanitized",
    *,
    snapshots: Path | None = None,
    attachments: bool = False,
    scrub: ScrubConfig | None = None,
    bundle_id: str | None = None,
    created_at: str | None = None,
    version: str | None = None,
) -> tuple[HarnDocument, LossReport]:
    """Build the bundle of a run record; also returns what could not be included.

    Snapshots that the record refers to are read from the folder `snapshots`; without this folder
    they are omitted. Each export has a new id by default. Raises `InvalidBundle` if a part of the
    record does not have the type that a bundle needs.

    See [other formats](../interchange.md).
    """
    losses = Losses()
    check_tree(record, "$.replay.run_record", INNER_DEPTH)
    found: list[JsonObject] = []
    if snapshots is None:
        _not_read(record, losses)
    else:
        found = embedded(record, snapshots, losses)
    tree = record_tree(
        record,
        version=version or installed("holdfast"),
        created_at=created_at or rfc3339(wall_clock()),
        bundle_id=bundle_id,
        attachments=attachments,
        snapshots=found,
    )
    try:
        document = HarnDocument.of(in_mode(tree, mode, scrub, attachments=attachments))
    except msgspec.ValidationError as error:
        raise invalid("decode", "$", str(error)) from error
    return document, losses.report(SOURCE, TARGET)


def _not_read(record: JsonObject, losses: Losses) -> None:
    for number, child in enumerate(record.get("child_runs") or []):
        if isinstance(child, dict) and child.get("snapshot_path"):
            why = "no folder of snapshots was given"
            losses.add(f"$.child_runs[{number}].snapshot_path", "a worker's snapshot", why)


def checkpoint_bundle(
    path: Path, mode: Mode = "local", **options: Any
) -> tuple[HarnDocument, LossReport]:
    """Build the bundle of a suspended worker's snapshot. The default mode is `local`, because a
    worker cannot continue correctly with redacted content. `options` are passed to `record_bundle`.

    See [other formats](../interchange.md).
    """
    now = options.get("created_at") or rfc3339(wall_clock())
    record = checkpoint_record(load(path), str(path), now=now)
    return record_bundle(record, mode, **{"snapshots": path.parent, **options})
