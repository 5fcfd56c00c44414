"""What appends write to a database, counted from outside: by triggers and the position of the
write-ahead log of PostgreSQL, by the oplog of MongoDB. Nothing here looks inside a store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import bson
from tests.servers import mongo, postgres

from .servers import Place
from .written import Rows

COUNT = """
CREATE TABLE hf.bench_rows (tab text, what text, bytes bigint);
CREATE FUNCTION hf.bench_count() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
    INSERT INTO hf.bench_rows VALUES (
        TG_TABLE_NAME, lower(TG_OP), CASE TG_OP WHEN 'DELETE' THEN 0 ELSE pg_column_size(NEW) END
    );
    RETURN NULL;
END
$function$;
"""
COUNTED = "SELECT tab, what, count(*), sum(bytes) FROM hf.bench_rows GROUP BY tab, what"
FORGET = "DROP FUNCTION hf.bench_count() CASCADE; DROP TABLE hf.bench_rows"
TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = $1 AND tablename <> 'bench_rows'"
POSITION = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint"


@asynccontextmanager
async def _connected(url: str) -> AsyncGenerator[Any, None]:
    conn = await asyncpg.connect(url)
    try:
        yield conn
    finally:
        await conn.close()


@asynccontextmanager
async def postgres_rows(place: Place) -> AsyncGenerator[Rows, None]:
    """What is written to tables inside the block, known once it is over. The triggers write
    rows of their own, so nothing else can be measured meanwhile."""

    def here(sql: str) -> str:
        return sql.replace("hf.", f'"{place.name}".')

    rows = Rows(counts={})
    async with _connected(place.plain) as conn:
        await conn.execute(here(COUNT))
        for (table,) in await conn.fetch(TABLES, place.name):
            await conn.execute(
                here(
                    f"CREATE TRIGGER bench_count AFTER INSERT OR UPDATE OR DELETE ON hf.{table}"
                    " FOR EACH ROW EXECUTE FUNCTION hf.bench_count()"
                )
            )
        try:
            yield rows
        finally:
            for table, what, number, size in await conn.fetch(here(COUNTED)):
                rows.counts[f"{table} {what}"] = number
                rows.bytes += int(size)
            await conn.execute(here(FORGET))


async def checkpoint(place: Place) -> None:
    """After this, the first change of a page is logged with the whole page."""
    async with _connected(postgres.admin_url(place.address)) as conn:
        await conn.execute("CHECKPOINT")


async def wal_position(place: Place) -> int:
    """How many bytes the write-ahead log of the server has had so far."""
    async with _connected(place.plain) as conn:
        return int(await conn.fetchval(POSITION))


@asynccontextmanager
async def mongodb_documents(place: Place) -> AsyncGenerator[Rows, None]:
    """What is changed in the database inside the block, as the oplog tells it, known once it is
    over: documents by collection, and the bytes of the changes."""
    rows = Rows(counts={})
    names = {"i": "insert", "u": "update", "d": "delete"}
    with mongo.admin_client(place.address) as admin:
        oplog = admin.local["oplog.rs"]
        start = await asyncio.to_thread(_newest, oplog)
        yield rows
        for entry in await asyncio.to_thread(_since, oplog, start):
            for op in entry["o"].get("applyOps", [entry]) if entry["op"] == "c" else [entry]:
                base, _, collection = op.get("ns", "").partition(".")
                if base == place.name and op.get("op") in names:
                    name = f"{collection} {names[op['op']]}"
                    rows.counts[name] = rows.counts.get(name, 0) + 1
                    rows.bytes += len(bson.encode(op["o"]))


def _newest(oplog: Any) -> Any:
    return oplog.find().sort("$natural", -1).limit(1)[0]["ts"]


def _since(oplog: Any, start: Any) -> list[Any]:
    return list(oplog.find({"ts": {"$gt": start}}).sort("$natural", 1))
