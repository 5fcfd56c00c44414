"""Worker processes, as the one who watches them sees them: lines of JSON in both directions."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from subprocess import PIPE, Popen
from types import TracebackType
from typing import Any

from tests import forks

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 120.0  # seconds until a worker that says nothing more counts as hanging

Line = dict[str, Any]


class ChildFailed(Exception):
    """A worker ended when it should have gone on; its last words are the text."""


class Child:
    """A running worker. Leaving the `with` block ends it."""

    def __init__(
        self, worker: str, *arguments: str, under: Sequence[str] = (), patience: float = PATIENCE
    ) -> None:
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        words = ("-m", f"tests.crash.workers.{worker}", *arguments)
        pipes: dict[str, Any] = {"stdin": PIPE, "stdout": PIPE, "stderr": self._words}
        self.process = (
            Popen([*under, sys.executable, *words], cwd=ROOT, **pipes)
            if under
            else forks.popen(*words, cwd=ROOT, **pipes)
        )
        self._timer = threading.Timer(patience, self.process.kill)
        self._timer.daemon = True
        self._timer.start()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        if self.process.poll() is None:
            self.process.kill()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        with self.process:
            pass
        self._words.close()

    def tell(self, line: Line) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

    def lines(self) -> Iterator[Line]:
        """What the worker says, until it ends; a line that was cut off is not one."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith(b"\n"):
                yield json.loads(line)

    def hear(self) -> Line:
        for line in self.lines():
            return line
        raise ChildFailed(self.last_words())

    def kill(self) -> None:
        self.process.kill()

    def freeze(self) -> None:
        """Stop the process where it stands; returns when it does stand."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def finish(self) -> None:
        """Let the worker come to its end, and fail if that was not a good one."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        for _ in self.lines():
            pass
        if self.process.wait() != 0:
            raise ChildFailed(self.last_words())

    def last_words(self) -> str:
        code = self.process.wait()
        self._words.seek(0)
        return f"exit {code}: {self._words.read().decode(errors='replace').strip()[-2000:]}"
