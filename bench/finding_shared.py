"""Lists, the inbox and what is runnable on the databases, in a small catalog and in a large one."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import asyncpg
from tests.servers import mongo

import holdfast
from holdfast.stores.postgres import PostgresStore

from .finding import ASKS, Catalogs, find_in
from .measure import Result
from .servers import Place
from .settings import Settings

STEP = re.compile(r"\s*(->\s+)?[A-Z][^:]*$")  # a line of a plan that is no condition of a step


def find_postgres(settings: Settings) -> Result:
    """Each question in both catalogs on PostgreSQL, in turn."""
    result = find_in(
        "find-postgres",
        settings,
        Catalogs(
            place=settings.servers.postgres,
            filling=lambda place: place.with_options(synchronous_commit="off"),
            url=lambda place: place.url,
            filled=_analyze,
            plans=_postgres_plans,
        ),
    )
    result.notes.append(settings.servers.about("postgres"))
    return result


async def _analyze(place: Place) -> None:
    """As autovacuum would, which cannot be waited for."""
    conn = await asyncpg.connect(place.plain)
    for table in ("logs", "events", "terms", "pending"):
        await conn.execute(f'VACUUM ANALYZE "{place.name}".{table}')
    await conn.close()


async def _postgres_plans(place: Place, sessions: int) -> dict[str, list[str]]:
    """The plan of each question, as PostgreSQL explains the statements that were run."""
    asked: list[tuple[str, tuple[Any, ...]]] = []

    def heard(query: Any) -> None:
        asked.append((query.query, query.args))

    async def leave(conn: Any) -> None:
        pass

    found = {}
    settings = await _settings(place)
    async with asyncpg.create_pool(
        place.plain, min_size=1, max_size=1, reset=leave, server_settings=settings
    ) as pool:
        store = await PostgresStore.open(f"postgresql://?schema={place.name}", pool=pool)
        for name, ask in ASKS.items():
            asked.clear()
            async with pool.acquire() as conn:
                conn.add_query_logger(heard)
            await ask(store, sessions)
            async with pool.acquire() as conn:
                conn.remove_query_logger(heard)
            plans = [
                await pool.fetch(f"EXPLAIN (COSTS OFF) {sql}", *args)
                for sql, args in asked
                if place.name in sql
            ]
            found[name] = list(dict.fromkeys(_steps([line for (line,) in plan]) for plan in plans))
        await store.aclose()
    return found


async def _settings(place: Place) -> dict[str, str]:
    """With what the connections of a store's own pool are made, since plans depend on it."""
    settings: dict[str, str] = {}
    original = asyncpg.create_pool

    def create_pool(*args: Any, **kwargs: Any) -> Any:
        settings.update(kwargs.get("server_settings") or {})
        return original(*args, **kwargs)

    asyncpg.create_pool = create_pool  # put back below
    try:
        async with holdfast.connect(place.url):
            pass
    finally:
        asyncpg.create_pool = original
    return settings


def _steps(plan: list[str]) -> str:
    """What a plan does, without conditions."""
    return ", ".join(line.strip().removeprefix("->").strip() for line in plan if STEP.match(line))


def find_mongodb(settings: Settings) -> Result:
    """Each question in both catalogs on MongoDB, in turn."""

    async def nothing(place: Place) -> None:
        pass

    result = find_in(
        "find-mongodb",
        settings,
        Catalogs(
            place=settings.servers.mongodb,
            filling=lambda place: place.url,
            url=lambda place: place.url,
            filled=nothing,
            plans=_mongodb_plans,
        ),
    )
    result.notes.append(settings.servers.about("mongodb"))
    return result


async def _mongodb_plans(place: Place, sessions: int) -> dict[str, list[str]]:
    """The plan of each question, as the server's profiler tells it of the queries that were run."""
    found = {}
    with mongo.admin_client(place.address) as admin:
        database = admin[place.name]
        async with holdfast.connect(place.url) as store:
            for name, ask in ASKS.items():
                await asyncio.to_thread(database.command, "profile", 2)
                await ask(store, sessions)
                found[name] = await asyncio.to_thread(_profiled, database)
    return found


def _profiled(database: Any) -> list[str]:
    """The plans of what was asked since the profiler was put on; it is off afterwards."""
    database.command("profile", 0)
    asked = database["system.profile"].find({"planSummary": {"$exists": True}}).sort("ts", 1)
    plans = [
        f"{query['planSummary']}{', SORT' if query.get('hasSortStage') else ''}" for query in asked
    ]
    database["system.profile"].drop()
    return list(dict.fromkeys(plans))
