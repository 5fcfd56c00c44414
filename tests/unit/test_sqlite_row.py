"""The row of a log on SQLite: which columns a write sets, since each of them costs its indexes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import msgspec
import pytest

from holdfast import key
from holdfast.log.catalog import Row
from holdfast.stores import rules
from holdfast.stores.sqlite import log as logs
from holdfast.stores.sqlite import schema


@pytest.fixture
def conn() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as conn:
        conn.executescript(schema.TABLES)
        schema.complete(conn)
        yield conn


def updates(conn: sqlite3.Connection, old: Row | None, new: Row) -> list[str]:
    """Return the updates of `logs` with which a row is replaced."""
    run: list[str] = []
    id = logs.begin(conn, old or new).id
    conn.set_trace_callback(run.append)
    logs.save_row(conn, id, old, new)
    conn.set_trace_callback(None)
    assert logs.entry_by_id(conn, id).row == new
    return [sql.partition(" WHERE ")[0] for sql in run if sql.startswith("UPDATE logs SET")]


def test_a_write_that_changes_no_listed_field_sets_the_document_alone(
    conn: sqlite3.Connection,
) -> None:
    old = rules.new_row(key("s"), 1_000)
    (update,) = updates(conn, old, msgspec.structs.replace(old, head=1, bytes=10))
    assert update.startswith("UPDATE logs SET doc = ")


def test_a_write_sets_the_columns_that_changed_and_no_others(conn: sqlite3.Connection) -> None:
    old = rules.new_row(key("s"), 1_000)
    (update,) = updates(conn, old, msgspec.structs.replace(old, head=1, run="running", wake=0))
    assert update.startswith("UPDATE logs SET run = 'running', wake = 0, doc = ")
    assert conn.execute("SELECT run, wake, active FROM logs").fetchone() == ("running", 0, 1)


def test_a_column_is_set_to_null_when_its_field_is_removed(conn: sqlite3.Connection) -> None:
    old = msgspec.structs.replace(rules.new_row(key("s"), 1_000), wake=5)
    updates(conn, old, msgspec.structs.replace(old, wake=None))
    assert conn.execute("SELECT wake FROM logs").fetchone() == (None,)


def test_a_log_that_is_not_listed_yet_gets_all_columns(conn: sqlite3.Connection) -> None:
    (update,) = updates(conn, None, rules.new_row(key("s"), 1_000))
    for name in ("user", "workspace", "agent", "phase", "run", "created", "active", "wake"):
        assert f"{name} = " in update
