"""Runs the tests of an SDK on our adapter, in a process of their own.

The process has their package `tests` and the plugins in `plugins`, which put our adapter in the
place of their sessions and checkpointers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from . import left_out, sources

PLUGINS = Path(__file__).parent / "plugins"
SETTINGS = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"


class Suite(NamedTuple):
    """The tests of one SDK: the files that use a store, and those of them for a quick run."""

    project: str
    plugin: str
    files: tuple[str, ...]
    sample: tuple[str, ...]
    left_out: Mapping[str, tuple[str, ...]]  # by reason
    own_conftest: bool


class Report(NamedTuple):
    passed: int
    skipped: int
    failed: list[str]


OPENAI = Suite(
    project="openai-agents",
    plugin="openai_suite",
    files=(
        *("tests/memory", "tests/deferred_session_writes", "tests/utils/test_simple_session.py"),
        "tests/extensions/memory/test_async_sqlite_session.py",
        "tests/extensions/memory/test_encrypt_session.py",
        *(f"tests/test_agent_runner{way}.py" for way in ("", "_streamed")),
        *("tests/test_hitl_session_scenario.py", "tests/test_max_turns.py"),
        *("tests/test_cancel_streaming.py", "tests/test_soft_cancel.py"),
        *("tests/test_runner_guardrail_resume.py", "tests/test_run_state_pending_input.py"),
        *("tests/test_tool_batch_failure_history.py", "tests/test_run_impl_resume_paths.py"),
        *("tests/test_native_tool_failure_history.py", "tests/test_handoff_history_duplication.py"),
        *("tests/test_tool_failure_boundaries.py", "tests/test_invalid_final_output_handler.py"),
        *("tests/test_runtime_symmetry_contract.py", "tests/test_programmatic_tool_calling.py"),
    ),
    sample=("tests/memory/test_session.py",),
    left_out=left_out.OPENAI,
    own_conftest=True,
)

LANGGRAPH = Suite(
    project="langgraph",
    plugin="langgraph_suite",
    files=(
        *("tests/test_pregel.py", "tests/test_pregel_async.py"),
        *("tests/test_large_cases.py", "tests/test_large_cases_async.py"),
        *("tests/test_time_travel.py", "tests/test_time_travel_async.py"),
        *("tests/test_subgraph_persistence.py", "tests/test_subgraph_persistence_async.py"),
        *("tests/test_interrupt_state.py", "tests/test_interruption.py"),
        *("tests/test_strict_resume.py", "tests/test_checkpoint_migration.py"),
        *(f"tests/test_delta_channel_{name}.py" for name in ("exit_mode", "fork", "subgraph")),
        *(f"tests/test_delta_channel_{name}.py" for name in ("parallel_order", "to_plain")),
        *("tests/test_delta_channel_update_state.py", "tests/test_pydantic.py"),
    ),
    sample=("tests/test_interrupt_state.py",),
    left_out=left_out.LANGGRAPH,
    own_conftest=False,
)

SUITES = {suite.project: suite for suite in (OPENAI, LANGGRAPH)}


def run(suite: Suite, stores: Mapping[str, str], folder: Path, *, sample: bool = False) -> Report:
    """Run the tests of a suite on stores, which are URLs by kind. `folder` is an empty one."""
    place = sources.unpack(suite.project, folder / "source")
    (place / "pytest.ini").write_text(SETTINGS)
    if not suite.own_conftest:
        (place / "tests/conftest.py").write_text(f"from {suite.plugin} import *\n")
    report = folder / "report.json"
    names = [name for some in suite.left_out.values() for name in some]
    told = {"stores": dict(stores), "left_out": names, "report": str(report)}
    environment = {
        **os.environ,
        "PYTHONPATH": str(PLUGINS),
        "HOLDFAST_SUITE": json.dumps(told),
    }
    words = ["-m", "pytest", "-q", "-p", "suite", "-p", "no:cacheprovider", "--timeout", "120"]
    words += ["-p", suite.plugin] if suite.own_conftest else []
    files = suite.sample if sample else suite.files
    done = subprocess.run(
        [sys.executable, *words, "-c", "pytest.ini", *files],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"the tests of {suite.project} did not run:\n{done.stdout}{done.stderr}")
    found = json.loads(report.read_text())
    counts = found["counts"]
    return Report(counts.get("passed", 0), counts.get("skipped", 0), found["failed"])
