"""The SQLite tables, their schema version, and the function that opens a connection.

The tables are rowid tables with integer log keys, and ids increase with time, so that inserts go to
the end of the large tables and their indexes. `logs` has one row per log: its lease, the fields
that lists search by, and the whole `Row` as JSON in `doc`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from ...errors import (
    InvalidValue,
    StoreDamaged,
    StoreError,
    StoreTooNew,
    StoreUnavailable,
)

BUSY_MS = 30_000
APPLICATION = 0x486F6C64  # "Hold"

TABLES = """
CREATE TABLE logs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    log TEXT NOT NULL UNIQUE,
    state INTEGER NOT NULL,
    tenant TEXT, session TEXT, thread TEXT,
    base INTEGER, shared INTEGER NOT NULL,
    token INTEGER NOT NULL, owner TEXT, since INTEGER NOT NULL, until INTEGER NOT NULL,
    user TEXT, workspace TEXT, agent TEXT, phase TEXT, run TEXT,
    created INTEGER, active INTEGER, stale_at INTEGER, wake INTEGER,
    doc BLOB
);
CREATE UNIQUE INDEX logs_key ON logs (tenant, session, thread);
CREATE INDEX logs_active ON logs (tenant, active, id) WHERE thread = 'main';
CREATE INDEX logs_created ON logs (tenant, created, id) WHERE thread = 'main';
CREATE INDEX logs_user ON logs (tenant, user, active, id) WHERE thread = 'main';
CREATE INDEX logs_workspace ON logs (tenant, workspace, active, id) WHERE thread = 'main';
CREATE INDEX logs_agent ON logs (tenant, agent, active, id) WHERE thread = 'main';
CREATE INDEX logs_threads ON logs (tenant, session, active, id);
CREATE INDEX logs_stale ON logs (tenant, stale_at, id) WHERE stale_at IS NOT NULL;
CREATE INDEX logs_wake ON logs (tenant, agent, wake, id) WHERE wake IS NOT NULL;
CREATE INDEX logs_base ON logs (base, shared) WHERE base IS NOT NULL;
CREATE INDEX logs_state ON logs (state) WHERE state <> 0;

CREATE TABLE events (
    rid INTEGER PRIMARY KEY,
    log INTEGER NOT NULL, seq INTEGER NOT NULL,
    id TEXT NOT NULL, kind TEXT NOT NULL, v INTEGER NOT NULL,
    run TEXT, actor TEXT, cause TEXT,
    at INTEGER NOT NULL, hash BLOB NOT NULL, data BLOB NOT NULL
);
CREATE UNIQUE INDEX events_seq ON events (log, seq);
CREATE UNIQUE INDEX events_id ON events (id, log);

