"""`docs/decisions`: numbered without gaps, all in the index, each in the same short form. The
tests that they name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "decisions"
RECORDS = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")


def test_records_are_numbered_without_gaps() -> None:
    numbers = [path.name.partition("-")[0] for path in RECORDS]
    assert numbers == [f"{number:04}" for number in range(1, len(RECORDS) + 1)]


def test_index_lists_every_record_under_its_title() -> None:
    listed = re.findall(
        r"^\| \[(\d{4})\]\((.+?)\) \| (.+) \|$", (FOLDER / "README.md").read_text(), re.M
    )
    titles = [path.read_text().splitlines()[0].removeprefix("# ") for path in RECORDS]
    assert [name for _, name, _ in listed] == [path.name for path in RECORDS]
    assert [f"{number} {title}" for number, _, title in listed] == titles


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_record_is_short_and_names_tests_that_exist(path: Path) -> None:
    text = path.read_text()
    assert re.findall(r"^## (.+)$", text, re.M) == ["Context", "Decision", "Consequence"]
    assert text.count("\n") <= 20
    for named in re.findall(r"`(tests/[\w/.]+)`", text):
        assert (ROOT / named).exists(), named
