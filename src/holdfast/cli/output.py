"""The output of a command: text for users, or JSON for programs.

Stored text is never trusted: control characters that could steer a terminal are escaped in both
forms, and nothing is interpreted as markup. Results go to stdout, remarks to stderr.
"""

from __future__ import annotations

import io
import itertools
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

# Format characters that scripts and emoji need; they neither move the cursor nor reorder text.
JOINERS = "\u200c\u200d"
# In JSON these characters occur only in strings, where the escape is equivalent.
_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
Lines: TypeAlias = str | Text | Iterable[str | Text]
WIDE = 100_000  # width if the output is not a terminal: nothing is truncated or wrapped


def plain(text: str) -> str:
    """Return the text on one line, with control and formatting characters escaped."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_plain, text))


def plain_lines(text: str) -> str:
    """Like `plain`, for a text of several lines."""
    return "\n".join(map(plain, text.replace("\t", "    ").split("\n")))


def _plain(char: str) -> str:
    if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") and char not in JOINERS:
        return char.encode("unicode_escape").decode()
    return char


def json_text(value: Any) -> str:
    """Encode a value as one line of JSON that is safe to print on a terminal."""
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return _IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def console(*, stderr: bool = False) -> Console:
    """Return a console that interprets no markup, and does not wrap if it is not a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else WIDE
    return Console(file=stream, width=width, markup=False, emoji=False, highlight=False)


def escape_unencodable() -> None:
    """Make stdout and stderr escape characters that their encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class Output:
    """Prints the output of one command, as JSON or as text. Strings are escaped; `rich.text.Text`
    objects are printed unchanged.
    """

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self.console = console()
        self.remarks = console(stderr=True)
        if json and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")

    def show(self, value: Any, lines: Lines, empty: str = "") -> None:
        """Write a result: the value as one line of JSON, or the lines as text. If there are no
        lines, `empty` is written as a remark."""
        if self.json:
            return self.emit(value)
        found = [lines] if isinstance(lines, (str, Text)) else [*lines]
        self.print(*found)
        if empty and not found:
            self.remark(empty)

    def emit(self, value: Any) -> None:
        """Write a value as a line of JSON and flush it."""
        print(json_text(value), flush=True)

    def print(self, *lines: str | Text) -> None:
        """Write lines of text."""
        for line in lines:
            self.console.print(_text(line), soft_wrap=True)

    def remark(self, *lines: str | Text) -> None:
        """Write notes to stderr, such as the next command to run."""
        for line in lines:
            self.remarks.print(_text(line, "dim"), soft_wrap=True)

    def note(self, *lines: str | Text) -> None:
        """Write notes to stderr like `remark`, but nothing with `--json`."""
        if not self.json:
            self.remark(*lines)

    def warn(self, text: str) -> None:
        """Write a warning to stderr."""
        self.remark(_text(text, "bold red"))

    @contextmanager
    def working(self, what: str) -> Iterator[Callable[[str], None]]:
        """Show a spinner with the elapsed time on a terminal. Yields a function that sets the text
        after it."""
        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
        with self._progress(*columns) as progress:
            task = progress.add_task(what)
            yield lambda state: progress.update(task, description=f"{what} {state}")

    @contextmanager
    def counting(self, what: str, total: int) -> Iterator[Callable[[str], None]]:
        """Show a progress bar over `total` items on a terminal. Yields a function to call with the
        name of each item before it is processed."""
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        name = TextColumn("{task.fields[name]}", markup=False)
        done = itertools.count()
        with self._progress(*columns, TimeElapsedColumn(), name) as progress:
            task = progress.add_task(what, total=total, name="")
            yield lambda name: progress.update(task, completed=next(done), name=plain(name))

    def _progress(self, *columns: ProgressColumn) -> Progress:
        shown = self.console if self.console.is_terminal else self.remarks
        # No progress bar on a terminal that shows the JSON.
        quiet = not shown.is_terminal or (self.json and self.console.is_terminal)
        return Progress(
            *columns,
            console=shown,
            transient=True,
            disable=quiet,
            redirect_stdout=False,
            redirect_stderr=False,
        )


def _text(line: str | Text, style: str = "") -> Text:
    return line if isinstance(line, Text) else Text(plain(line), style)
