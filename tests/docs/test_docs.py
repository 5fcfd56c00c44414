"""The documents say what the code does: their examples run, and their lists are whole."""

from __future__ import annotations

import re
import subprocess
import sys
from inspect import isclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import fields

from holdfast import errors
from holdfast.errors import HoldfastError
from holdfast.events import KINDS
from holdfast.log.codec import LIMITS
from holdfast.log.events.defaults import PayloadShape, shape_of
from holdfast.wire import files, requests

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
EXAMPLES = [
    pytest.param(code, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
    if "asyncio.run" in code
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_in_the_documents_runs(code: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", code]
    ran = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout


def test_there_are_examples_to_run() -> None:
    assert len(EXAMPLES) >= 4


def test_every_event_kind_is_documented() -> None:
    page = (ROOT / "docs/formats/log.md").read_text()
    assert [kind for kind in KINDS if f"`{kind}`" not in page] == []


def test_every_default_of_event_data_is_documented() -> None:
    page = (ROOT / "docs/formats/log.md").read_text().partition("### Defaults")[2]
    told = re.findall(r"^\| `([\w.]+)` \| (`.*`) \|$", page.partition("\n### ")[0], re.MULTILINE)
    assert {kind: {*re.findall(r"`(.*?)`", cell)} for kind, cell in told} == {
        kind: cells for kind, payload in KINDS.items() if (cells := _defaults(shape_of(payload)))
    }


def _defaults(shape: PayloadShape, within: str = "") -> set[str]:
    own = {f"{within}{name}: {bytes(text).decode()}" for name, text in shape.defaults.items()}
    return own.union(*(_defaults(inner, f"{name}.") for name, inner in shape.nested.items()))


def test_every_body_of_a_request_is_documented() -> None:
    page = (ROOT / "docs/http.md").read_text().partition("### Bodies")[2].partition("\n\nWhat")[0]
    rows = [line.split("|")[2] for line in page.splitlines() if line.startswith("| `")]
    parts = {requests.StoreWish, requests.Source, requests.MediaPart}
    bodies = {type for type in vars(requests).values() if _is_body(type)} - parts
    for body in (*bodies, files.EditFile, files.MakeFolder, files.MoveFile):
        wanted, needed = {*body.__struct_fields__}, {f.name for f in fields(body) if f.required}
        found = [row for row in rows if wanted <= {*re.findall(r"\w+", row)}]
        assert found, f"{body.__name__}: {wanted}"
        bold = [{*re.findall(r"\w+", " ".join(re.findall(r"\*\*(.*?)\*\*", row)))} for row in found]
        assert any(needed <= words for words in bold), f"{body.__name__} needs {needed}"


def _is_body(type: Any) -> bool:
    return isclass(type) and issubclass(type, requests.Request) and type is not requests.Request


def test_every_error_code_is_documented() -> None:
    page = (ROOT / "docs/errors.md").read_text()
    classes = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, HoldfastError)
    ]
    assert [c for c in classes if f"`{c.__name__}`" not in page or f"`{c.code}`" not in page] == []
    assert len(classes) >= 15


def test_the_documented_limits_are_those_of_the_code() -> None:
    page = (ROOT / "docs/platforms.md").read_text()
    for number in (LIMITS.name_bytes, LIMITS.kind_bytes, LIMITS.append_events, LIMITS.claim_bytes):
        assert f"{number:,}" in page or f"–{number} bytes" in page
    assert LIMITS.event_bytes == LIMITS.blob_bytes == 64 << 20
    assert "64 MiB" in page


def test_links_between_the_documents_lead_somewhere() -> None:
    for page in [*PAGES, *ROOT.glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
