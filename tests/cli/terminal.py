"""`holdfast` in a terminal: what is on the screen is waited for, keys are pressed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import struct
import termios
import time
from pathlib import Path
from types import TracebackType

from tests import forks

from .emulator import Emulator

DEADLINE = 60.0
READY = "\n>\n"  # an empty prompt on the screen
STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A command with a terminal of its own, whose screen can be read. `seen` is all that it has
    written, without styles and movements of the cursor. It answers what terminals are asked.
    """

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        columns: int = 200,
        rows: int = 50,
        term: str = "xterm",
        program: tuple[str, ...] = ("-m", "holdfast.cli"),
    ) -> None:
        self._keys, screen = os.openpty()
        fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen = Emulator(columns, rows)
        self.process = forks.popen(
            *program,
            *arguments,
            stdin=screen,
            stdout=screen,
            stderr=screen,
            cwd=cwd,
            env={**os.environ, "TERM": term},
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
        self.press(line + "\r")

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

    def until_screen(self, *texts: str, without: str = "") -> list[str]:
        """Wait until all `texts`, and not `without`, are on the screen; its lines."""
        end = time.monotonic() + DEADLINE
        while True:
            shown = self.screen.text
            if all(text in shown for text in texts) and not (without and without in shown):
                return shown.splitlines()
            if time.monotonic() > end or not self._more(end):
                raise AssertionError(f"{texts!r} did not come:\n{shown}")

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
        self.screen.feed(data)
        if self.screen.replies:
            self.press(self.screen.replies)
            self.screen.replies = ""
        self.seen += STYLES.sub("", data.decode(errors="replace")).replace("\r", "")
        return bool(data)
