"""Prints the output of `holdfast --help` and `holdfast --version`. Imports no third-party package,
so that both start fast.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from importlib import metadata

from .verbs import GROUPS, HELP, SECTIONS, VERBS

WIDEST = 100  # columns; longer lines are hard to read
OPTIONS = {
    "--help, -h": "Show this help. `holdfast VERB --help` explains a verb.",
    "--version": "Show the version.",
    "--install-completion": "Install completion of verbs and options for your shell.",
}


def answered(arguments: Sequence[str]) -> bool:
    """Print the overview or the version if the command line asks only for that. Return whether it
    was printed.
    """
    match list(arguments):
        case [] | ["--help"] | ["-h"]:
            print(overview(shutil.get_terminal_size().columns))
        case ["--version"]:
            print(version())
        case _:
            return False
    return True


def version(package: str = "holdfast") -> str:
    """Return the installed version of a package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def overview(columns: int) -> str:
    """Return the list of verbs by section, for a terminal with this number of columns."""
    return "\n".join(_lines(min(columns, WIDEST)))


def _lines(width: int) -> Iterator[str]:
    about, _, examples = HELP.partition("```\n")
    yield "Usage: holdfast VERB [OPTIONS] [ARGUMENTS]"
    yield ""
    yield from textwrap.wrap(about, width)
    yield ""
    for example in examples.removesuffix("```\n").splitlines():
        yield f"  {example}"
    indent = 2 + max(len(name) for name in [*VERBS, *GROUPS]) + 2
    for section in SECTIONS:
        yield from ("", f"{section}:")
        for name, summary in _verbs(section):
            yield from _entry(name, summary, indent, width)
    yield from ("", "Options:")
    for name, summary in OPTIONS.items():
        yield from _entry(name, summary, 2 + max(map(len, OPTIONS)) + 2, width)


def _verbs(section: str) -> Iterator[tuple[str, str]]:
    for name, (where, _, summary) in VERBS.items():
        if where == section:
            yield name, summary
    for name, (where, about, _) in GROUPS.items():
        if where == section:
            yield name, " ".join(about.partition("\n\n")[0].split())


def _entry(name: str, summary: str, indent: int, width: int) -> list[str]:
    first = f"  {name}".ljust(indent)
    return textwrap.wrap(
        summary,
        width,
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
    )
