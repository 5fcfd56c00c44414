"""What tools did outside of the log, and what else outlives a killed process: a file each."""

from __future__ import annotations

import os
import time
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from holdfast.testing.simulation.effects import Effect
from holdfast.testing.simulation.loop import EPOCH

_numbers = count()


def now() -> float:
    """The time as judges count it: seconds since simulations begin."""
    return time.time() - EPOCH


class Ledger:
    """A folder of records. A record is durable when `add` returns, and never half there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def add(self, kind: str, record: Any) -> None:
        name = f"{time.time_ns():020d}-{os.getpid()}-{next(_numbers)}"
        partial = self._folder / f"{name}.partial"
        file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            os.write(file, msgspec.json.encode(record))
            os.fsync(file)
        finally:
            os.close(file)
        partial.rename(self._folder / f"{name}.{kind}")

    def effects(self) -> list[Effect]:
        return [msgspec.json.decode(text, type=Effect) for text in self._all("effect")]

    def texts(self, kind: str) -> list[str]:
        return [msgspec.json.decode(text, type=str) for text in self._all(kind)]

    def _all(self, kind: str) -> list[bytes]:
        return [path.read_bytes() for path in sorted(self._folder.glob(f"*.{kind}"))]


class Died:
    """The calls that crashed a process once."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __contains__(self, call: str) -> bool:
        return call in self._ledger.texts("died")

    def add(self, call: str) -> None:
        self._ledger.add("died", call)
