"""Which rows of the feature tables the suite proves.

`@pytest.mark.parity("mastra-session", 94)` says that a test proves row 94 of
`parity/mastra-session.csv`. As a pytest plugin this module fails a test whose mark names no row,
and with `--parity=FILE` writes down which rows were proven. As a program, `scripts/parity`, it
runs the suite and brings the tables up to date. What the rows are about it does not know.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

FOLDER = Path(__file__).parent.parent / "parity"
STATUSES = ("done", "different", "later")


class Row(NamedTuple):
    """A feature: `done` when tests prove it, `different` with the reason, or `later`."""

    row: str
    feature: str
    status: str
    note: str


Table = list[Row]


def read_tables(folder: Path = FOLDER) -> dict[str, Table]:
    return {path.stem: read_table(path) for path in sorted(folder.glob("*.csv"))}


def read_table(path: Path) -> Table:
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    assert tuple(header) == Row._fields, f"{path.name} begins with {header}"
    return [Row(*row) for row in rows]


def write_table(path: Path, table: Table) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([Row._fields, *table])


def judge(name: str, table: Table, proven: set[str]) -> Table:
    """The table with `done` for the rows proven and for no other; `different` is a decision that
    no test takes back."""
    return [
        row
        if row.status == "different"
        else row._replace(status="done" if f"{name}/{row.row}" in proven else "later")
        for row in table
    ]


def claims(item: pytest.Item) -> list[str]:
    """What a test is marked to prove, as `table/row`. A mark without a row claims one that no
    table has."""
    return [
        f"{table}/{row}"
        for table, *rows in (mark.args or ("",) for mark in item.iter_markers("parity"))
        for row in rows or ("",)
    ]


class Proof:
    """The plugin: what the tests claim, and which of them passed.

    With several worker processes each collects the same claims and sends them at its end; the
    reports of the tests all come to the process that controls them.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._known = {
            f"{name}/{row.row}" for name, table in read_tables().items() for row in table
        }
        self._claims: dict[str, list[str]] = {}
        self._passed: set[str] = set()
        self._failed: set[str] = set()
        self._whole = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:  # the claims of this module are not known
            self._whole = False

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self._claims = {item.nodeid: rows for item in items if (rows := claims(item))}

    # Not a usage error at collection: a worker process of pytest-xdist could not tell of it.
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if unknown := [claim for claim in claims(item) if claim not in self._known]:
            pytest.fail(f"marked to prove {', '.join(unknown)}: no such row", pytrace=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid)
        elif report.when == "call":
            self._passed.add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._claims |= getattr(node, "workeroutput", {}).get("parity", {})

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["parity"] = self._claims
        elif self._whole and (result := self._config.getoption("--parity")):
            Path(result).write_text(json.dumps(sorted(self.proven())))

    def proven(self) -> set[str]:
        """The rows whose tests all ran and passed."""
        good = self._passed - self._failed
        every = {row for rows in self._claims.values() for row in rows}
        return every - {
            row for test, rows in self._claims.items() if test not in good for row in rows
        }


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--parity", metavar="FILE", help="write the proven rows to FILE, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Proof(config))


def run_suite(*, quiet: bool) -> tuple[int, set[str] | None]:
    """The suite's exit code and the rows that it proved: None when it did not run as a whole."""
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        workers = min(8, 2 * (os.cpu_count() or 1))  # half of the tests wait for something
        options = [f"--parity={result.name}", f"--numprocesses={workers}", "--dist=worksteal"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options],
            stdout=sys.stderr if quiet else None,
            check=False,
        )
        found = result.read()
    ran = done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    return done.returncode, set(json.loads(found)) if ran and found else None


def counts(tables: dict[str, Table]) -> dict[str, dict[str, int]]:
    found = {name: Counter(row.status for row in table) for name, table in tables.items()}
    found["all"] = sum(found.values(), Counter())
    return {
        name: {status: count[status] for status in STATUSES} | {"total": count.total()}
        for name, count in found.items()
    }


def show(found: dict[str, dict[str, int]]) -> Iterable[str]:
    width = max(map(len, found))
    for name, count in found.items():
        yield "  ".join(
            [f"{name:{width}}", *(f"{number:3} {status}" for status, number in count.items())]
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/parity", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if it would")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    options = parser.parse_args()

    code, proven = run_suite(quiet=options.json)
    if proven is None:
        return code or 1
    before = read_tables()
    after = {name: judge(name, table, proven) for name, table in before.items()}
    changed = [name for name in after if after[name] != before[name]]
    for name in changed:
        for old, new in zip(before[name], after[name], strict=True):
            if old != new:
                print(f"{name} {old.row}: {old.status} -> {new.status}", file=sys.stderr)
        if not options.check:
            write_table(FOLDER / f"{name}.csv", after[name])
    found = counts(after)
    print(json.dumps(found, indent=2) if options.json else "\n".join(show(found)))
    return 1 if options.check and changed else code


if __name__ == "__main__":
    sys.exit(main())
