"""The suite keeps its own rules: a test that is skipped fails, and so does one in which Holdfast
blocks the event loop."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from blockbuster import BlockingError

import holdfast

ROOT = Path(__file__).parent.parent
PACKAGE = Path(holdfast.__file__).parent

SKIPPED = """
import pytest

def test_passes(): pass
def test_says_skip(): pytest.skip("not today")
@pytest.mark.skip
def test_is_marked(): pass
@pytest.mark.xfail
def test_fails_for_no_reason(): assert False
@pytest.mark.xfail(reason="a reason")
def test_fails_for_a_reason(): assert False
"""


@pytest.mark.parity("user-demand", 36)
def test_a_skipped_test_fails(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "parity", tmp_path / "parity")
    for name in ("__init__.py", "blocking.py", "conftest.py", "parity.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests")
    servers = tmp_path / "tests" / "servers"
    shutil.copytree(ROOT / "tests" / "servers", servers, ignore=shutil.ignore_patterns("test_*"))
    (tmp_path / "tests" / "test_skipped.py").write_text(SKIPPED)
    (tmp_path / "tests" / "test_module.py").write_text(
        'import pytest\npytest.importorskip("nothing_of_this_name")\n'
    )

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "--continue-on-collection-errors"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED
    assert "no test may be skipped" in ended.stdout
    assert "2 failed, 1 passed, 1 xfailed, 2 errors" in ended.stdout


def sleep_in(place: Path) -> None:
    """Block for a moment, as code that stands in the file `place` would."""
    exec(compile("import time\ntime.sleep(0)", place, "exec"))


async def test_holdfast_must_not_block_the_loop() -> None:
    with pytest.raises(BlockingError):
        sleep_in(PACKAGE / "module.py")


async def test_threads_and_tests_and_their_tools_may_block() -> None:
    await asyncio.to_thread(sleep_in, PACKAGE / "module.py")
    sleep_in(Path(__file__))
    sleep_in(PACKAGE / "testing" / "module.py")


def test_plain_functions_may_block() -> None:
    sleep_in(PACKAGE / "module.py")
