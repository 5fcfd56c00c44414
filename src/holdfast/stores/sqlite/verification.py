"""Verification of an SQLite store: SQLite's integrity check of the file, and the checks of its
logs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from ...errors import StoreDamaged
from ...log.events import Key, Scope
from ..port import Damage
from ..sql import verification
from ..sql.tables import LIVE, completed
from .schema import translated
from .tables import SqliteTables, live_log


def logs_of(conn: sqlite3.Connection, target: Scope | Key | None) -> list[tuple[str, Key]]:
    """Return the incarnation and the key of each log to verify."""
    where, values = f"state = {LIVE}", []
    if target is not None:
        where += " AND tenant = ? AND session = ?"
        values += [target.tenant, target.session]
    if isinstance(target, Key):
        where += " AND thread = ?"
        values.append(target.thread)
    found = conn.execute(
        f"SELECT log, tenant, session, thread FROM logs WHERE {where} ORDER BY id", values
    )
    return [(log, Key(*key)) for log, *key in found]


def check_file(conn: sqlite3.Connection) -> Iterator[Damage]:
    """Yield the problems that SQLite's integrity check finds in the file."""
    try:
        with translated():
            for (text,) in conn.execute("PRAGMA quick_check"):
                if text != "ok":
                    yield Damage(problem="unreadable", detail=" ".join(text.split()))
    except StoreDamaged as error:
        yield malformed(error)


def malformed(error: StoreDamaged, key: Key | None = None) -> Damage:
    """Return the `Damage` for a file, or for a log in it, that cannot be read."""
    detail = f"{error.__cause__ or error}; replace it with a backup"
    return Damage(problem="unreadable", detail=detail, key=key)


def check_log(tables: SqliteTables, log: str, *, repair: bool) -> list[Damage]:
    """Check or repair a log, and return its problems. `log` is the incarnation, because the log
    gets another id if an index file is rebuilt during the verification."""
    id = live_log(tables.conn, log)
    check = verification.repair if repair else verification.check_log
    return [] if id is None else completed(check)(tables, id)
