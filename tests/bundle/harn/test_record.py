"""The run record that comes out of a bundle."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from holdfast.bundle.harn import read_document, record_bundle, record_path, run_record, with_paths
from holdfast.errors import InvalidBundle, InvalidValue
from tests.bundle.harn.records import observability, record


def tree(**changes: Any) -> dict[str, Any]:
    raw = copy.deepcopy(record_bundle(record(), "local")[0].raw)
    raw["replay"] |= changes
    return raw


def imported(raw: dict[str, Any]) -> dict[str, Any]:
    return run_record(read_document(raw, allow_secrets=True))


@pytest.mark.parity("harn-bundle", 73, 75)
def test_the_embedded_record_is_preferred_and_left_as_it_is() -> None:
    raw = tree(observability={"schema_version": 9})
    assert imported(raw) == record()


@pytest.mark.parity("harn-bundle", 74)
@pytest.mark.parametrize("there", [{"observability": None}, {}])
def test_observability_is_filled_where_the_record_has_none(there: dict[str, Any]) -> None:
    bare = {name: value for name, value in record().items() if name != "observability"}
    raw = tree(run_record={**bare, **there})
    seen = imported(raw)["observability"]
    assert seen["research_fact_count"] == 2
    assert seen["verification_outcomes"][0]["stage_id"] == "stage_1"


def test_observability_is_made_of_outcomes_where_that_is_all_there_is() -> None:
    raw = tree(run_record={**record(), "observability": None})
    del raw["replay"]["observability"]
    seen = imported(raw)["observability"]
    assert (seen["schema_version"], len(seen["verification_outcomes"])) == (4, 1)
    raw["replay"]["verification_outcomes"] = []
    assert imported(raw)["observability"] is None


@pytest.mark.parity("harn-bundle", 76, 77)
def test_a_fixture_alone_gives_a_small_record_that_says_where_it_is_from() -> None:
    raw = tree(run_record=None)
    got = imported(raw)
    assert {name: got[name] for name in ("_type", "id", "workflow_id", "task", "status")} == {
        "_type": "run_record",
        "id": "run_1",
        "workflow_id": "refunds",
        "task": "Refund order 42",
        "status": "completed",
    }
    assert got["transcript"]["messages"] == record()["transcript"]["messages"]
    assert got["tool_recordings"] == record()["tool_recordings"]
    assert got["hitl_questions"] == record()["hitl_questions"]
    assert [t["id"] for t in got["transitions"]] == ["t1", "t2"]
    assert got["stages"] == got["child_runs"] == got["pending_nodes"] == []
    assert got["usage"]["input_tokens"] == 100
    assert (got["root_run_id"], got["parent_run_id"]) == ("run_0", "run_0")
    assert got["metadata"] == {
        "imported_from_session_bundle": raw["bundle_id"],
        "session_bundle_schema_version": 1,
        "worker_snapshot_count": 0,
    }


@pytest.mark.parity("harn-bundle", 78)
def test_with_neither_there_is_nothing_to_import() -> None:
    with pytest.raises(InvalidBundle) as raised:
        imported(tree(run_record=None, replay_fixture=None))
    assert raised.value.faults[0].code == "missing_run_record"


@pytest.mark.parity("harn-bundle", 79)
@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({"id": "run_2"}, ["id_mismatch"]),
        ({"id": "run_2", "workflow_id": "w", "_type": "x"}, ["invalid_type", *["id_mismatch"] * 2]),
    ],
)
def test_a_record_of_another_run_is_refused(changes: dict[str, Any], codes: list[str]) -> None:
    with pytest.raises(InvalidBundle) as raised:
        imported(tree(run_record={**record(), **changes}))
    assert [fault.code for fault in raised.value.faults] == codes


def test_a_record_that_is_no_object_is_refused() -> None:
    with pytest.raises(InvalidBundle):
        imported(tree(run_record="run_1"))


@pytest.mark.parity("harn-bundle", 89)
def test_new_paths_of_snapshots_are_patched_in_by_worker() -> None:
    before = {**record(), "metadata": {"worker_snapshot_path": "/old", "else": 1}}
    after = with_paths(before, [("w1", "/new/w1.json"), ("w9", "/new/w9.json")])
    assert [c.get("snapshot_path") for c in after["child_runs"]] == [None, "/new/w1.json", None]
    lineage = after["observability"]["worker_lineage"]
    assert [w.get("snapshot_path") for w in lineage] == ["/new/w1.json", None, None]
    assert after["metadata"] == {"worker_snapshot_path": "/new/w1.json", "else": 1}
    assert before["observability"] == observability()  # what was given stays as it was
    assert with_paths(before, []) == before


@pytest.mark.parity("harn-bundle", 111)
@pytest.mark.parametrize("id", ["../../x", "/etc/x", "a/b", "", "  ", ".hidden", "..", "a\\b", "é"])
def test_a_record_goes_nowhere_by_a_crafted_id(id: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidValue) as raised:
        record_path(tmp_path, id)
    assert raised.value.field == "source.run_record_id"
    assert record_path(tmp_path, "run_1.a-b") == tmp_path / "run_1.a-b.json"
