"""What a run looks like: progress while it goes, tables at its end, JSON to keep."""

from __future__ import annotations

import importlib
import os
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
from msgspec import Struct

from .measure import Bar, Figure, Result
from .settings import Settings, file_system

PACKAGES = (
    "holdfast",
    "msgspec",
    "asyncpg",
    "pymongo",
    "openai-agents",
    "google-adk",
    "langgraph-checkpoint-sqlite",
)


class Machine(Struct, frozen=True, kw_only=True):
    """What the figures depend on, as far as a reader needs it."""

    system: str
    cores: int
    python: str
    sqlite: str
    disk: str
    fsync_us: float
    packages: dict[str, str]

    def __str__(self) -> str:
        packages = ", ".join(f"{name} {version}" for name, version in self.packages.items())
        disk = self.disk or "unknown file system"
        return (
            f"{self.system}, {self.cores} cores, Python {self.python}, SQLite {self.sqlite}, "
            f"{disk}, fsync of 4 KB {self.fsync_us:.0f} µs; {packages}"
        )


def machine(settings: Settings) -> Machine:
    """Describe this machine, and measure what a small durable write takes on it."""
    packages = {}
    for name in PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            packages[name] = "not installed"
    return Machine(
        system=f"{platform.system()} {platform.machine()}",
        cores=os.cpu_count() or 0,
        python=platform.python_version(),
        sqlite=sqlite3.sqlite_version,
        disk=file_system(settings.place or tempfile.gettempdir()),
        fsync_us=_fsync(settings),
        packages=packages,
    )


def _fsync(settings: Settings, times: int = 100) -> float:
    taken = []
    with settings.folder() as folder, open(folder / "synced", "ab") as file:
        for _ in range(times):
            start = time.perf_counter()
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1e6


def number(value: float) -> str:
    """Three figures or so, which is more than the noise allows."""
    if value >= 99.5:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.95 else f"{value:.2f}"


def told(thing: Figure | Bar) -> str:
    """The median and the quartiles, or why there are none."""
    if not thing.values:
        return thing.absent or "not measured"
    at = thing.spread
    unit = "" if thing.unit in ("×", "") else f" {thing.unit}"
    if len(thing.values) == 1:
        return f"{number(at.median)}{unit}"
    return f"{number(at.median)}{unit} ({number(at.q1)}–{number(at.q3)})"


def bar_text(bar: Bar) -> str:
    """The bar itself, as it is promised."""
    unit = f" {bar.unit}" if bar.unit not in ("×", "") else ""
    return f"{'≤' if bar.way == 'most' else '≥'} {bar.bar:g}{unit}"


def verdict(bar: Bar) -> str:
    return {True: "met", False: "NOT MET", None: "not measured"}[bar.met]


def tables(results: list[Result]) -> list[tuple[str, list[str], list[list[str]]]]:
    """The bars, then the figures behind them, as (title, columns, rows)."""
    bars = [
        [result.name, bar.name, told(bar), bar_text(bar), verdict(bar)]
        for result in results
        for bar in result.bars
    ]
    figures = [
        [result.name, figure.name, told(figure), figure.note]
        for result in results
        for figure in result.figures
    ]
    return [
        ("Bars", ["workload", "what", "median (quartiles)", "bar", ""], bars),
        ("Figures", ["workload", "what", "median (quartiles)", "how"], figures),
    ]


def notes(results: list[Result]) -> list[tuple[str, str]]:
    """What else is to be said, each with its workload."""
    return [(result.name, note) for result in results for note in result.notes]


def markdown(results: list[Result]) -> str:
    """The tables and notes as Markdown, which also reads well as it is."""
    lines = []
    for title, columns, rows in tables(results):
        widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
        lines += _table(title, columns, rows, widths)
    lines += [f"- {name}: {note}" for name, note in notes(results)]
    return "\n".join(lines)


