"""`scripts/shape` counts what its docstring says: exactly on a small package, and on this one all
of its measures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "shape.py"

LONG = "def long():\n" + "    x = 1\n" * 50  # 51 lines
LIMIT = "def limit():\n" + "    x = 1\n" * 49
WIDE = "class Wide:\n" + "".join(f"    def m{n}(self): ...\n" for n in range(16))
PORT = WIDE.replace("class Wide", "class Port(Protocol)")
NARROW = "class Narrow:\n" + "".join(f"    def m{n}(self): ...\n" for n in range(15))
PRIVATE = "    def _hidden(self): ...\n"

COPY = """
async def copy(store, log):
    \"\"\"Copy.\"\"\"
    found = await store.read(log.key, 1)
    for event in found.events:
        await store.append(log.key, event.data, event.kind)
        log.count.add(event.seq)
"""
RENAMED = """
def other(place, which):
    rows = place.read(which.key, 200)
    for row in rows.events:
        place.append(which.key, row.data, row.kind)
        which.count.add(row.seq)
"""
UNLIKE = RENAMED.replace("read", "load").replace("append", "put").replace("add", "drop")

PACKAGE = {
    "__init__.py": "",
    "sizes.py": LONG + LIMIT,
    "wide.py": WIDE + PORT + NARROW + PRIVATE,
    "names.py": "class Twice: ...\nclass _Twice: ...\nclass Once: ...\n",
    "again.py": "class Twice: ...\nclass _Twice: ...\ndef f():\n    class Once: ...\n",
    "locals.py": "import os\ndef f():\n    import os\n    def g():\n        from . import names\n",
    "copies.py": COPY + RENAMED + UNLIKE,
    "harness/__init__.py": "from . import inner\n",
    "harness/inner.py": "",
    "harness/deep/__init__.py": "",
    "harness/deep/part.py": "",
    "stores/__init__.py": "from ..harness import inner\n",
    "server.py": "import holdfast.harness\nfrom .harness.deep.part import x\n",
    "client.py": "from . import stores\nfrom .harness import inner, deep\n",
}

COUNTS = {
    "modules": 14,
    "lines": 189,
    "median_module": 2,
    "largest_module": 101,
    "long_functions": 1,
    "wide_classes": 1,
    "wide_protocols": 1,
    "shared_names": 1,
    "local_imports": 2,
    "duplicate_pairs": 1,
    "client_loads": 4,  # harness, harness.inner, harness.deep, stores
    "client_loads_harness": 3,
    "client_loads_stores": 1,
    "client_loads_server": 0,
    "past_facade": 3,  # inner, deep, deep.part
    "turn_packages": None,
    "turn_modules": None,
    "turn_functions": None,
}


def shape(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def measured(*arguments: str | Path) -> dict[str, dict[str, Any]]:
    done = shape("--json", *arguments)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The folder of a small package of the same name."""
    for name, text in PACKAGE.items():
        path = tmp_path / "holdfast" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_small_package_is_counted_exactly(source: Path) -> None:
    found = measured("--source", source)["working tree"]
    counts = found["counts"]
    assert {key: counts[key] for key in COUNTS} == COUNTS
    assert counts["duplicates_per_10k"] == 52.91  # 1 in 189 lines
    assert found["lists"]["shared_names"] == ["Twice: holdfast.again, holdfast.names"]
    assert found["lists"]["local_imports"] == [
        "holdfast/locals.py:3 import os",
        "holdfast/locals.py:5 from . import names",
    ]
    assert found["lists"]["duplicate_pairs"] == [
        "holdfast/copies.py:2 copy = holdfast/copies.py:9 other"
    ]
    assert found["lists"]["past_facade"] == [
        "holdfast.harness.deep.part: holdfast.server",
        "holdfast.harness.deep: holdfast.client",
        "holdfast.harness.inner: holdfast.client, holdfast.stores",
    ]


def test_nodes_of_the_tree_are_counted(tmp_path: Path) -> None:
    (tmp_path / "holdfast").mkdir()
    (tmp_path / "holdfast" / "__init__.py").write_text("x = 1\n")
    counts = measured("--source", tmp_path)["working tree"]["counts"]
    assert counts["ast_nodes"] == 5  # Module, Assign, Name, Store, Constant


def test_list_prints_the_entries(source: Path) -> None:
    printed = shape("--list", "--source", source).stdout
    assert "\n  holdfast/locals.py:3 import os\n" in printed
    assert "\n  holdfast/wide.py:1 Wide: 16 methods\n" in printed


def test_this_package_has_every_measure() -> None:
    counts = measured()["working tree"]["counts"]
    assert {*COUNTS, "ast_nodes", "duplicates_per_10k"} == {*counts}
    assert [key for key, count in counts.items() if count is None] == []
    assert counts["modules"] > 100
    assert counts["turn_functions"] > counts["turn_modules"] > counts["turn_packages"] > 1


def test_unknown_commit_and_missing_package_are_rejected(tmp_path: Path) -> None:
    done = shape("no-such-commit")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no commit 'no-such-commit'" in done.stderr
    assert "no modules in" in shape("--source", tmp_path).stderr
