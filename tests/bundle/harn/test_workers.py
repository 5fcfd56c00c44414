"""Snapshots of workers: into a bundle, as a bundle, and back into files that a host resumes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.bundle.harn import (
    HarnDocument,
    checkpoint_bundle,
    materialise,
    read_document,
    record_bundle,
    run_record,
    with_paths,
)
from holdfast.errors import InvalidBundle, NotContinuable
from tests.bundle.harn.records import record


def snapshot(**changes: Any) -> dict[str, Any]:
    return {
        "_type": "worker_snapshot",
        "id": "w1",
        "name": "helper",
        "task": "look it up",
        "status": "suspended",
        "created_at": "2026-03-01T09:59:00Z",
        "started_at": "2026-03-01T10:00:00Z",
        "finished_at": "2026-03-01T10:00:40Z",
        "config": {"mode": "sub_agent", "spec": {"session_id": "s1", "parent_session_id": "s0"}},
        "audit": {"session_id": "other", "mutation_scope": "read_only"},
        "transcript": {"messages": [{"role": "user", "content": "look"}]},
        "snapshot_path": "/old/w1.json",
        "suspension": {
            "reason": "asked",
            "suspended_at": "2026-03-01T10:00:30Z",
            "snapshot_ref": "ref-1",
        },
        **changes,
    }


def put(path: Path, value: Any) -> str:
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return str(path)


def with_children(*paths: str, lineage: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        **record(),
        "child_runs": [{"worker_id": "", "worker_name": "", "snapshot_path": p} for p in paths],
        "observability": {
            "worker_lineage": [
                {"worker_id": "l", "worker_name": "lin", "status": "done", "snapshot_path": p}
                for p in lineage
            ]
        },
    }


def embedding(*snapshots: tuple[str, Any], mode: str = "local") -> HarnDocument:
    document, _ = record_bundle(record(), "local")
    raw = dict(document.raw)
    raw["replay"] = {
        **raw["replay"],
        "worker_snapshots": [{"worker_id": id, "value": value} for id, value in snapshots],
    }
    raw["redaction"] = {**raw["redaction"], "mode": mode}
    return read_document(raw, allow_secrets=True)


@pytest.mark.parity("harn-bundle", 81, 83)
def test_each_file_is_embedded_once_with_what_record_and_file_say(tmp_path: Path) -> None:
    one = put(tmp_path / "1.json", snapshot())
    two = put(tmp_path / "2.json", snapshot(id="w2", name=None, worker="w", suspension=None))
    three = put(tmp_path / "3.json", {"_type": "anything"})
    told = with_children(one, two, one, lineage=(two, three))
    document, report = record_bundle(told, "local", snapshots=tmp_path)
    found = document.raw["replay"]["worker_snapshots"]
    facts = ("worker_id", "worker_name", "status", "snapshot_ref", "source_path")
    assert [tuple(s[name] for name in facts) for s in found] == [
        ("w1", "helper", "suspended", "ref-1", one),
        ("w2", "w", "suspended", "/old/w1.json", two),
        ("l", "lin", "done", three, three),
    ]
    assert found[0]["value"] == snapshot()
    assert not report


@pytest.mark.parity("harn-bundle", 82)
def test_a_snapshot_that_cannot_be_had_is_reported(tmp_path: Path) -> None:
    inside = tmp_path / "workers"
    inside.mkdir()
    put(tmp_path / "secret.json", snapshot())
    (inside / "link.json").symlink_to(tmp_path / "secret.json")
    paths = [
        str(inside / "absent.json"),
        put(inside / "bad.json", "{"),
        put(inside / "list.json", [1]),
        put(inside / "deep.json", "[" * 5000 + "]" * 5000),
        str(tmp_path / "secret.json"),
        str(inside / "link.json"),
        str(inside),
    ]
    document, report = record_bundle(with_children(*paths), "local", snapshots=inside)
    assert "worker_snapshots" not in document.raw["replay"]
    assert sum(loss.count for loss in report) == len(paths)
    assert all(loss.what == "a worker's snapshot" for loss in report)
    assert any("outside" in loss.why for loss in report)


def test_without_a_folder_no_file_is_read_and_that_is_reported(tmp_path: Path) -> None:
    path = put(tmp_path / "1.json", snapshot())
    document, report = record_bundle(with_children(path), "local")
    assert "worker_snapshots" not in document.raw["replay"]
    assert [loss.path for loss in report] == ["$.child_runs[0].snapshot_path"]


@pytest.mark.parity("harn-bundle", 84)
def test_a_snapshot_is_written_and_names_its_new_place(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    (done,) = materialise(embedding(("team/w1", snapshot())), folder)
    path = folder / "team_w1.json"
    assert (done.worker_id, done.path) == ("team/w1", str(path))
    text = path.read_text()
    value = json.loads(text)
    assert value["snapshot_path"] == value["suspension"]["snapshot_ref"] == str(path)
    assert value["transcript"] == snapshot()["transcript"]
    assert text.endswith("}\n")
    assert [p.name for p in folder.iterdir()] == ["team_w1.json"]


@pytest.mark.parity("harn-bundle", 85)
@pytest.mark.parametrize("id", ["../../x", "/etc/passwd", "..", ".", "a" * 5_000, "x\0y"])
def test_no_id_leads_out_of_the_folder(id: str, tmp_path: Path) -> None:
    folder = tmp_path / "in" / "out"
    (done,) = materialise(embedding((id, snapshot())), folder)
    assert Path(done.path).resolve().parent == folder.resolve()
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [Path(done.path)]


@pytest.mark.parity("harn-bundle", 86, 87)
def test_a_blank_id_is_a_number_and_nothing_makes_no_folder(tmp_path: Path) -> None:
    done = materialise(embedding(("w", snapshot()), ("  ", snapshot())), tmp_path / "a")
    assert [Path(one.path).name for one in done] == ["w.json", "worker_1.json"]
    assert materialise(embedding(), tmp_path / "b") == []
    assert not (tmp_path / "b").exists()


@pytest.mark.parity("harn-bundle", 88)
def test_no_two_snapshots_meet_and_no_file_that_is_there_is_touched(tmp_path: Path) -> None:
    (tmp_path / "a_b.json").write_text("mine")
    (tmp_path / "c.json").symlink_to(tmp_path / "elsewhere")
    snapshots = [("a/b", snapshot(id="1")), ("a_b", snapshot(id="2")), ("c", snapshot(id="3"))]
    done = materialise(embedding(*snapshots), tmp_path)
    names = [Path(one.path).name for one in done]
    assert names == ["a_b-2.json", "a_b-3.json", "c-2.json"]
    assert [json.loads(Path(one.path).read_text())["id"] for one in done] == ["1", "2", "3"]
    assert (tmp_path / "a_b.json").read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()


def test_when_one_cannot_be_written_none_is(tmp_path: Path) -> None:
    bad = embedding(("a", snapshot()), ("b", snapshot()))
    bad.raw["replay"]["worker_snapshots"][1]["value"] = {"x": object()}
    with pytest.raises(TypeError):
        materialise(bad, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["sanitized", "replay_only"])
def test_workers_do_not_go_on_from_placeholders_unasked(mode: str, tmp_path: Path) -> None:
    document = embedding(("w", snapshot()), mode=mode)
    with pytest.raises(NotContinuable):
        materialise(document, tmp_path / "no")
    assert not (tmp_path / "no").exists()
    assert len(materialise(document, tmp_path, accept_redacted=True)) == 1


@pytest.mark.parity("harn-bundle", 89)
def test_the_imported_record_points_at_the_files_that_were_written(tmp_path: Path) -> None:
    old = put(tmp_path / "1.json", snapshot())
    told = {**with_children(old), "metadata": {"worker_snapshot_path": old}}
    told["child_runs"][0]["worker_id"] = "w1"
    document, _ = record_bundle(told, "local", snapshots=tmp_path)
    done = materialise(document, tmp_path / "new")
    after = with_paths(run_record(document), [(one.worker_id, one.path) for one in done])
    assert after["child_runs"][0]["snapshot_path"] == done[0].path != old
    assert after["metadata"]["worker_snapshot_path"] == done[0].path


@pytest.mark.parity("harn-bundle", 90)
def test_a_suspended_worker_is_a_record_of_its_own(tmp_path: Path) -> None:
    path = put(tmp_path / "w1.json", snapshot())
    document, report = checkpoint_bundle(Path(path))
    got = run_record(document)
    assert document.view.redaction.mode == "local"
    assert (got["id"], got["workflow_id"]) == ("checkpoint_w1", "worker_snapshot_checkpoint")
    assert (got["status"], got["task"]) == ("suspended", "look it up")
    assert got["started_at"] == "2026-03-01T10:00:00Z"
    assert got["checkpoints"] == [
        {
            "id": "checkpoint_w1_turn_boundary",
            "ready_nodes": ["worker_snapshot_resume"],
            "completed_nodes": [],
            "last_stage_id": None,
            "persisted_at": "2026-03-01T10:00:30Z",
            "reason": "suspended_worker_snapshot_turn_boundary",
        }
    ]
    (child,) = got["child_runs"]
    (lineage,) = got["observability"]["worker_lineage"]
    for worker in (child, lineage):
        assert (worker["session_id"], worker["parent_session_id"]) == ("s1", "s0")
        assert worker["snapshot_path"] == path
    assert (child["mutation_scope"], child["approval_policy"]) == ("read_only", None)
    assert got["replay_fixture"]["id"] == "fixture_checkpoint_w1"
    assert got["replay_fixture"]["eval_kind"] == "worker_snapshot_checkpoint"
    assert got["replay_fixture"]["expected_status"] == "suspended"
    assert got["observability"]["schema_version"] == 4
    assert got["metadata"] == {"checkpoint_kind": "worker_snapshot", "worker_snapshot_path": path}
    assert got["transcript"] == snapshot()["transcript"]
    assert [s["value"] for s in document.raw["replay"]["worker_snapshots"]] == [snapshot()]
    assert [e["value"]["id"] for e in document.raw["replay"]["deterministic_events"]] == [
        "checkpoint_w1_turn_boundary"
    ]
    assert not report


@pytest.mark.parity("harn-bundle", 91)
@pytest.mark.parametrize(
    ("changes", "code", "path"),
    [
        ({"status": "running"}, "unsupported_checkpoint_state", "status"),
        ({"status": ""}, "missing_required", "status"),
        ({"_type": "run_record"}, "invalid_type", "_type"),
        ({"_type": None}, "missing_required", "_type"),
        ({"config": None}, "invalid_type", "config"),
        ({"suspension": []}, "invalid_type", "suspension"),
        ({"id": ""}, "missing_required", "id"),
    ],
)
def test_a_snapshot_that_cannot_go_on_is_refused(
    changes: dict[str, Any], code: str, path: str, tmp_path: Path
) -> None:
    put(tmp_path / "w.json", snapshot(**changes))
    with pytest.raises(InvalidBundle) as raised:
        checkpoint_bundle(tmp_path / "w.json")
    faults = [(fault.code, fault.path) for fault in raised.value.faults]
    assert faults == [(code, f"$.worker_snapshot.{path}")]
    if changes.get("status"):
        assert "running" in str(raised.value)


def test_all_faults_of_a_snapshot_are_named(tmp_path: Path) -> None:
    put(tmp_path / "w.json", {"status": "done"})
    with pytest.raises(InvalidBundle) as raised:
        checkpoint_bundle(tmp_path / "w.json")
    assert len(raised.value.faults) == 5
    with pytest.raises(InvalidBundle):
        checkpoint_bundle(tmp_path / "absent.json")


@pytest.mark.parity("harn-bundle", 92)
def test_the_time_of_a_checkpoint_is_the_nearest_that_is_known(tmp_path: Path) -> None:
    def times(**changes: Any) -> tuple[str, str]:
        put(tmp_path / "w.json", snapshot(**changes))
        got = run_record(checkpoint_bundle(tmp_path / "w.json", created_at="now")[0])
        return got["checkpoints"][0]["persisted_at"], got["started_at"]

    none: dict[str, Any] = {"suspension": {}}
    assert times()[0] == "2026-03-01T10:00:30Z"
    assert times(**none)[0] == "2026-03-01T10:00:40Z"
    assert times(**none, finished_at=None)[0] == "2026-03-01T10:00:00Z"
    assert times(started_at=None)[1] == "2026-03-01T09:59:00Z"
    assert times(started_at=None, created_at=None)[1] == "2026-03-01T10:00:30Z"
    assert times(**none, started_at=None, created_at=None)[1] == "now"


def test_a_sanitized_checkpoint_names_no_local_path(tmp_path: Path) -> None:
    put(tmp_path / "w1.json", snapshot())
    document, _ = checkpoint_bundle(tmp_path / "w1.json", "sanitized")
    text = document.encode().decode()
    assert str(tmp_path) not in text
    assert "/old/w1.json" not in text
    assert os.sep + "w1.json" not in text
