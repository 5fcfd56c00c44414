"""Tables on terminals of every width: no line is longer, and no id is cut."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from holdfast.cli.render import table_text

ROWS = [
    {"SESSION": "customer-42", "STATE": "active, waiting, 1 pending", "USER": "ann", "TITLE": title}
    for title in ("", "Refund", "A refund of an order that came too late " * 3, "返金" * 40)
]


@pytest.mark.parametrize("width", [44, 50, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = [line.plain for line in table_text(ROWS, width, optional=("USER",))]
    assert max(map(cell_len, lines)) <= width
    assert sum(line.startswith("customer-42  ") for line in lines) == len(ROWS)
    assert ("USER" in lines[0]) == (width > 50)


def test_a_title_without_room_is_on_a_line_of_its_own() -> None:
    lines = [line.plain for line in table_text(ROWS[:2], 50, optional=("USER",))]
    assert lines == [
        "SESSION      STATE",
        "customer-42  active, waiting, 1 pending",
        "customer-42  active, waiting, 1 pending",
        "  Refund",
    ]


def test_a_pipe_gets_everything() -> None:
    lines = [line.plain for line in table_text(ROWS, 100_000, optional=("USER",))]
    assert len(lines) == len(ROWS) + 1
    assert lines[4].endswith("返金" * 40)
