"""Turns per second on PostgreSQL: one session, 32 at once; beside a bare insert, beside our own
function called by hand, and beside the peers on the same server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec

import holdfast

from . import peers
from .entries import turn
from .floors import encode, events_of, kept_of
from .measure import Result
from .peers import Loop, warmly
from .servers import CONNECTIONS, Place
from .settings import Settings
from .turns import OURS, TurnsAt, create, race_turns, turns_of

BARE = "bare multi-row insert"
BY_HAND = "append_2 by hand"
READY = "append_2 by hand, arguments made before"

ROWS = 4
COLUMNS = ("log", "seq", "id", "kind", "v", "run", "actor", "cause", "at", "hash", "data")
SEARCHED = '"user", workspace, agent, phase, run, created, active, stale_at, wake'
ACTIVE = 6  # its place in these

_decode = msgspec.json.Decoder().decode


def ours(place: Place, sessions: int, turns: int) -> float:
    """Seconds for `turns` turns of each session of a store, all sessions at once."""

    async def main() -> float:
        async with holdfast.connect(place.with_options(connections=str(CONNECTIONS))) as store:
            keys = await asyncio.gather(*(create(store, f"session-{n}") for n in range(sessions)))
            return await warmly(
                [turns_of(store, key, 1) for key in keys],
                [turns_of(store, key, turns) for key in keys],
            )

    return asyncio.run(main())


# By hand


@asynccontextmanager
async def _pool(place: Place) -> AsyncGenerator[Any, None]:
    """As a store has one: so many connections, and no statement when one goes back."""

    async def leave(conn: Any) -> None:
        pass

    async with asyncpg.create_pool(
        place.plain,
        min_size=CONNECTIONS,
        max_size=CONNECTIONS,
        reset=leave,
        server_settings={"jit": "off"},
    ) as pool:
        yield pool


def bare(place: Place, sessions: int, turns: int) -> float:
    """Seconds for a loop that inserts the same events, a statement a turn, into the same table
    with the same indexes. Nobody keeps a head, and nothing is looked at."""
    values = ", ".join(
        f"({', '.join(f'${row * len(COLUMNS) + n}' for n in range(1, len(COLUMNS) + 1))})"
        for row in range(ROWS)
    )
    sql = f'INSERT INTO "{place.name}".events ({", ".join(COLUMNS)}) VALUES {values}'

    def loop(pool: Any, log: int, numbers: range) -> Loop:
        async def run() -> None:
            seq = numbers.start * ROWS
            for number in numbers:
                now = time.time_ns() // 1_000_000
                row: list[Any] = []
                for id, kind, digest, data in events_of(turn(number)):
                    seq += 1
                    row += (log, seq, id, kind, 1, None, None, None, now, digest, data)
                await pool.execute(sql, *row)

        return run

    async def main() -> float:
        async with holdfast.connect(place.url):
            pass
        async with _pool(place) as pool:
            logs = range(1, sessions + 1)
            return await warmly(
                [loop(pool, log, range(1)) for log in logs],
                [loop(pool, log, range(1, turns + 1)) for log in logs],
            )

    return asyncio.run(main())


class _Log:
    """What a caller of the function must remember of a log."""

    def __init__(self, key: holdfast.Key, record: Any) -> None:
        self.key = (key.tenant, key.session, key.thread)
        self.id, self.version, doc, *self.searched = record
        self.row: dict[str, Any] = _decode(doc)

    def arguments(self, number: int) -> list[Any]:
        """The arguments of the next append."""
        now = time.time_ns() // 1_000_000
        ids, kinds, hashes, data = zip(*events_of(turn(number)), strict=True)
        row, first = self.row, self.row["head"] + 1
        kept = [bytes.fromhex(row["link"])]
        for n, (id, kind, hash) in enumerate(zip(ids, kinds, hashes, strict=True)):
            kept.append(kept_of(kept[-1][-32:], first + n, id, kind, now, hash))
        row["link"] = kept[-1][-32:].hex()
        row["head"] += len(ids)
        row["bytes"] += sum(map(len, data))
        row["counts"]["messages"] += 3
        row["usage"]["input"] += 3680
        row["usage"]["output"] += 424
        row["last"] = now
        self.searched[ACTIVE] = row["active"] = now // 1000
        version, self.version = self.version, self.version + 1
        none = [None] * ROWS
        return [
            *(*self.key, self.id, version, None),
            *(ids, first, now, kinds, [1] * ROWS, none, none, none, hashes, data, kept[1:]),
            *(*self.searched, encode(row)),
            *[None] * 8,
        ]


def by_hand(ready: bool) -> TurnsAt[Place]:
    """What times a loop that calls the function of an append itself, knowing all that it asks
    for; with `ready`, all arguments are made before."""

    def loop(pool: Any, sql: str, log: _Log, numbers: range) -> Loop:
        made = [log.arguments(number) for number in numbers] if ready else None

        async def run() -> None:
            for at, number in enumerate(numbers):
                arguments = made[at] if made is not None else log.arguments(number)
                if (await pool.fetchrow(sql, *arguments))["status"] != 0:
                    raise RuntimeError("the function did not write")

        return run

    async def main(place: Place, sessions: int, turns: int) -> float:
        sql = f'SELECT * FROM "{place.name}".append_2({", ".join(f"${n}" for n in range(1, 36))})'
        async with holdfast.connect(place.url) as store:
            keys = [await create(store, f"session-{n}") for n in range(sessions)]
            await asyncio.gather(*(turns_of(store, key, 1)() for key in keys))
        async with _pool(place) as pool:
            logs = [await _log(pool, place, key) for key in keys]
            return await warmly(
                [loop(pool, sql, log, range(1)) for log in logs],
                [loop(pool, sql, log, range(turns)) for log in logs],
            )

    def run(place: Place, sessions: int, turns: int) -> float:
        return asyncio.run(main(place, sessions, turns))

    return run


async def _log(pool: Any, place: Place, key: holdfast.Key) -> _Log:
    record = await pool.fetchrow(
        f'SELECT id, version, doc, {SEARCHED} FROM "{place.name}".logs WHERE session = $1',
        key.session,
    )
    return _Log(key, record)


# The workloads


def _turns(name: str, title: str, settings: Settings, sessions: int, turns: int) -> Result:
    result = Result(name=name, title=title)
    slow = max(1, settings.sizes.turns_adk // sessions)
    runs: dict[str, tuple[TurnsAt[Place], int]] = {
        OURS: (ours, turns),
        BARE: (bare, turns),
        BY_HAND: (by_hand(ready=False), turns),
        READY: (by_hand(ready=True), turns),
    }
    if settings.peers:
        runs[peers.OPENAI_POSTGRES] = (peers.openai_postgres_turns, max(1, turns // 4))
        runs[peers.ADK_POSTGRES] = (peers.adk_postgres_turns, slow)
    result.notes.append(settings.servers.about("postgres"))
    race_turns(
        result,
        settings,
        sessions,
        runs,
        settings.servers.postgres,
        lambda name, _: peers.WRITES.get(name, ""),
    )
    result.compare(OURS, BARE, "least", 0.6)
    result.compare(OURS, BY_HAND, "least", 0.9)
    if settings.peers:
        result.compare(OURS, peers.OPENAI_POSTGRES, "least", 3.0)
        result.compare(OURS, peers.ADK_POSTGRES, "least", 10.0)
    return result


def postgres_one(settings: Settings) -> Result:
    """One session on PostgreSQL, each turn durable on return."""
    title = "PostgreSQL, one session"
    return _turns("postgres-one", title, settings, 1, settings.sizes.turns)


def postgres_together(settings: Settings) -> Result:
    """32 sessions at once in one process on PostgreSQL, each turn durable on return."""
    sizes = settings.sizes
    title = f"PostgreSQL, {sizes.together} sessions at once"
    return _turns("postgres-32", title, settings, sizes.together, sizes.turns_together)
