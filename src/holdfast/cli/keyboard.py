"""Reads lines from standard input without blocking the event loop."""

from __future__ import annotations

import asyncio
import codecs
import os
import sys
import threading
from typing import Protocol

SIZE = 65_536


class Input(Protocol):
    """The source of the lines of a chat. `typed` says whether a user types them."""

    typed: bool

    async def line(self) -> str | None:
        """Return the next line, or None at the end."""

    async def close(self) -> None:
        """Stop reading."""


class Keyboard:
    """Reads the lines of standard input, then returns None at its end.

    A thread reads them from the file descriptor: a thread that waits inside `sys.stdin` would hold
    a lock that the interpreter needs at exit.
    """

    def __init__(self) -> None:
        self.typed = sys.stdin.isatty()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._left = False
        self._thread = threading.Thread(target=self._read, name="keyboard", daemon=True)
        self._thread.start()

    async def line(self) -> str | None:
        """Return the next line without its line ending."""
        return await self._lines.get()

    async def close(self) -> None:
        """Stop reading from standard input."""
        self._left = True

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        rest = ""
        while not self._left:
            try:
                data = os.read(sys.stdin.fileno(), SIZE)
            except OSError:  # the terminal was closed
                data = b""
            *whole, rest = (rest + decoder.decode(data, final=not data)).split("\n")
            for line in whole:
                self._put(line.removesuffix("\r"))
            if not data:
                if rest:
                    self._put(rest)
                self._put(None)
                return

    def _put(self, line: str | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
        except RuntimeError:  # the loop is closed
            self._left = True
