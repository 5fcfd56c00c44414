"""The tables, the function that an append calls, their versions, and how they are created.

`hf` stands for the schema's name in every statement of this package. The function's name includes
its version: a newer schema keeps the functions that older programs call, so that old and new
processes run side by side during a deployment.
"""

from __future__ import annotations

from asyncpg import exceptions as pg

from ...errors import InvalidValue, StoreError, StoreTooNew
from .append_function import APPEND_1, APPEND_2, APPEND_3
from .database import Link, PostgresDatabase
from .text_tables import SEARCH

TABLES = """
CREATE TABLE hf.logs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    log text COLLATE "C" NOT NULL UNIQUE,
    state smallint NOT NULL,
    version bigint NOT NULL,
    tenant text COLLATE "C", session text COLLATE "C", thread text COLLATE "C",
    base bigint, shared bigint NOT NULL,
    token bigint NOT NULL, owner text COLLATE "C", since bigint NOT NULL, until bigint NOT NULL,
    "user" text COLLATE "C", workspace text COLLATE "C", agent text COLLATE "C",
    phase text COLLATE "C", run text COLLATE "C",
    created bigint, active bigint, stale_at bigint, wake bigint,
    doc bytea NOT NULL
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX logs_key ON hf.logs (tenant, session, thread);
CREATE INDEX logs_active ON hf.logs (tenant, active, id) WHERE thread = 'main';
CREATE INDEX logs_created ON hf.logs (tenant, created, id) WHERE thread = 'main';
CREATE INDEX logs_user ON hf.logs (tenant, "user", active, id) WHERE thread = 'main';
CREATE INDEX logs_workspace ON hf.logs (tenant, workspace, active, id) WHERE thread = 'main';
CREATE INDEX logs_agent ON hf.logs (tenant, agent, active, id) WHERE thread = 'main';
CREATE INDEX logs_stale ON hf.logs (tenant, stale_at, id) WHERE stale_at IS NOT NULL;
CREATE INDEX logs_wake ON hf.logs (tenant, agent, wake, id) WHERE wake IS NOT NULL;
CREATE INDEX logs_base ON hf.logs (base, shared) WHERE base IS NOT NULL;
CREATE INDEX logs_state ON hf.logs (state) WHERE state <> 0;

CREATE TABLE hf.events (
    log bigint NOT NULL, seq bigint NOT NULL,
    id text COLLATE "C" NOT NULL, kind text COLLATE "C" NOT NULL, v integer NOT NULL,
    run text COLLATE "C", actor text COLLATE "C", cause text COLLATE "C",
    at bigint NOT NULL, hash bytea NOT NULL, data bytea NOT NULL,
    PRIMARY KEY (log, seq)
);
CREATE UNIQUE INDEX events_id ON hf.events (log, id);
ALTER TABLE hf.events ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE hf.terms (
    tenant text COLLATE "C" NOT NULL, term bytea NOT NULL,
    active bigint NOT NULL, log bigint NOT NULL,
    PRIMARY KEY (tenant, term, active, log)
);
CREATE INDEX terms_log ON hf.terms (log);

CREATE TABLE hf.pending (
    log bigint NOT NULL, id text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL, session text COLLATE "C" NOT NULL,
    what text COLLATE "C", assignee text COLLATE "C",
    at bigint NOT NULL, seq bigint NOT NULL, item bytea NOT NULL,
    PRIMARY KEY (log, id)
);
CREATE INDEX pending_at ON hf.pending (tenant, at, log, seq);
CREATE INDEX pending_assignee ON hf.pending (tenant, assignee, at, log, seq)
    WHERE assignee IS NOT NULL;
CREATE INDEX pending_session ON hf.pending (tenant, session, at, log, seq);

CREATE TABLE hf.claims (
    tenant text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, name)
);
CREATE INDEX claims_session ON hf.claims (tenant, session);

CREATE TABLE hf.drafts (
    log bigint NOT NULL, message text COLLATE "C" NOT NULL, token bigint NOT NULL,
    start bigint NOT NULL, text bytea NOT NULL,
    PRIMARY KEY (log, message, token, start)
);

CREATE TABLE hf.snapshots (
    log bigint NOT NULL, version text COLLATE "C" NOT NULL, token bigint NOT NULL,
    seq bigint NOT NULL, state bytea NOT NULL,
    PRIMARY KEY (log, version)
);

CREATE TABLE hf.blobs (
    tenant text COLLATE "C" NOT NULL, session text COLLATE "C" NOT NULL,
    sha256 text COLLATE "C" NOT NULL, size bigint NOT NULL, data bytea NOT NULL,
    PRIMARY KEY (tenant, session, sha256)
);
ALTER TABLE hf.blobs ALTER COLUMN data SET STORAGE EXTERNAL;
"""

