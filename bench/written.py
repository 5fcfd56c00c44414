"""What appends write, counted from outside: rows of tables, pages of write-ahead logs,
bytes of other files. Nothing here looks inside a store."""

from __future__ import annotations

import re
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import Struct

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")


class Wal(Struct, frozen=True):
    """What is in a write-ahead log: transactions, pages, bytes; `era` changes when
    SQLite begins it anew."""

    commits: int = 0
    pages: int = 0
    bytes: int = 0
    era: tuple[int, int] = (0, 0)


def read_wal(path: Path) -> Wal:
    """Count the valid frames: those that carry the salts of the header."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Wal()
    if len(data) < _HEADER.size:
        return Wal()
    _, _, size, _, salt1, salt2, _, _ = _HEADER.unpack_from(data)
    commits = pages = 0
    for at in range(_HEADER.size, len(data) - _FRAME.size - size + 1, _FRAME.size + size):
        _, after, *salts, _, _ = _FRAME.unpack_from(data, at)
        if salts != [salt1, salt2]:
            break
        pages += 1
        commits += after > 0  # the size of the database stands in the last frame of a commit
    return Wal(commits, pages, pages * (size + _FRAME.size), (salt1, salt2))


def databases(folder: Path) -> list[Path]:
    """The SQLite files in a folder."""
    return sorted(path for path in folder.rglob("*.db") if path.is_file())


def begin_wal_anew(folder: Path) -> None:
    """Move what the write-ahead logs hold into their databases, so that they start empty."""
    for path in databases(folder):
        with closing(sqlite3.connect(path, timeout=30)) as conn:
            conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def wal_of(folder: Path) -> Wal:
    """The write-ahead logs of a folder, added up."""
    found = [read_wal(path.with_name(path.name + "-wal")) for path in databases(folder)]
    return Wal(
        sum(wal.commits for wal in found),
        sum(wal.pages for wal in found),
        sum(wal.bytes for wal in found),
        found[0].era if found else (0, 0),
    )


def other_bytes(folder: Path) -> int:
    """The sizes of all files that are not SQLite's."""
    return sum(
        path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and not re.search(r"\.db(-wal|-shm|\.lock)?$", path.name)
    )


class Rows(Struct):
    """Rows inserted, updated and deleted, by table, and the bytes of what they hold then."""

    counts: dict[str, int] = {}
    bytes: int = 0


@contextmanager
def counting_rows(folder: Path) -> Iterator[Rows]:
    """What is written to tables inside the block, known once it is over.

    Counted by triggers in the databases themselves, so by whichever connection wrote;
    they cost writes of their own, so nothing else can be measured meanwhile.
    """
    rows = Rows()
    tables: list[tuple[Path, str]] = []
    for path in databases(folder):
        with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as conn:
            tables += [(path, table) for table in _tables(conn)]
            conn.execute("CREATE TABLE bench_rows (tab TEXT, what TEXT, bytes INTEGER)")
            for table in _tables(conn):
                size = _size_of(conn, table)
                for what in ("INSERT", "UPDATE", "DELETE"):
                    held = "0" if what == "DELETE" else size
                    conn.execute(
                        f"CREATE TRIGGER bench_{table}_{what} AFTER {what} ON {table} BEGIN"
                        f" INSERT INTO bench_rows VALUES ('{table}', '{what.lower()}', {held});"
                        " END"
                    )
    try:
        yield rows
    finally:
        for path in databases(folder):
            with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as conn:
                for table, what, number, size in conn.execute(
                    "SELECT tab, what, count(*), sum(bytes) FROM bench_rows GROUP BY tab, what"
                ).fetchall():
                    name = f"{table} {what}"
                    rows.counts[name] = rows.counts.get(name, 0) + number
                    rows.bytes += size
                for _, table in (found for found in tables if found[0] == path):
                    for what in ("INSERT", "UPDATE", "DELETE"):
                        conn.execute(f"DROP TRIGGER bench_{table}_{what}")
                conn.execute("DROP TABLE bench_rows")


def _tables(conn: sqlite3.Connection) -> list[str]:
    return [
        name
        for (name,) in conn.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
            " AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'bench_%'"
        )
    ]


def _size_of(conn: sqlite3.Connection, table: str) -> str:
    """The size of what a row holds, as SQL for a trigger."""
    columns = [row[1] for row in conn.execute(f"PRAGMA table_info({table})")]
    return " + ".join(f"coalesce(length(CAST(NEW.{name} AS BLOB)), 0)" for name in columns)
