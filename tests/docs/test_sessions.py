"""`docs/sessions.md` says what the code does: its table of moves, its first example, its names."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import holdfast
from holdfast import LIMITS, Sessions, sessions
from holdfast.log.catalog import MOVES, PHASES, Query

PAGE = (Path(__file__).parents[2] / "docs" / "sessions.md").read_text()


def table(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without the line under its head."""
    section = PAGE.partition(f"## {heading}\n")[2]
    lines = re.findall(r"^\|.*\|$", section.partition("|\n\n")[0] + "|", re.MULTILINE)
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if "--" not in line
    ]


def test_the_table_of_phases_is_the_code_s() -> None:
    head, *rows = table("Phases")
    assert head == ["from", *(f"`{move}`" for move in MOVES)]
    assert rows == [
        [f"`{phase}`", *(moves.get(phase, "–") for moves in MOVES.values())] for phase in PHASES
    ]


def test_the_first_example_prints_what_the_page_says(tmp_path: Path) -> None:
    code, output = re.findall(r"```(?:python)?\n(.*?)```", PAGE, re.DOTALL)[:2]
    command = [sys.executable, "-W", "error", "-c", code]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == (output, "")
    assert "en-US" in output


def test_every_method_of_sessions_is_on_the_page() -> None:
    methods = [name for name, _ in inspect.getmembers(Sessions, inspect.isfunction)]
    assert len(methods) > 20
    assert [
        n for n in methods if n[0] != "_" and not re.search(rf"`[^`]*\b{n}\b[^`]*`", PAGE)
    ] == []


def test_every_filter_is_on_the_page() -> None:
    fields = [*Query.__struct_fields__, "active_after", "limit", "cursor"]
    inner = {"tenant", "session", "stale_until"}  # of the library itself
    assert [name for name in fields if name not in inner and f"`{name}`" not in PAGE] == []


def test_every_name_for_those_who_come_from_elsewhere_exists() -> None:
    cells = [row[1] for row in table("Coming from `@agent-assistant/sessions`")[1:]]
    words = {
        word
        for cell in cells
        for word in re.findall(r"`(?:sessions\.|holdfast\.|row\.)?(\w+)", cell)
    }
    known = {*dir(holdfast), *dir(sessions), *dir(Sessions), *holdfast.Row.__struct_fields__}
    known |= {"shared_surfaces", "resolver"}
    assert sorted(words - known) == []
    assert len(words) > 20


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    assert f"up to {LIMITS.map_entries} metadata keys" in PAGE
    assert f"each map up to {LIMITS.map_bytes >> 10} KiB" in PAGE
