"""What of a run record leaves in which mode, also in its embedded copies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.bundle.harn import HarnDocument, record_bundle
from tests.bundle.harn.records import HOME, record

CANARY = "the customer said so"


def exported(mode: Any, told: dict[str, Any], **more: Any) -> HarnDocument:
    return record_bundle(told, mode, version="1", **more)[0]


def texts(value: Any) -> set[str]:
    """All texts in a value that are not names of fields."""
    if isinstance(value, dict):
        return set().union(*map(texts, value.values()))
    if isinstance(value, list):
        return set().union(*map(texts, value))
    return {value} if isinstance(value, str) else set()


@pytest.mark.parity("harn-bundle", 45)
def test_the_paths_of_pointers_are_replaced_and_told_of_by_their_place() -> None:
    raw = exported("sanitized", record()).raw
    pointer = raw["replay"]["observability"]["transcript_pointers"][0]
    assert (pointer["path"], pointer["location"], pointer["available"]) == (
        "[redacted]",
        "disk",
        True,
    )
    entries = {
        (entry["path"], entry["action"])
        for entry in raw["redaction"]["entries"]
        if entry["class"] == "local_pointer_path"
    }
    below = "observability.transcript_pointers[0].path"
    assert (f"$.replay.{below}", "replaced") in entries
    assert (f"$.replay.run_record.{below}", "replaced") in entries
    assert HOME not in json.dumps(raw)
    kept = exported("local", record()).raw
    seen = kept["replay"]["observability"]["transcript_pointers"][0]
    assert seen["path"] == f"{HOME}/t.jsonl"


@pytest.mark.parity("harn-bundle", 53)
def test_the_embedded_record_is_withheld_like_the_rest() -> None:
    told = record()
    told["stages"][0] |= {"visible_text": CANARY, "private_reasoning": CANARY}
    told["transcript"]["messages"].append({"role": "user", "content": CANARY, "note": CANARY})
    told["metadata"] = {CANARY: CANARY}
    raw = exported("replay_only", told).raw
    inside = raw["replay"]["run_record"]
    assert CANARY not in json.dumps(raw)
    stage = inside["stages"][0]
    assert (stage["visible_text"], stage["private_reasoning"]) == ("[withheld]", "[withheld]")
    assert (inside["id"], stage["node_id"], stage["status"]) == ("run_1", "plan", "completed")
    assert inside["transcript"]["messages"][-1]["role"] == "user"
    assert len(inside["stages"]) == len(told["stages"])


@pytest.mark.parity("harn-bundle", 54)
def test_snapshots_of_workers_are_withheld_like_the_rest(tmp_path: Path) -> None:
    snapshot = {
        "_type": "worker_snapshot",
        "id": "w1",
        "name": "looker",
        "status": "suspended",
        "task": CANARY,
        "config": {"mode": "sub_agent", "spec": {"name": "looker", "task": CANARY}},
        "suspension": {"reason": CANARY, "snapshot_ref": f"{tmp_path}/w1.json"},
        "history": [CANARY],
        "latest_error": CANARY,
        "transcript": {"messages": [{"role": "user", "content": CANARY}]},
    }
    (tmp_path / "w1.json").write_text(json.dumps(snapshot))
    told = record()
    told["child_runs"][1]["snapshot_path"] = f"{tmp_path}/w1.json"
    raw = exported("replay_only", told, snapshots=tmp_path).raw
    (kept,) = raw["replay"]["worker_snapshots"]
    assert (kept["worker_id"], kept["status"]) == ("w1", "suspended")
    inside = kept["value"]
    assert (inside["_type"], inside["id"], inside["status"]) == (
        "worker_snapshot",
        "w1",
        "suspended",
    )
    assert inside["transcript"]["messages"][0] == {"role": "user", "content": "[withheld]"}
    assert not [text for text in texts(raw) if CANARY in text or str(tmp_path) in text]
