"""A run record of Harn's with something in every place, made anew at each call."""

from __future__ import annotations

from typing import Any

SECRET = "sk-proj-4f9Qw82LmZx71Tn0Vb3Kd6"  # has the shape of a key, and opens nothing
HOME = "/home/ann/shop"


def stage(number: int, node: str, **more: Any) -> dict[str, Any]:
    return {
        "id": f"stage_{number}",
        "node_id": node,
        "kind": "stage",
        "status": "completed",
        "outcome": "success",
        "started_at": "2026-03-01T10:00:01.000Z",
        "finished_at": "2026-03-01T10:00:09.000Z",
        "metadata": {},
        **more,
    }


def transcript(*messages: Any, events: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "_type": "transcript",
        "messages": list(messages),
        "events": events or [],
        "assets": [],
        "summary": None,
        "metadata": {},
        **more,
    }


def anchor() -> dict[str, Any]:
    return {
        "primary": HOME,
        "additional_roots": [
            {"path": "/home/ann/lib", "mount_mode": "extend", "mounted_at": "2026-03-01T10:00:00Z"},
            {"path": "/home/ann/ref", "mounted_at": "2026-03-01T10:00:00Z"},
        ],
        "anchored_at": "2026-03-01T10:00:00Z",
    }


def observability() -> dict[str, Any]:
    return {
        "schema_version": 4,
        "planner_rounds": [],
        "research_fact_count": 2,
        "worker_lineage": [
            {
                "worker_id": "w1",
                "worker_name": "helper",
                "task": "look",
                "status": "suspended",
                "session_id": "child/1",
                "snapshot_path": f"{HOME}/.harn/workers/w1.json",
            },
            {"worker_id": "w2", "worker_name": "other", "session_id": "child-2"},
            {"worker_id": "w3", "worker_name": "no session"},
        ],
        "verification_outcomes": [
            {"stage_id": "stage_1", "node_id": "check", "status": "completed", "passed": True}
        ],
        "transcript_pointers": [
            {
                "id": "p1",
                "label": "Main",
                "kind": "transcript",
                "location": "disk",
                "path": f"{HOME}/t.jsonl",
                "available": True,
            }
        ],
    }


def record() -> dict[str, Any]:
    return {
        "_type": "run_record",
        "id": "run_1",
        "workflow_id": "refunds",
        "workflow_name": "Refunds",
        "task": "Refund order 42",
        "status": "completed",
        "started_at": "2026-03-01T10:00:00.000Z",
        "finished_at": "2026-03-01T10:01:00.000Z",
        "persisted_path": f"{HOME}/runs/run_1.json",
        "root_run_id": "run_0",
        "parent_run_id": "run_0",
        "stages": [
            stage(
                0,
                "plan",
                transcript=transcript(
                    {"role": "user", "content": "plan it"},
                    events=[
                        {"kind": "tool_schema", "name": "refund"},
                        {"type": "PermissionDeny", "request_id": "r9", "agent": "planner"},
                    ],
                ),
            ),
            stage(
                1,
                "check",
                kind="verify",
                verification={"pass": True, "score": 3},
                metadata={
                    "tool_schemas": [{"name": "a"}],
                    "tools": [{"name": "b"}],
                    "worker": {"name": "helper", "audit": {"approval_policy": {"mode": "ask"}}},
                },
            ),
            stage(2, "close", transcript=transcript({"role": "user", "content": "close it"})),
        ],
        "transitions": [
            {"id": "t1", "to_node_id": "plan", "timestamp": "2026-03-01T10:00:00Z"},
            {"id": "t2", "from_node_id": "plan", "to_node_id": "check", "timestamp": ""},
        ],
        "checkpoints": [{"id": "c1", "ready_nodes": ["check"], "persisted_at": "x", "reason": "y"}],
        "pending_nodes": [],
        "completed_nodes": ["plan"],
        "child_runs": [{"worker_id": f"w{n}", "worker_name": "helper"} for n in range(3)],
        "artifacts": [
            {
                "_type": "artifact",
                "id": "a1",
                "kind": "report",
                "title": "Report",
                "text": "the whole report",
                "stage": "plan",
                "metadata": {"pages": 2},
            }
        ],
        "transcript": transcript(
            {"role": "user", "content": f"Refund 42 with {SECRET}"},
            {
                "role": "assistant",
                "content": "I look it up.",
                "tool_calls": [{"id": "call_1", "name": "find", "arguments": {"order": 42}}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "42: 10 EUR"},
            {"role": "assistant", "content": "Done."},
            events=[
                {"type": "tool_schemas", "tools": [{"name": "find"}]},
                {"type": "approval_requested", "id": "r1", "agent": "main"},
                {"type": "hitl_asked", "request_id": "r2"},
                {"type": "said_hitl_later", "request_id": "r3"},
                {
                    "type": "permission_asked",
                    "request_id": "old",
                    "metadata": {
                        "activity": {"request_id": "new", "requester": {"agent_id": "agent-7"}}
                    },
                },
            ],
            metadata={"workspace_anchor": anchor()},
        ),
        "usage": {
            "input_tokens": 100,
            "output_tokens": 20,
            "call_count": 2,
            "total_duration_ms": 900,
            "total_cost": 0.25,
            "models": ["anthropic/claude-x"],
            "cost_usd": 0.25,
        },
        "replay_fixture": {
            "_type": "replay_fixture",
            "id": "fixture_run_1",
            "source_run_id": "run_1",
            "workflow_id": "refunds",
            "created_at": "2026-03-01T10:01:00.000Z",
            "expected_status": "completed",
            "stage_assertions": [
                {"node_id": "plan", "visible_text_contains": "the beginning of what was said"}
            ],
        },
        "observability": observability(),
        "trace_spans": [
            {"trace_id": "tr", "span_id": 1, "parent_id": 0, "kind": "llm", "name": "call"}
        ],
        "tool_recordings": [
            {
                "tool_name": "find",
                "tool_use_id": "call_1",
                "args_hash": "00ff00ff00ff00ff",
                "result": "42: 10 EUR",
                "is_rejected": False,
                "duration_ms": 12,
                "iteration": 1,
                "timestamp": "2026-03-01T10:00:05Z",
            }
        ],
        "hitl_questions": [
            {
                "request_id": "q1",
                "prompt": "Sure?",
                "agent": "",
                "asked_at": "2026-03-01T10:00:06Z",
            },
            {"request_id": "q2", "prompt": "Really?", "agent": "main", "asked_at": ""},
        ],
        "metadata": {},
    }