META = """
CREATE SCHEMA IF NOT EXISTS hf;
CREATE TABLE IF NOT EXISTS hf.meta (version integer NOT NULL, oldest integer NOT NULL);
"""

LINKS = "ALTER TABLE hf.events ADD COLUMN link bytea;"
RENEWALS = "ALTER TABLE hf.logs ADD COLUMN renewed bigint NOT NULL DEFAULT 0;"
MARKS = 'ALTER TABLE hf.logs ADD COLUMN mark text COLLATE "C";'

# One script per version, each from the previous one; a new schema runs them all.
MIGRATIONS = (TABLES + APPEND_1, LINKS + APPEND_2, RENEWALS, MARKS + APPEND_3, SEARCH)
VERSION = len(MIGRATIONS)
OLDEST = 1  # the oldest program that can use the schema after these migrations


TABLE_NAMES = ("logs", "events", "terms", "pending", "claims", "drafts", "snapshots", "blobs")


async def found(link: Link) -> tuple[int, int]:
    """Return the version of the tables, and the version of the oldest program that may use them.
    Returns zeros if there are no tables."""
    try:
        record = await link.row("SELECT version, oldest FROM hf.meta")
    except (pg.UndefinedTableError, pg.InvalidSchemaNameError):
        return 0, 0
    return (record["version"], record["oldest"]) if record else (0, 0)


async def check(link: Link) -> bool:
    """Return whether the tables exist and are up to date. Raises an error for the tables of a newer
    program."""
    encoding = await link.value("SELECT current_setting('server_encoding')")
    if encoding != "UTF8":
        raise InvalidValue(
            field="url",
            problem=f"the database is encoded in {encoding}",
            remedy="use one that was created with ENCODING 'UTF8'",
        )
    version, oldest = await found(link)
    if oldest > VERSION:
        raise StoreTooNew(
            problem=f"schema {link.schema} has version {version}, which requires support "
            f"for version {oldest} or later; this release supports version {VERSION}",
            found=version,
            known=VERSION,
        )
    return version >= VERSION


async def migrate(link: Link) -> None:
    """Update the tables, in the caller's transaction. If many processes start at once, one of them
    migrates the tables, and the others wait and find them up to date."""
    await link.run(
        "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"holdfast {link.schema}"
    )
    if (await found_in_transaction(link))[0] == 0:
        await link.script(META)
    version, _ = await found(link)
    for script in MIGRATIONS[version:]:
        await link.script(script)
    if version == 0:
        await link.run("INSERT INTO hf.meta VALUES ($1, $2)", VERSION, OLDEST)
    elif version < VERSION:
        await link.run("UPDATE hf.meta SET version = $1, oldest = $2", VERSION, OLDEST)


async def found_in_transaction(link: Link) -> tuple[int, int]:
    """Like `found`, but never causes an error that would abort the current transaction."""
    there = await link.value(
        "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = 'meta'",
        link.schema,
    )
    return await found(link) if there else (0, 0)


def outdated(schema: str) -> StoreError:
    """Return the error for tables that are missing or out of date when this program must not create
    them."""
    return StoreError(
        problem=f"schema {schema} is not at version {VERSION}; run `holdfast migrate` first"
    )


async def schema_state(url: str) -> tuple[int, int]:
    """Return the version of the tables at `url`, and the version that this program supports.
    Changes nothing."""
    database = await PostgresDatabase.open(url)
    try:
        version, _ = await database.run(found, whole=False)
    finally:
        await database.aclose()
    return version, VERSION