CREATE TABLE payloads (
    log INTEGER NOT NULL, seq INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE UNIQUE INDEX payloads_seq ON payloads (log, seq);

CREATE TABLE terms (
    tenant TEXT NOT NULL, map TEXT NOT NULL, key TEXT NOT NULL, term TEXT NOT NULL,
    active INTEGER NOT NULL, log INTEGER NOT NULL,
    PRIMARY KEY (tenant, map, key, term, active, log)
) WITHOUT ROWID;
CREATE INDEX terms_log ON terms (log);

CREATE TABLE pending (
    log INTEGER NOT NULL, id TEXT NOT NULL,
    tenant TEXT NOT NULL, session TEXT NOT NULL, what TEXT NOT NULL, assignee TEXT,
    at INTEGER NOT NULL, seq INTEGER NOT NULL, item BLOB NOT NULL,
    PRIMARY KEY (log, id)
) WITHOUT ROWID;
CREATE INDEX pending_at ON pending (tenant, at, log, seq);
CREATE INDEX pending_assignee ON pending (tenant, assignee, at, log, seq)
    WHERE assignee IS NOT NULL;
CREATE INDEX pending_session ON pending (tenant, session, at, log, seq);

CREATE TABLE claims (
    tenant TEXT NOT NULL, name TEXT NOT NULL, session TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
CREATE INDEX claims_session ON claims (tenant, session);

CREATE TABLE drafts (
    log INTEGER NOT NULL, message TEXT NOT NULL, token INTEGER NOT NULL,
    start INTEGER NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (log, message, token, start)
) WITHOUT ROWID;

CREATE TABLE snapshots (
    log INTEGER NOT NULL, version TEXT NOT NULL, token INTEGER NOT NULL,
    seq INTEGER NOT NULL, state BLOB NOT NULL
);
CREATE UNIQUE INDEX snapshots_version ON snapshots (log, version);

CREATE TABLE owners (
    id INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT, session TEXT
);
CREATE UNIQUE INDEX owners_key ON owners (tenant, session);

CREATE TABLE blobs (
    owner INTEGER NOT NULL, sha256 TEXT NOT NULL, size INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE UNIQUE INDEX blobs_sha256 ON blobs (owner, sha256);
"""

# One script per version, which migrates from the previous version; a new file runs all scripts.
MIGRATIONS = (TABLES,)
VERSION = len(MIGRATIONS)

# Columns that `complete` adds without a new schema version.
ADDED = {
    "events": {"link": "BLOB"},
    "logs": {"renewed": "INTEGER NOT NULL DEFAULT 0", "mark": "TEXT"},
}


def connect(path: str, *, synchronous: str, create: bool = False) -> sqlite3.Connection:
    """Open a connection in autocommit mode with Holdfast's settings."""
    conn = sqlite3.connect(
        f"file:{quote(os.fsencode(os.path.abspath(path)))}?mode={'rwc' if create else 'rw'}",
        uri=True,
        timeout=BUSY_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        conn.execute(f"PRAGMA synchronous = {synchronous}")
        conn.execute("PRAGMA secure_delete = ON")
        conn.execute("PRAGMA temp_store = MEMORY")
    except BaseException:
        conn.close()
        raise
    return conn


def prepare(conn: sqlite3.Connection, path: str) -> None:
    """Create or migrate the tables. The caller holds the writers' lock, so that only one process
    migrates."""
    (version,) = conn.execute("PRAGMA user_version").fetchone()
    (application,) = conn.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION:
        if version or conn.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise InvalidValue(
                field="url",
                problem=f"{path!r} is a database of another program",
                remedy="use a new file",
            )
        conn.execute("PRAGMA journal_mode = WAL")
    if version > VERSION:
        raise StoreTooNew(
            problem=f"{path!r} has schema {version}, but this release supports only {VERSION}",
            found=version,
            known=VERSION,
        )
    if version < VERSION:
        conn.execute("BEGIN IMMEDIATE")
        try:
            (version,) = conn.execute("PRAGMA user_version").fetchone()
            for script in MIGRATIONS[version:]:
                for statement in script.split(";"):
                    conn.execute(statement)
            conn.execute(f"PRAGMA application_id = {APPLICATION}")
            conn.execute(f"PRAGMA user_version = {VERSION}")
            conn.execute("COMMIT")
        except BaseException:
            conn.execute("ROLLBACK")
            raise
    complete(conn)


def complete(conn: sqlite3.Connection) -> None:
    """Add optional columns if they are missing. They need no new schema version, because older
    releases work without them. The caller holds the writers' lock."""
    for table, columns in ADDED.items():
        known = {name for _, name, *_ in conn.execute(f"PRAGMA table_info({table})")}
        for name, definition in columns.items():
            if name not in known:
                conn.execute(f"ALTER TABLE {table} ADD COLUMN {name} {definition}")


@contextmanager
def opening(path: str) -> Iterator[None]:
    """Context manager that raises `InvalidValue` with a remedy if the file is not a database."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
            raise
        raise InvalidValue(
            field="url",
            problem=f"{path!r} is not an SQLite database, or its first page is damaged",
            remedy="restore a backup, or use a new file",
        ) from error


@contextmanager
def translated(path: str | None = None) -> Iterator[None]:
    """Context manager that translates the driver's errors into Holdfast errors, with the driver's
    error as the cause. `path` is the path of the database, if known."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise translation(error, path) from error


def translation(error: sqlite3.Error | OSError, path: str | None = None) -> StoreError:
    """Return the Holdfast error for an error of the SQLite driver or the operating system."""
    if isinstance(error, (sqlite3.OperationalError, OSError)):
        return StoreUnavailable(problem=f"the database is unavailable: {error}")
    if is_damage(error):
        what = "the database file" if path is None else f"database file {path!r}"
        return StoreDamaged(problem=f"{what} is damaged ({error}): replace it with a backup")
    return StoreError(problem=f"the database reported an error: {error}")


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether an error means that the database file is damaged."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary code, without details
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def folder_of(path: str) -> Path:
    """Return the folder of a database file. Raises an error if the folder does not exist."""
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise InvalidValue(
            field="url", problem=f"folder {str(folder)!r} does not exist", remedy="create it first"
        )
    return folder
