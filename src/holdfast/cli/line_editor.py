"""Line editing for a chat in a terminal, with history, several lines, and text above the prompt.

Needs `prompt_toolkit`; `holdfast.cli.keyboard` reads plain lines where it is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterable
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import in_terminal
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.shortcuts import CompleteStyle
from rich.cells import chop_cells

from .output import plain_lines

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
PERIOD = 0.1  # seconds between two frames of the spinner
BELOW = 6  # rows of the terminal that are kept for the prompt
LATEST = 8_000  # characters at the end of a message that can be on the screen
READY = "> "  # the prompt for a message


class LineEditor:
    """Reads messages in a terminal while other text is printed above the prompt.

    Enter sends what was typed; Alt-Enter, or Esc and then Enter, starts another line. The arrow
    keys recall earlier input. `interrupt` is called for Ctrl-C, unless it only clears the input.
    """

    typed = True

    def __init__(self, commands: Iterable[str], interrupt: Callable[[], None]) -> None:
        self.question = READY  # the prompt
        self.streaming = ""  # the part of a message that has arrived so far
        self.activity: str | None = None  # what the agent does, behind the spinner
        self._interrupt = interrupt
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._writes: asyncio.Queue[Callable[[], None]] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._frames = itertools.cycle(FRAMES)
        self._history = InMemoryHistory()
        self._tasks: list[asyncio.Task[Any]] = []
        self._session: PromptSession[str] = PromptSession(
            self._message,
            multiline=True,
            prompt_continuation=lambda width, line, wrapped: " " * width,
            key_bindings=self._keys(),
            history=self._history,
            completer=WordCompleter([f"/{name}" for name in commands], sentence=True),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            reserve_space_for_menu=0,
            erase_when_done=True,
        )

    @property
    def running(self) -> bool:
        """Whether the prompt is on the screen."""
        return self._session.app.is_running

    def remember(self, lines: Iterable[str]) -> None:
        """Add earlier input to the history, oldest first."""
        for line in lines:
            self._history.append_string(line)

    def refresh(self) -> None:
        """Draw the prompt again after one of its parts was changed."""
        self._session.app.invalidate()

    def write(self, write: Callable[[], None]) -> None:
        """Call `write`, which prints something, above the prompt, in the order of the calls. May be
        called from any thread."""
        if self._tasks:
            self._loop.call_soon_threadsafe(self._writes.put_nowait, write)
        else:
            write()

    async def line(self) -> str | None:
        """Return what is entered next, or None after Ctrl-D."""
        if not self._tasks:
            steps = (self._edit(), self._print(), self._spin())
            self._tasks = [asyncio.ensure_future(step) for step in steps]
        return await self._lines.get()

    async def close(self) -> None:
        """Print what is left, and restore the terminal."""
        if not self._tasks:
            return
        await asyncio.sleep(0)  # writes of this thread are in the queue then
        editing, *others = self._tasks
        printed = asyncio.ensure_future(self._writes.join())
        await asyncio.wait([editing, printed, *others], return_when=asyncio.FIRST_COMPLETED)
        if self.running:
            self._session.app.exit(result="")
        for task in (printed, *others):
            task.cancel()
        await asyncio.gather(editing, printed, *others, return_exceptions=True)
        self._tasks = []
        for task in (editing, *others):
            if not task.cancelled():
                task.result()  # raises what ended the editor, if it failed
        while not self._writes.empty():
            self._writes.get_nowait()()

    async def _edit(self) -> None:
        try:
            with patch_stdout(raw=True), contextlib.suppress(EOFError):
                await self._session.prompt_async(handle_sigint=False)
        finally:
            self._lines.put_nowait(None)

    async def _print(self) -> None:
        try:
            await self._print_all()
        finally:
            self._lines.put_nowait(None)  # an error ends the input, and `close` raises it

    async def _print_all(self) -> None:
        while True:
            writes = [await self._writes.get()]
            while not self._writes.empty():
                writes.append(self._writes.get_nowait())
            async with in_terminal():
                for write in writes:
                    write()
            for _ in writes:
                self._writes.task_done()

    async def _spin(self) -> None:
        while True:
            await asyncio.sleep(PERIOD)
            if self.activity is not None:
                self.refresh()

    def _message(self) -> StyleAndTextTuples:
        """Return the text before the input: the message that arrives, the spinner, the prompt."""
        parts: StyleAndTextTuples = []
        if self.streaming:
            size = self._session.app.output.get_size()
            for line in tail(self.streaming, size.columns, size.rows - BELOW):
                parts.append(("", f"{line}\n"))
        if self.activity is not None:
            parts.append(("ansibrightblack", f"{next(self._frames)} {self.activity}\n"))
        parts.append(("bold", self.question))
        return parts

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def _enter(event: KeyPressEvent) -> None:
            text = event.current_buffer.text
            event.current_buffer.append_to_history()
            event.current_buffer.reset()
            self._lines.put_nowait(text)

        @keys.add("escape", "enter")
        def _newline(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c")
        def _ctrl_c(event: KeyPressEvent) -> None:
            if event.current_buffer.text and self.activity is None:
                event.current_buffer.reset()
            else:
                self._interrupt()

        return keys


def tail(text: str, columns: int, rows: int) -> list[str]:
    """Return the last rows of a text on a terminal with this many columns."""
    lines = plain_lines(text[-LATEST:]).split("\n")
    wrapped = [part for line in lines for part in chop_cells(line, max(columns - 1, 2)) or [""]]
    return wrapped[-max(rows, 1) :]
