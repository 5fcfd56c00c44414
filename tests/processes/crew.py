"""The worker processes of a check, as the one who leads them sees them."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Iterator
from subprocess import PIPE
from typing import Any

from .. import forks
from ..crash.children import ROOT, Child, Line


class Worker(Child):
    """A process that carries out what it is told, one line at a time."""

    def __init__(self, *, patience: float, module: str = "tests.processes.worker") -> None:
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self.process = forks.popen(
            "-m", module, cwd=ROOT, stdin=PIPE, stdout=PIPE, stderr=self._words
        )
        self._timer = threading.Timer(patience, self.process.kill)
        self._timer.daemon = True
        self._timer.start()

    def order(self, do: str, **arguments: Any) -> None:
        """Tell it what to do; `hear` gives the answer, or the error under `error`."""
        self.tell({"do": do, **arguments})

    def ask(self, do: str, **arguments: Any) -> Line:
        self.order(do, **arguments)
        return self.hear()


@contextlib.contextmanager
def crew(
    count: int, *, patience: float, module: str = "tests.processes.worker"
) -> Iterator[list[Worker]]:
    """So many workers, all up and waiting for orders. None outlives `patience` seconds."""
    with contextlib.ExitStack() as stack:
        workers = [Worker(patience=patience, module=module) for _ in range(count)]
        for worker in workers:
            stack.enter_context(worker)
        for worker in workers:
            worker.hear()
        yield workers
        for worker in workers:
            worker.finish()
