"""Two more sets of cases and of ordinary text, each written by somebody who had seen neither the
engine nor the other cases: `everyday`, and `incidents`, where credentials were found after a leak.

The files are JSON lines in rot13, so that scanners of forges do not take them for leaks themselves.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.redaction.corpus.make import Case

FOLDER = Path(__file__).parent / "sets"
SETS = ("everyday", "incidents")


def _lines(name: str) -> Iterator[dict[str, Any]]:
    for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        yield json.loads(codecs.decode(line, "rot13"))


def cases(name: str) -> list[Case]:
    """The cases of one set."""
    return [
        Case(one["family"], one["name"], one["text"], tuple(one["secrets"]), tuple(one["keeps"]))
        for one in _lines(name)
        if "family" in one
    ]


def ordinary(name: str) -> Iterator[tuple[str, str, str]]:
    """The ordinary text of one set: kind, name and text."""
    for n, one in enumerate(_lines(name)):
        if "ordinary" in one:
            yield one["ordinary"], f"{name}-{n}", one["text"]
