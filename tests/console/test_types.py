"""The scripts of the console are checked by TypeScript: their types are in comments."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from holdfast.server.console.assets import FOLDER
from tests.node import node, node_modules

TYPES = Path(__file__).parent / "types"


WRONG = "import { parsed } from './json.js';\nparsed(7);\n"


def test_the_scripts_have_no_type_errors(tmp_path: Path) -> None:
    modules = node_modules(TYPES)
    (tmp_path / "node_modules").symlink_to(modules)
    shutil.copy(TYPES / "tsconfig.json", tmp_path)
    scripts = shutil.copytree(FOLDER, tmp_path / "src")
    (scripts / "wrong.js").write_text(WRONG)  # the one error that is found
    words = [str(node()), str(modules / "typescript/lib/tsc.js"), "--project", "."]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    said = done.stdout
    assert [line.partition("(")[0] for line in said.splitlines()] == ["src/wrong.js"], said


def test_the_types_are_those_of_the_vendored_modules() -> None:
    manifest = json.loads((FOLDER / "vendor/manifest.json").read_text())["packages"]
    asked = json.loads((TYPES / "package.json").read_text())["dependencies"]
    vendored = {one["name"]: one["version"] for one in manifest}
    assert vendored.items() <= asked.items()
