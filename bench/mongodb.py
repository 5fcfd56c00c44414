"""Turns per second on MongoDB: one session, 32 at once; beside a plain insert and update, beside
OpenAI's session, and beside one document per session that is loaded, filtered and pushed to."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any

import msgspec
from pymongo import AsyncMongoClient
from pymongo.write_concern import WriteConcern

import holdfast
from holdfast import new_id

from . import peers
from .entries import turn
from .floors import encode, events_of
from .measure import Bar, Figure, Result, race, ratios
from .peers import Loop, warmly
from .servers import Place
from .settings import Settings
from .turns import OURS, TurnsAt, create, race_turns, turns_of

TWO_STEPS = "insert a batch, update a head"
PUSHED = "load, filter, push"
PUSHED_WRITES = "one document a session, read as a whole for each turn"

SAFE = WriteConcern(w="majority", j=True)


def ours(place: Place, sessions: int, turns: int) -> float:
    """Seconds for `turns` turns of each session of a store, all sessions at once."""

    async def main() -> float:
        async with holdfast.connect(place.url) as store:
            keys = await asyncio.gather(*(create(store, f"session-{n}") for n in range(sessions)))
            return await warmly(
                [turns_of(store, key, 1) for key in keys],
                [turns_of(store, key, turns) for key in keys],
            )

    return asyncio.run(main())


# In two steps


def two_steps(place: Place, sessions: int, turns: int) -> float:
    """Seconds for a loop that inserts the events of a turn as one document and then moves the
    head of the log, in the same collections with the same indexes and the same write concern."""

    async def main() -> float:
        async with holdfast.connect(place.url) as store:
            keys = [await create(store, f"session-{n}") for n in range(sessions)]
        async with AsyncMongoClient[dict[str, Any]](place.plain) as client:
            database = client[place.name].with_options(write_concern=SAFE)
            heads = [await database.logs.find_one({"session": key.session}) for key in keys]
            rows = [msgspec.json.decode(head["doc"]) for head in heads if head]
            logs = list(zip(heads, rows, strict=True))
            return await warmly(
                [_stepping(database, *log, turns=1) for log in logs],
                [_stepping(database, *log, turns=turns) for log in logs],
            )

    return asyncio.run(main())


def _stepping(database: Any, head: Any, row: dict[str, Any], *, turns: int) -> Loop:
    session = {"tenant": head["tenant"], "session": head["session"]}

    async def run() -> None:
        for number in range(turns):
            now = time.time_ns() // 1_000_000
            made = events_of(turn(number))
            first, row["head"] = row["head"] + 1, row["head"] + len(made)
            events = [
                {"kind": kind, "at": now, "hash": digest, "data": data}
                for _, kind, digest, data in made
            ]
            await database.batches.insert_one(
                {
                    **session,
                    "_id": f"{head['_id']}/bench/{first}",
                    "log": head["_id"],
                    "first": first,
                    "last": row["head"],
                    "ids": [id for id, *_ in made],
                    "events": events,
                }
            )
            head["version"] += 1
            change = {"head": row["head"], "doc": encode(row), "version": head["version"]}
            await database.logs.update_one({**session, "_id": head["_id"]}, {"$set": change})

    return run


# One document a session


class Pushed:
    """A session as one document: every turn reads it as a whole, leaves out the entries that it
    has by their uuid, and pushes the rest. Two who do so at once lose to each other."""

    def __init__(self, client: Any, place: Place, session: str) -> None:
        self._sessions = client[place.name].with_options(write_concern=SAFE).sessions
        self._id = session

    async def turn(self, number: int) -> None:
        entries = [{"uuid": new_id(), **item} for item in turn(number).items()]
        stored = await self._sessions.find_one({"_id": self._id}) or {"entries": []}
        known = {entry.get("uuid") for entry in stored["entries"]}
        fresh = [entry for entry in entries if entry["uuid"] not in known]
        if fresh:
            await self._push(fresh)

    async def grow(self, turns: int) -> None:
        """Make it so many turns long, at once."""
        for start in range(0, turns, 100):
            numbers = range(start, min(start + 100, turns))
            await self._push(
                [{"uuid": new_id(), **item} for number in numbers for item in turn(number).items()]
            )

    async def cut(self, turns: int) -> None:
        """Make it so many turns long again."""
        push = {"entries": {"$each": [], "$slice": turns * 4}}
        await self._sessions.update_one({"_id": self._id}, {"$push": push})

    async def _push(self, entries: list[dict[str, Any]]) -> None:
        now = datetime.datetime.now(datetime.UTC)
        await self._sessions.update_one(
            {"_id": self._id},
            {
                "$push": {"entries": {"$each": entries}},
                "$set": {"projectKey": "shop", "updatedAt": now},
            },
            upsert=True,
        )

    def turns(self, turns: int) -> Loop:
        async def run() -> None:
            for number in range(turns):
                await self.turn(number)

        return run


def pushed(place: Place, sessions: int, turns: int) -> float:
    """Seconds for `turns` turns of each session, all sessions at once."""

    async def main() -> float:
        async with AsyncMongoClient[dict[str, Any]](place.plain) as client:
            opened = [Pushed(client, place, f"session-{n}") for n in range(sessions)]
            return await warmly(
                [session.turns(1) for session in opened],
                [session.turns(turns) for session in opened],
            )

    return asyncio.run(main())


# The workloads


def _turns(name: str, title: str, settings: Settings, sessions: int, turns: int) -> Result:
    result = Result(name=name, title=title)
    sizes = settings.sizes
    runs: dict[str, tuple[TurnsAt[Place], int]] = {
        OURS: (ours, turns),
        TWO_STEPS: (two_steps, turns),
        PUSHED: (pushed, min(turns, sizes.turns_pushed)),
    }
    if settings.peers:
        runs[peers.OPENAI_MONGODB] = (peers.openai_mongodb_turns, turns)
    writes = {**peers.WRITES, PUSHED: PUSHED_WRITES}
    result.notes.append(settings.servers.about("mongodb"))
    race_turns(
        result,
        settings,
        sessions,
        runs,
        settings.servers.mongodb,
        lambda name, _: writes.get(name, ""),
    )
    result.compare(OURS, TWO_STEPS, "least", 1.3)
    return result


def mongodb_one(settings: Settings) -> Result:
    """One session on MongoDB, each turn durable on return."""
    title = "MongoDB, one session"
    return _turns("mongodb-one", title, settings, 1, settings.sizes.turns_mongodb)


def mongodb_together(settings: Settings) -> Result:
    """32 sessions at once in one process on MongoDB, each turn durable on return."""
    sizes = settings.sizes
    title = f"MongoDB, {sizes.together} sessions at once"
    return _turns("mongodb-32", title, settings, sizes.together, sizes.turns_together)


def mongodb_lengths(settings: Settings) -> Result:
    """A session of 500 turns and one of 2,000: ours, and one document each."""
    sizes = settings.sizes
    title = f"MongoDB, sessions of {sizes.shorter:,} and {sizes.longer:,} turns"
    result = Result(name="mongodb-lengths", title=title)
    result.notes.append(settings.servers.about("mongodb"))
    lengths = (sizes.shorter, sizes.longer)
    with ExitStack() as stack:
        runs: dict[str, Callable[[], float]] = {}
        for name, grow, window in ((OURS, _grow, _window), (PUSHED, _grow_one, _window_one)):
            for turns in lengths:
                place = stack.enter_context(settings.servers.mongodb())
                settings.step(f"{name}: growing to {turns:,} turns")
                asyncio.run(grow(place, turns))
                runs[_at(name, turns)] = _timed(window, place, turns, sizes.window_pushed)
        values, absent = race(runs, rounds=settings.rounds, step=settings.step)
    for name in runs:
        result.figures.append(
            Figure(
                name=name, unit="turns/s", values=values.get(name, []), absent=absent.get(name, "")
            )
        )
    _tell(result, values, absent, lengths)
    return result


def _tell(
    result: Result,
    values: dict[str, list[float]],
    absent: dict[str, str],
    lengths: tuple[int, int],
) -> None:
    """How much slower each is when it is long, and how much faster ours is at each length."""
    shorter, longer = lengths
    slower = {
        name: [] if absent else ratios(values[_at(name, shorter)], values[_at(name, longer)])
        for name in (OURS, PUSHED)
    }
    title = f"{OURS}, late ÷ early"
    why = "; ".join(absent.values())
    result.bars.append(Bar(name=title, way="most", bar=1.2, values=slower[OURS], absent=why))
    if absent:
        return
    ours = [
        (f"{OURS} ÷ {PUSHED}, turn {at:,}", ratios(values[_at(OURS, at)], values[_at(PUSHED, at)]))
        for at in lengths
    ]
    for name, ratio in [(f"{PUSHED}, late ÷ early", slower[PUSHED]), *ours]:
        result.figures.append(Figure(name=name, unit="×", values=ratio))


def _at(name: str, turns: int) -> str:
    return f"{name}, turn {turns:,}"


Window = Callable[[Place, int, int], Coroutine[Any, Any, float]]


def _timed(window: Window, place: Place, length: int, turns: int) -> Callable[[], float]:
    return lambda: turns / asyncio.run(window(place, length, turns))


async def _grow(place: Place, turns: int) -> None:
    async with holdfast.connect(place.url) as store:
        await turns_of(store, await create(store, "session"), turns)()


async def _window(place: Place, length: int, turns: int) -> float:
    async with holdfast.connect(place.url) as store:
        key = holdfast.key("session")
        return await warmly([turns_of(store, key, 2)], [turns_of(store, key, turns)])


async def _grow_one(place: Place, turns: int) -> None:
    async with AsyncMongoClient[dict[str, Any]](place.plain) as client:
        await Pushed(client, place, "session").grow(turns)


async def _window_one(place: Place, length: int, turns: int) -> float:
    """The document is cut to its length again, so that each round meets the same one."""
    async with AsyncMongoClient[dict[str, Any]](place.plain) as client:
        session = Pushed(client, place, "session")
        await session.cut(length)
        return await warmly([session.turns(2)], [session.turns(turns)])
