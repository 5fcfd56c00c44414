"""`holdfast` in a terminal: what is on the screen is waited for, keys are pressed."""

from __future__ import annotations

import contextlib
import os
import re
import select
import time
from pathlib import Path
from types import TracebackType

from tests import forks

DEADLINE = 60.0
STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A command with a terminal of its own, in which Ctrl-C is a signal."""

    def __init__(self, *arguments: str, cwd: Path) -> None:
        self._keys, screen = os.openpty()
        self.process = forks.popen(
            *("-m", "holdfast.cli", *arguments),
            stdin=screen,
            stdout=screen,
            stderr=screen,
            cwd=cwd,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "200"},
            start_new_session=True,
        )
        os.close(screen)
        self.seen = ""
        self._read = 0

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._keys)

    def type(self, line: str) -> None:
        self.press(line + "\n")

    def press(self, keys: str) -> None:
        os.write(self._keys, keys.encode())

    def until(self, text: str) -> str:
        """Wait until `text` stands behind what was waited for before; all up to it."""
        end = time.monotonic() + DEADLINE
        while (place := self.seen.find(text, self._read)) < 0:
            if time.monotonic() > end or not self._more(end):
                raise AssertionError(f"{text!r} did not come:\n{self.seen}")
        start, self._read = self._read, place + len(text)
        return self.seen[start : self._read]

    def end(self) -> int:
        """Wait until the command ends; its exit code."""
        while self._more(time.monotonic() + DEADLINE):
            pass
        return self.process.wait(DEADLINE)

    def _more(self, end: float) -> bool:
        ready, _, _ = select.select([self._keys], [], [], max(0.0, end - time.monotonic()))
        data = b""
        if ready:
            with contextlib.suppress(OSError):  # nobody has the other end any more
                data = os.read(self._keys, 65_536)
        self.seen += STYLES.sub("", data.decode(errors="replace")).replace("\r", "")
        return bool(data)
