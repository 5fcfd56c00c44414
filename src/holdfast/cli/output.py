"""Where output goes and in what form: text for people, JSON for programs.

Stored text is never trusted: what could steer a terminal is escaped, in both forms,
and nothing in it is taken for markup. Results go to stdout, remarks to stderr.
"""

from __future__ import annotations

import io
import itertools
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import Any

import msgspec
from rich.console import Console, RenderableType
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

# Format characters that scripts and emoji need; they move no cursor and reorder nothing.
JOINERS = "\u200c\u200d"
# In JSON text these can only stand inside strings, where the escape means the same.
_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
WIDE = 100_000  # columns of an output that is no terminal: nothing is cut or wrapped


def version(package: str = "holdfast") -> str:
    """The installed version of a package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def plain(text: str) -> str:
    """The text on one line, with everything that could steer a terminal escaped."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_plain, text))


def _plain(char: str) -> str:
    if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") and char not in JOINERS:
        return char.encode("unicode_escape").decode()
    return char


def json_text(value: Any) -> str:
    """One line of JSON that is safe on a terminal and equal to `value` for a parser."""
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return _IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def console(*, stderr: bool = False) -> Console:
    """A console that interprets nothing, and as wide as it takes when it is no terminal."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else WIDE
    return Console(file=stream, width=width, markup=False, emoji=False, highlight=False)


def tolerant() -> None:
    """Let a terminal that cannot show a character show its escape instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class Output:
    """One command's output, in the form that the user asked for."""

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self.console = console()
        self.remarks = console(stderr=True)
        if json and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")

    def emit(self, value: Any) -> None:
        """Write a value as a line of JSON, at once."""
        print(json_text(value), flush=True)

    def print(self, *lines: RenderableType) -> None:
        """Write lines for people; nothing in them is interpreted."""
        for line in lines:
            self.console.print(line, soft_wrap=isinstance(line, (str, Text)))

    def remark(self, text: str) -> None:
        """Say something beside the result, such as where to read on."""
        self.remarks.print(Text(text, style="dim"), soft_wrap=True)

    def warn(self, text: str) -> None:
        """Say something beside the result that nobody should overlook."""
        self.remarks.print(Text(text, style="bold red"), soft_wrap=True)

    @contextmanager
    def working(self, what: str) -> Iterator[Callable[[str], None]]:
        """A progress display with the time, where somebody watches; takes the state so far."""
        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
        with self._progress(*columns) as progress:
            task = progress.add_task(what)
            yield lambda state: progress.update(task, description=f"{what} {state}")

    @contextmanager
    def counting(self, what: str, total: int) -> Iterator[Callable[[str], None]]:
        """A progress bar over `total` things, where somebody watches; told of each that is done
        next, by its name."""
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        name = TextColumn("{task.fields[name]}", markup=False)
        done = itertools.count()
        with self._progress(*columns, TimeElapsedColumn(), name) as progress:
            task = progress.add_task(what, total=total, name="")
            yield lambda name: progress.update(task, completed=next(done), name=plain(name))

    def _progress(self, *columns: ProgressColumn) -> Progress:
        shown = self.console if self.console.is_terminal else self.remarks
        # Never on the terminal that takes the JSON.
        quiet = not shown.is_terminal or (self.json and self.console.is_terminal)
        return Progress(
            *columns,
            console=shown,
            transient=True,
            disable=quiet,
            redirect_stdout=False,
            redirect_stderr=False,
        )
