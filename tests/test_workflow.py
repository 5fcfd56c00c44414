"""The GitHub workflow runs `.ci/run` on every supported Python, with no more rights than it needs.
`actionlint` checks the syntax of its expressions; it is not installed here, and this test reads the
structure instead."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read(path: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(path.read_text())
    return found


@pytest.fixture
def job() -> dict[str, Any]:
    (found,) = read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"].values()
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_has_few_rights_an_end_and_pinned_actions(path: Path) -> None:
    workflow = read(path)
    known = {"name", True, "permissions", "concurrency", "jobs"}  # YAML reads `on` as true
    assert set(workflow) == known
    assert workflow["permissions"] == {"contents": "read"}
    assert set(workflow["concurrency"]) == {"group", "cancel-in-progress"}
    for job in workflow["jobs"].values():
        assert set(job) <= {"name", "runs-on", "timeout-minutes", "steps"}
        assert 0 < job["timeout-minutes"] <= 60
        for step in job["steps"]:
            assert len({"uses", "run"} & set(step)) == 1
            if used := step.get("uses"):
                assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", used)
            if used and "/checkout@" in used:
                assert step["with"]["persist-credentials"] is False


def test_workflow_runs_for_changes_and_for_main() -> None:
    events = read(ROOT / ".github" / "workflows" / "ci.yml")[True]
    assert events == {"push": {"branches": ["main"]}, "pull_request": None}


def test_workflow_runs_the_script_that_is_run_everywhere(job: dict[str, Any]) -> None:
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_workflow_installs_every_supported_python_and_the_oldest_last(job: dict[str, Any]) -> None:
    (given,) = [step["with"] for step in job["steps"] if "setup-python" in step.get("uses", "")]
    supported = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    versions = given["python-version"].split()
    assert sorted(versions) == sorted(supported)
    assert PROJECT["requires-python"] == f">={versions[-1]}"
    assert given["cache"] == "pip"
    assert (ROOT / given["cache-dependency-path"]).is_file()
