"""With SQLite 3.42 or later, no removed word is left in the index file."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.stores.search.sqlite import ERASES_AT_ONCE

from .test_index import STORES, index_file, place


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("how", ["delete", "erase"])
async def test_removed_words_leave_the_index_at_once(kind: str, how: str, tmp_path: Path) -> None:
    words = ["-m", "tests.search.newer_sqlite", place(kind, tmp_path), str(tmp_path), how]
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    version, found, before, after, left, hits = json.loads(done.stdout)
    assert tuple(version) >= ERASES_AT_ONCE
    assert (found, hits) == (1, ["b"])
    index = index_file(kind, tmp_path)
    assert index.name in before
    assert index.name not in after
    assert str(index) not in left
