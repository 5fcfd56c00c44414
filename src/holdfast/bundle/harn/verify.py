"""What the checks of a run came to: as its record says, or else as its stages show. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

PASSED = {"passed", "success", "succeeded", "ok", "completed", "verified"}
NOT_PASSED = {"failed", "failure", "error", "rejected", "unverified"}


def outcomes(record: dict[str, Any]) -> list[Any]:
    """Those of the observability block where there are any; else one per stage that verifies."""
    seen = record.get("observability")
    if isinstance(seen, dict) and seen.get("verification_outcomes"):
        return list(seen["verification_outcomes"])
    stages = record.get("stages")
    return [
        _outcome(stage)
        for stage in (stages if isinstance(stages, list) else [])
        if isinstance(stage, dict)
        and (stage.get("kind") == "verify" or stage.get("verification") is not None)
    ]


def _outcome(stage: dict[str, Any]) -> dict[str, Any]:
    told = stage.get("verification")
    words = stage.get("visible_text")
    summary = words if told is None else msgspec.json.encode(told, order="sorted").decode()
    return {
        "stage_id": stage.get("id", ""),
        "node_id": stage.get("node_id", ""),
        "status": stage.get("status", ""),
        "passed": _passed(stage, told if isinstance(told, dict) else {}),
        "summary": summary,
    }


def _passed(stage: dict[str, Any], told: dict[str, Any]) -> bool | None:
    for name in ("pass", "success"):
        if isinstance(told.get(name), bool):
            return bool(told[name])
    words = {str(stage.get(name, "")).lower() for name in ("outcome", "status")}
    if words & NOT_PASSED:
        return False
    return True if words & PASSED else None
