"""Run records and worker snapshots of Harn's as session bundles of Harn's, in any mode. Blocks:
the snapshots that a record names are read from disk."""

from __future__ import annotations

from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import msgspec

from ...stores.port import wall_clock
from ..conversion_loss import Losses, LossReport
from ..redaction.scrub import Mode, ScrubConfig
from .check import INSIDE, check_size
from .faults import fault, refused
from .lift import lifted
from .modes import in_mode
from .names import rfc3339
from .shapes import HarnDocument
from .workers import checkpoint, embedded, load

SOURCE, TARGET = "harn run_record", "harn_session_bundle 1"


def record_bundle(
    record: dict[str, Any],
    mode: Mode = "sanitized",
    *,
    snapshots: Path | None = None,
    attachments: bool = False,
    scrub: ScrubConfig | None = None,
    bundle_id: str | None = None,
    created_at: str | None = None,
    version: str | None = None,
) -> tuple[HarnDocument, LossReport]:
    """The bundle of a run record, and what could not be taken into it.

    Snapshots that the record names are read below the folder `snapshots`, and not at all without
    it. Each export has an id of its own unless one is given. `InvalidBundle` where a part of the
    record has another type than a bundle's.
    """
    losses = Losses()
    check_size(record, "$.replay.run_record", INSIDE)
    if snapshots is None:
        found: list[dict[str, Any]] = []
        _unread(record, losses)
    else:
        found = embedded(record, snapshots, losses)
    tree = lifted(
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
        raise refused([fault("decode", "$", str(error))]) from error
    return document, losses.report(SOURCE, TARGET)


def _unread(record: dict[str, Any], losses: Losses) -> None:
    for number, child in enumerate(record.get("child_runs") or []):
        if isinstance(child, dict) and child.get("snapshot_path"):
            why = "no folder to read snapshots from was given"
            losses.add(f"$.child_runs[{number}].snapshot_path", "a worker's snapshot", why)


def checkpoint_bundle(
    path: Path, mode: Mode = "local", **options: Any
) -> tuple[HarnDocument, LossReport]:
    """The bundle of a suspended worker's snapshot. Local by default: a worker cannot go on
    faithfully from what was redacted. `options` as for `record_bundle`."""
    value = load(path)
    now = options.get("created_at") or rfc3339(wall_clock())
    record = checkpoint(value, str(path), now=now)
    return record_bundle(record, mode, **{"snapshots": path.parent, **options})
