"""The worker's side of the talk: one line of JSON at a time."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def say(**line: Any) -> None:
    # One write, so that a kill leaves a line whole or cuts it where the reader sees it.
    os.write(1, (json.dumps(line) + "\n").encode())


def hear() -> dict[str, Any]:
    """The next line told to this worker; ends the process when there is none."""
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    told: dict[str, Any] = json.loads(line)
    return told