def _table(title: str, columns: list[str], rows: list[list[str]], widths: list[int]) -> list[str]:
    lines = [f"{title}:", ""]
    for row in (columns, ["-" * width for width in widths], *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def keep(
    readme: Path, about: Machine | str, rounds: int, results: list[Result], order: Sequence[str]
) -> None:
    """Put a section for each workload below the heading "Results" of a page. The sections of
    workloads that were not measured now stay; `order` is that of all workloads."""
    before, heading, old = readme.read_text("utf-8").partition("## Results\n")
    if not heading:
        raise ValueError(f"{readme} has no heading Results")
    sections = dict(part.partition("\n\n")[::2] for part in old.split("\n### ")[1:])
    today = datetime.now(UTC).date().isoformat()
    for result in results:
        sections[result.name] = _section(result, f"{today}: {about}; {rounds} rounds.")
    names = sorted(sections.keys() & {*order}, key=order.index)
    text = "\n".join(f"\n### {name}\n\n{sections[name].strip()}" for name in names)
    readme.write_text(f"{before}{heading}{text}\n", "utf-8")


def _section(result: Result, about: str) -> str:
    """The table of one workload, with its bars first, and its notes."""
    rows = [[bar.name, told(bar), bar_text(bar), verdict(bar)] for bar in result.bars]
    rows += [[figure.name, told(figure), "", figure.note] for figure in result.figures]
    columns = ["what", "median (quartiles)", "bar", "how"]
    _, _, *lines = _table("", columns, rows, [3] * len(columns))
    return "\n".join([about, "", *lines, *(f"- {note}" for note in result.notes)])


def as_json(about: Machine, settings: Settings, results: list[Result]) -> bytes:
    """Everything, every value of every round included."""
    built = [
        {
            **msgspec.to_builtins(result),
            "bars": [
                {**msgspec.to_builtins(bar), "met": bar.met, **_at(bar)} for bar in result.bars
            ],
            "figures": [
                {**msgspec.to_builtins(figure), **_at(figure)} for figure in result.figures
            ],
        }
        for result in results
    ]
    document = {
        "machine": msgspec.to_builtins(about),
        "rounds": settings.rounds,
        "sizes": msgspec.to_builtins(settings.sizes),
        "results": built,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _at(thing: Figure | Bar) -> dict[str, Any]:
    return {"at": msgspec.to_builtins(thing.spread)} if thing.values else {}


class Progress:
    """Says what is measured now: a moving line on a terminal that has rich, plain lines
    otherwise."""

    def __init__(self) -> None:
        self._status: Any = None
        self._console: Any = None
        self._workload = ""
        self._steps = 0
        self._start = time.monotonic()
        if sys.stderr.isatty():
            try:
                self._console = importlib.import_module("rich.console").Console(stderr=True)
            except ImportError:
                self._console = None

    def __enter__(self) -> Progress:
        if self._console is not None:
            self._status = self._console.status("")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def begin(self, workload: str, title: str, at: int, of: int) -> None:
        """A workload begins."""
        self._workload = f"[{at}/{of}] {workload}"
        self._steps = 0
        if self._status is None:
            print(f"{self._workload}: {title} …", file=sys.stderr, flush=True)

    def step(self, what: str) -> None:
        """Something is about to be measured."""
        self._steps += 1
        if self._status is not None:
            passed = time.monotonic() - self._start
            self._status.update(f"{self._workload}  {self._steps}: {what}  {passed:.0f} s")

    def end(self, result: Result) -> None:
        """A workload is over: its bars at once, the tables come at the end."""
        for bar in result.bars:
            line = f"{self._workload}: {bar.name}: {told(bar)}, {bar_text(bar)}: {verdict(bar)}"
            if self._console is not None:
                self._console.print(line, highlight=False, markup=False)
            else:
                print(line, file=sys.stderr, flush=True)


def show(about: Machine, results: list[Result]) -> None:
    """The tables on standard output: drawn on a terminal that has rich, Markdown otherwise."""
    print(about, end="\n\n")
    try:
        if not sys.stdout.isatty():
            raise ImportError
        table = importlib.import_module("rich.table").Table
        console = importlib.import_module("rich.console").Console()
    except ImportError:
        print(markdown(results))
        return
    for title, columns, rows in tables(results):
        drawn = table(*columns, title=title)
        for row in rows:
            style = {"NOT MET": "red", "met": "green"}.get(row[-1])
            drawn.add_row(*row, style=style)
        console.print(drawn)
    for result in results:
        for note in result.notes:
            console.print(f"{result.name}: {note}", highlight=False, markup=False)
