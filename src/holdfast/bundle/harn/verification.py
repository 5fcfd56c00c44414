"""Returns the verification outcomes of a run, from its record or, if it has none, from its stages.
Pure.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..json_values import JsonObject, as_dict, as_list

PASSED = {"passed", "success", "succeeded", "ok", "completed", "verified"}
NOT_PASSED = {"failed", "failure", "error", "rejected", "unverified"}


def outcomes(record: JsonObject) -> list[Any]:
    """Return the outcomes in the observability data if there are any; else one per verifying
    stage.
    """
    if seen := as_dict(record.get("observability")).get("verification_outcomes"):
        return list(seen)
    stages = [as_dict(stage) for stage in as_list(record.get("stages"))]
    return [
        _outcome(stage)
        for stage in stages
        if stage.get("kind") == "verify" or stage.get("verification") is not None
    ]


def _outcome(stage: JsonObject) -> JsonObject:
    found = stage.get("verification")
    text = stage.get("visible_text")
    return {
        "stage_id": stage.get("id", ""),
        "node_id": stage.get("node_id", ""),
        "status": stage.get("status", ""),
        "passed": _passed(stage, as_dict(found)),
        "summary": text if found is None else msgspec.json.encode(found, order="sorted").decode(),
    }


def _passed(stage: JsonObject, found: JsonObject) -> bool | None:
    for name in ("pass", "success"):
        if isinstance(found.get(name), bool):
            return bool(found[name])
    words = {str(stage.get(name, "")).lower() for name in ("outcome", "status")}
    if words & NOT_PASSED:
        return False
    return True if words & PASSED else None
