"""The feature tables are whole, and their rows are marked by what the tests prove alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from . import parity
from .parity import Row

ROOT = Path(__file__).parent.parent

SIZES = {
    "agent-assistant-sessions": 70,
    "computeragent": 130,
    "harn-bundle": 114,
    "harness-kernel": 149,
    "mastra-session": 184,
    "user-demand": 79,
}


# A child pytest without plugins that it has no use for, and without worker processes unless asked.
QUICK = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_XDIST_AUTO_NUM_WORKERS": "0"}
CONFIG = """
[pytest]
addopts = --strict-markers -p xdist.plugin -p tests.parity
markers = parity
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of its own with our tables and our plugin, and no tests yet."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "pytest.ini").write_text(CONFIG)
    shutil.copytree(ROOT / "parity", tmp_path / "parity")
    shutil.copy(ROOT / "tests" / "parity.py", tmp_path / "tests")
    return tmp_path


def run(project: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *options],
        cwd=project,
        env=os.environ | QUICK,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_row_of_every_table_is_there_once() -> None:
    tables = parity.read_tables()
    assert {name: len(table) for name, table in tables.items()} == SIZES
    for name, table in tables.items():
        numbered = SIZES[name] if name != "computeragent" else 100
        supplement = SIZES[name] - numbered
        expected = [str(n) for n in range(1, numbered + 1)]
        expected += [f"S{n}" for n in range(1, supplement + 1)]
        assert [row.row for row in table] == expected


def test_every_row_has_a_feature_and_a_status_and_a_difference_its_reason() -> None:
    for table in parity.read_tables().values():
        for row in table:
            assert row.feature
            assert row.status in parity.STATUSES
            assert row.note or row.status != "different"


def test_done_follows_the_proof_both_ways_and_different_stays() -> None:
    table = [
        Row("1", "proven now", "later", "soon"),
        Row("2", "proven no more", "done", ""),
        Row("3", "done otherwise", "different", "because"),
    ]
    judged = parity.judge("t", table, {"t/1", "t/3", "other/2"})
    assert [row.status for row in judged] == ["done", "later", "different"]
    assert [row.note for row in judged] == ["soon", "", "because"]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_row_is_proven_when_all_its_tests_ran_and_passed(project: Path, workers: str) -> None:
    (project / "tests" / "test_rows.py").write_text(
        """
import pytest

@pytest.mark.parity("user-demand", 1, 2)
@pytest.mark.parity("computeragent", "S3")
def test_passes(): pass

@pytest.mark.parity("user-demand", 2)
@pytest.mark.parametrize("store", ["good", "bad"])
def test_fails_once(store): assert store == "good"

@pytest.mark.parity("user-demand", 3)
class TestMarkedAsAWhole:
    def test_passes(self): pass
    def test_is_skipped(self): pytest.skip("not today")
"""
    )
    ended = run(project, "pytest", f"--parity={project / 'out'}", "--numprocesses", workers)
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout
    assert json.loads((project / "out").read_text()) == ["computeragent/S3", "user-demand/1"]


def test_a_test_that_kills_its_process_proves_nothing(project: Path) -> None:
    (project / "tests" / "test_rows.py").write_text(
        """
import os, pytest
pytestmark = pytest.mark.parity("user-demand", 1)
def test_passes(): pass
def test_dies(): os._exit(1)
"""
    )
    ended = run(project, "pytest", f"--parity={project / 'out'}", "--numprocesses", "1")
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout
    assert json.loads((project / "out").read_text()) == []


def test_a_mark_that_names_no_row_fails_its_test(project: Path) -> None:
    wrong = ['"user-demand", 80', '"user-demand", 7, "S1"', '"no-table", 1', '"user-demand"', ""]
    (project / "tests" / "test_rows.py").write_text(
        "import pytest\n"
        + "".join(
            f"@pytest.mark.parity({mark})\ndef test_{n}(): pass\n" for n, mark in enumerate(wrong)
        )
    )
    ended = run(project, "pytest")
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED
    assert "no such row" in ended.stdout
    assert f"{len(wrong)} errors" in ended.stdout


def test_the_program_writes_what_changed_and_only_compares_with_check(project: Path) -> None:
    test = project / "tests" / "test_rows.py"
    table = project / "parity" / "user-demand.csv"
    parity.write_table(
        table, [row._replace(status="later", note="") for row in parity.read_table(table)]
    )
    test.write_text(
        'import pytest\n@pytest.mark.parity("user-demand", 6)\ndef test_passes(): pass\n'
    )

    before = table.read_bytes()
    assert run(project, "tests.parity", "--check").returncode == 1
    assert table.read_bytes() == before

    ended = run(project, "tests.parity", "--json")
    assert ended.returncode == 0
    assert json.loads(ended.stdout)["user-demand"] == {
        "done": 1,
        "different": 0,
        "later": 78,
        "total": 79,
    }
    assert [row.row for row in parity.read_table(table) if row.status == "done"] == ["6"]
    assert run(project, "tests.parity", "--check").returncode == 0

    test.write_text("import nothing_of_this_name\n")
    written = table.read_bytes()
    assert run(project, "tests.parity").returncode != 0
    assert table.read_bytes() == written
