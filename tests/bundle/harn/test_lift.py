"""A run record of Harn's becomes a session bundle of Harn's, with all that a bundle says of it."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest

from holdfast.bundle.harn import HarnDocument, record_bundle
from tests.bundle.harn.records import HOME, SECRET, anchor, observability, record, stage, transcript


def bundle(of: dict[str, Any] | None = None, mode: Any = "local", **more: Any) -> HarnDocument:
    return record_bundle(of or record(), mode, **more)[0]


@pytest.mark.parity("harn-bundle", 1, 4)
def test_a_bundle_says_what_it_is_and_who_made_it() -> None:
    raw = bundle().raw
    assert (raw["_type"], raw["schema_version"]) == ("harn_session_bundle", 1)
    assert raw["producer"] == {
        "name": "holdfast",
        "version": version("holdfast"),
        "schema_id": "https://harnlang.com/schemas/session-bundle.v1.json",
    }


@pytest.mark.parity("harn-bundle", 2)
def test_two_exports_have_two_ids_that_rise() -> None:
    ids = [bundle().view.bundle_id for _ in range(20)]
    assert all(id.startswith("bundle_") for id in ids)
    assert len(set(ids)) == 20
    first, last = bundle().view.bundle_id, bundle().view.bundle_id
    assert first[:20] <= last[:20]


@pytest.mark.parity("harn-bundle", 3)
def test_a_bundle_is_sanitized_unless_said_otherwise() -> None:
    document, _ = record_bundle(record())
    assert document.view.redaction.mode == "sanitized"
    assert SECRET not in document.encode().decode()


@pytest.mark.parity("harn-bundle", 5, 6)
def test_the_source_is_the_record_with_its_lineage() -> None:
    assert bundle().raw["source"] == {
        "kind": "run_record",
        "run_record_id": "run_1",
        "workflow_id": "refunds",
        "workflow_name": "Refunds",
        "task": "Refund order 42",
        "status": "completed",
        "started_at": "2026-03-01T10:00:00.000Z",
        "finished_at": "2026-03-01T10:01:00.000Z",
        "persisted_path": f"{HOME}/runs/run_1.json",
        "root_run_id": "run_0",
        "parent_run_id": "run_0",
        "child_run_count": 3,
    }
    alone = bundle({**record(), "child_runs": []})
    assert alone.view.source.child_run_count == 0


@pytest.mark.parity("harn-bundle", 7, 8)
def test_usage_and_models_are_lifted() -> None:
    runtime = bundle().raw["runtime"]
    assert runtime["usage"] == {
        "input_tokens": 100,
        "output_tokens": 20,
        "call_count": 2,
        "total_duration_ms": 900,
        "total_cost": 0.25,
        "models": ["anthropic/claude-x"],
    }
    assert runtime["provider_models"] == ["anthropic/claude-x"]
    without = bundle({**record(), "usage": None}).raw["runtime"]
    assert (without["usage"], without["provider_models"]) == (None, [])


@pytest.mark.parity("harn-bundle", 9)
def test_the_workspace_is_that_of_the_anchor() -> None:
    assert bundle().raw["workspace"] == {
        "primary": HOME,
        "additional_roots": [
            {"path": "/home/ann/lib", "mount_mode": "extend", "mounted_at": "2026-03-01T10:00:00Z"},
            {
                "path": "/home/ann/ref",
                "mount_mode": "read_only",
                "mounted_at": "2026-03-01T10:00:00Z",
            },
        ],
        "anchored_at": "2026-03-01T10:00:00Z",
        "policy": "safe_identity_only",
    }


@pytest.mark.parity("harn-bundle", 10, 11)
@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {},
        {"workspace_anchor": {**anchor(), "primary": None}},
        {"workspace_anchor": {"primary": HOME}},
        {"workspace_anchor": {**anchor(), "additional_roots": "none"}},
        {"workspace_anchor": "here"},
    ],
)
def test_without_a_whole_anchor_there_is_no_workspace(metadata: Any) -> None:
    told = {**record(), "transcript": transcript(metadata=metadata)}
    raw = bundle(told).raw
    assert raw["workspace"] is None


@pytest.mark.parity("harn-bundle", 12, 13)
def test_sections_are_the_runs_and_those_of_stages_that_have_one() -> None:
    sections = bundle().view.transcript.sections
    assert [(s.id, s.label, s.scope, s.location) for s in sections] == [
        ("run", "Run transcript", "run", "$.transcript"),
        ("stage_0", "Stage plan", "stage", "$.stages[0].transcript"),
        ("stage_2", "Stage close", "stage", "$.stages[2].transcript"),
    ]
    assert sections[2].messages == [{"role": "user", "content": "close it"}]


@pytest.mark.parity("harn-bundle", 14)
def test_parts_of_a_transcript_with_other_types_are_empty() -> None:
    odd = {"messages": "none", "events": {}, "assets": 3, "summary": ["x"], "metadata": "m"}
    section = bundle({**record(), "transcript": odd}).raw["transcript"]["sections"][0]
    assert section["messages"] == section["events"] == section["assets"] == []
    assert (section["summary"], section["metadata"]) == (None, {})


@pytest.mark.parity("harn-bundle", 15, 16, 17)
def test_tool_schemas_are_found_by_either_word_and_numbered_through() -> None:
    schemas = bundle().raw["tools"]["schemas"]
    assert [(s["source"], s["index"]) for s in schemas] == [
        ("run.transcript", 0),
        ("stage.plan.transcript", 1),
        ("stage.check.metadata", 2),
    ]
    assert schemas[0]["value"]["tools"] == [{"name": "find"}]
    assert schemas[2]["value"] == [{"name": "a"}]
    less = record()
    del less["stages"][1]["metadata"]["tool_schemas"]
    assert bundle(less).raw["tools"]["schemas"][2]["value"] == [{"name": "b"}]


@pytest.mark.parity("harn-bundle", 18)
def test_calls_have_all_their_fields() -> None:
    assert bundle().raw["tools"]["calls"] == record()["tool_recordings"]


@pytest.mark.parity("harn-bundle", 19, 20, 21, 22, 23, 24)
def test_permissions_are_questions_then_the_runs_then_the_stages() -> None:
    permissions = bundle().raw["permissions"]
    told = [(p["kind"], p["source"], p["request_id"], p["agent"]) for p in permissions]
    assert told == [
        ("hitl_question", "run.hitl_questions", "q1", None),
        ("hitl_question", "run.hitl_questions", "q2", "main"),
        ("approval_requested", "run.transcript", "r1", "main"),
        ("hitl_asked", "run.transcript", "r2", None),
        ("permission_asked", "run.transcript", "new", "agent-7"),
        ("PermissionDeny", "stage.plan.transcript", "r9", "planner"),
        ("approval_policy", "stage.check.worker.audit", None, "helper"),
    ]
    assert permissions[0]["payload"] == record()["hitl_questions"][0]
    assert permissions[2]["payload"] == {
        "type": "approval_requested",
        "id": "r1",
        "agent": "main",
    }
    assert permissions[4]["payload"] == {
        "request_id": "new",
        "requester": {"agent_id": "agent-7"},
    }
    assert permissions[6]["payload"] == {"mode": "ask"}


@pytest.mark.parity("harn-bundle", 25)
def test_the_record_is_in_it_whole() -> None:
    assert bundle().raw["replay"]["run_record"] == record()


@pytest.mark.parity("harn-bundle", 26)
def test_observability_is_there_only_where_the_record_has_it() -> None:
    seen = bundle().raw["replay"]["observability"]
    assert {name: seen[name] for name in ("schema_version", "research_fact_count")} == {
        "schema_version": 4,
        "research_fact_count": 2,
    }
    assert "observability" not in bundle({**record(), "observability": None}).raw["replay"]


@pytest.mark.parity("harn-bundle", 27)
@pytest.mark.parametrize(
    ("verification", "words", "passed"),
    [
        ({"pass": False}, {}, False),
        ({"success": True}, {"outcome": "failed"}, True),
        (None, {"outcome": "success"}, True),
        (None, {"status": "failed", "outcome": ""}, False),
        (None, {"status": "skipped", "outcome": ""}, None),
    ],
)
def test_outcomes_are_derived_from_the_stages_that_verify(
    verification: Any, words: dict[str, str], passed: bool | None
) -> None:
    checked = stage(0, "check", kind="verify", verification=verification, visible_text="seen")
    other = stage(1, "work")
    told = {**record(), "observability": None, "stages": [{**checked, **words}, other]}
    (outcome,) = bundle(told).view.replay.verification_outcomes
    assert (outcome.stage_id, outcome.node_id, outcome.passed) == ("stage_0", "check", passed)
    compact = '{"pass":false}' if verification == {"pass": False} else '{"success":true}'
    assert outcome.summary == ("seen" if verification is None else compact)


def test_outcomes_that_were_observed_win() -> None:
    outcomes = bundle().raw["replay"]["verification_outcomes"]
    assert [o["stage_id"] for o in outcomes] == ["stage_1"]
    assert outcomes[0]["summary"] is None


@pytest.mark.parity("harn-bundle", 28)
def test_deterministic_events_are_transitions_then_checkpoints() -> None:
    events = bundle().view.replay.deterministic_events
    assert [(e.source, e.index, e.value["id"]) for e in events] == [
        ("run.transitions", 0, "t1"),
        ("run.transitions", 1, "t2"),
        ("run.checkpoints", 0, "c1"),
    ]


@pytest.mark.parity("harn-bundle", 29, 30)
def test_pointers_lead_to_transcripts_and_to_workers_sessions() -> None:
    assert bundle().raw["replay"]["event_log_pointers"] == [
        {
            "kind": "transcript",
            "topic": None,
            "path": f"{HOME}/t.jsonl",
            "location": "disk",
            "available": True,
        },
        {
            "kind": "agent_events",
            "topic": "observability.agent_events.child/1",
            "path": f"{HOME}/.harn/workers/w1.json",
            "location": "worker.w1.session",
            "available": True,
        },
        {
            "kind": "agent_events",
            "topic": "observability.agent_events.child-2",
            "path": None,
            "location": "worker.w2.session",
            "available": False,
        },
    ]


@pytest.mark.parity("harn-bundle", 31)
def test_attachments_come_along_when_asked_for() -> None:
    assert bundle().raw["attachments"] == []
    (attachment,) = bundle(attachments=True).raw["attachments"]
    assert attachment == {
        "id": "a1",
        "kind": "report",
        "title": "Report",
        "stage": "plan",
        "text": "the whole report",
        "data": None,
        "metadata": {"pages": 2},
    }


@pytest.mark.parametrize("mode", ["sanitized", "replay_only"])
def test_attachments_that_were_not_asked_for_are_not_in_the_record_either(mode: str) -> None:
    assert "the whole report" not in bundle(mode=mode).encode().decode()


def test_spans_of_an_older_record_name_their_parent_as_now() -> None:
    (span,) = bundle().raw["replay"]["trace_spans"]
    assert (span["span_id"], span["parent_span_id"], "parent_id" in span) == (1, 0, False)
    newer = {**record(), "trace_spans": [], "evidence": {"trace_spans": [{"span_id": "s"}]}}
    assert bundle(newer).raw["replay"]["trace_spans"][0]["span_id"] == "s"


def test_local_paths_leave_in_local_mode_alone() -> None:
    assert HOME in bundle().encode().decode()
    for mode in ("sanitized", "replay_only"):
        text = bundle(mode=mode).encode().decode()
        assert "/home/ann" not in text
    manifest = bundle(mode="sanitized").raw["redaction"]
    classes = {entry["path"]: entry["class"] for entry in manifest["entries"]}
    assert classes["$.replay.event_log_pointers[0].path"] == "local_pointer_path"
    assert classes["$.source.persisted_path"]


def test_nothing_that_was_said_is_in_a_bundle_for_replays() -> None:
    canaries: list[str] = []

    def planted(value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return {name: planted(inner, f"{path}.{name}") for name, inner in value.items()}
        if isinstance(value, list):
            return [planted(inner, f"{path}[]") for inner in value]
        if isinstance(value, str) and path.rpartition(".")[2] not in STRUCTURE:
            canaries.append(f"canary number {len(canaries)}")
            return canaries[-1]
        return value

    told = planted({**record(), "env": {"a canary key": "x"}, "observability": observability()}, "")
    text = bundle(told, mode="replay_only", attachments=True).encode().decode()
    assert len(canaries) > 40
    assert "canary" not in text


# Ids, kinds and times are what a replay goes by.
STRUCTURE = {
    *("id", "_type", "type", "kind", "status", "role", "workflow_id", "node_id", "worker_id"),
    *("request_id", "session_id", "agent_id", "stage_id", "source_run_id", "tool_call_id"),
    *("tool_use_id", "args_hash", "trace_id", "parent_run_id", "root_run_id"),
    *("started_at", "finished_at", "created_at", "mode", "mount_mode", "expected_status"),
}
