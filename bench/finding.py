"""Lists, the inbox and what is runnable, in a small catalog and in a large one."""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from msgspec import Struct

import holdfast
from holdfast import Inbound, NewEvent, PendingQuery, Query, Sessions, Store
from holdfast.sessions import MostRecent

from .measure import Bar, Figure, Result, race, ratios, steady
from .settings import Settings
from .turns import url

P = TypeVar("P")

PER_USER = 20
PER_BATCH = 20
PER_ASSIGNEE = 2
STALE = 10
LATER = 1 << 40  # seconds, when all that can go stale has
TOGETHER = 256


def session(number: int) -> list[NewEvent]:
    """What begins session `number`: every 10th is a "vip", every 10th (others) waits for a
    driver, every 20th for a person; 20 share a user, 20 a batch label, one has a surface; ten of
    all go stale."""
    labels = [f"batch-{number // PER_BATCH}"] + ["vip"] * (number % 10 == 3)
    created: dict[str, Any] = {
        "agent": "desk" if number % 10 == 7 else "shop",
        "title": f"Order {number}",
        "user": f"user-{number // PER_USER}",
        "labels": labels,
        "metadata": {"order": number},
    }
    if number % 20 == 0 and number < 20 * STALE:
        created["ttl"] = 1
    events = [
        NewEvent.of("session.created", created),
        NewEvent.of("surface.attached", {"surface": "slack", "address": f"D{number:08}"}),
        NewEvent.of("message.received", {"text": f"Where is order {number}?"}),
    ]
    if number % 10 not in (5, 7):
        events.append(NewEvent.of("message.completed", {"text": "On its way."}))
    if number % 20 == 9:
        person = f"person-{number // 20 // PER_ASSIGNEE}"
        item = {"id": f"ask-{number}", "what": "approval", "title": "Refund", "assignee": person}
        events.append(NewEvent.of("pending.opened", item))
    return events


async def build(place: str, sessions: int) -> None:
    """A catalog of so many sessions."""
    async with holdfast.connect(place) as store:
        for start in range(0, sessions, TOGETHER):
            numbers = range(start, min(start + TOGETHER, sessions))
            await asyncio.gather(
                *(store.append(holdfast.key(f"s{n}"), session(n), create=True) for n in numbers)
            )


Ask = Callable[[Store, int], Awaitable[int]]


def _find(make: Callable[[int], Query]) -> Ask:
    async def ask(store: Store, sessions: int) -> int:
        return len((await store.find(make(sessions))).items)

    return ask


def _inbox(make: Callable[[int], PendingQuery]) -> Ask:
    async def ask(store: Store, sessions: int) -> int:
        return len((await store.pending(make(sessions))).items)

    return ask


def _runnable(*agents: str) -> Ask:
    async def ask(store: Store, sessions: int) -> int:
        return len(await store.runnable("main", agents=agents))

    return ask


def _affinity(address: Callable[[int], str]) -> Ask:
    async def ask(store: Store, sessions: int) -> int:
        user = f"user-{sessions // 2 // PER_USER}"
        message = Inbound(user=user, surface="slack", address=address(sessions))
        return int(await MostRecent().resolve(Sessions(store), message) is not None)

    return ask


# The answers have the same number of items in both catalogs, or fill a page in both.
ASKS: dict[str, Ask] = {
    "newest 50": _find(lambda n: Query()),
    "oldest created": _find(lambda n: Query(order="created", newest_first=False)),
    "by user": _find(lambda n: Query(user=f"user-{n // PER_USER // 2}")),
    "by surface": _find(lambda n: Query(surface=("slack", f"D{n // 2:08}"))),
    "by a rare label": _find(lambda n: Query(label=f"batch-{n // PER_BATCH // 2}")),
    "by a frequent label": _find(lambda n: Query(label="vip")),
    "inbox": _inbox(lambda n: PendingQuery()),
    "inbox of a person": _inbox(
        lambda n: PendingQuery(assignee=f"person-{n // 20 // PER_ASSIGNEE // 2}")
    ),
    "affinity, by the surface": _affinity(lambda n: f"D{n // 2:08}"),
    "affinity, by the person": _affinity(lambda n: "unknown"),
    "stale, as a sweep asks": _find(lambda n: Query(stale_until=LATER, newest_first=False)),
    "runnable, one agent": _runnable("shop"),
    "runnable, two agents": _runnable("shop", "desk"),
}


@contextmanager
def traced() -> Iterator[list[str]]:
    """The statements run by connections that are opened inside the block."""
    statements: list[str] = []
    original = sqlite3.connect

    def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        conn: sqlite3.Connection = original(*args, **kwargs)
        conn.set_trace_callback(statements.append)
        return conn

    sqlite3.connect = connect  # type: ignore[assignment]  # put back below
    try:
        yield statements
    finally:
        sqlite3.connect = original


async def plans(folder: Path, sessions: int) -> dict[str, list[str]]:
    """The query plan of each question, as SQLite explains the statements that were run."""
    found: dict[str, list[str]] = {}
    with traced() as statements:
        async with holdfast.connect(url("sqlite", folder, "process")) as store:
            for name, ask in ASKS.items():
                statements.clear()
                await ask(store, sessions)
                selects = [sql for sql in statements if sql.lstrip().startswith("SELECT")]
                with closing(sqlite3.connect(folder / "ours.db")) as conn:
                    found[name] = [
                        row[3]
                        for sql in selects
                        for row in conn.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()
                    ]
    return found


class Catalogs(Struct, Generic[P], frozen=True, kw_only=True):
    """Where the catalogs of a workload are, how they are filled, and how plans are told there."""

    place: Callable[[], AbstractContextManager[P]]
    filling: Callable[[P], str]
    url: Callable[[P], str]
    filled: Callable[[P], Coroutine[Any, Any, None]]
    plans: Callable[[P, int], Coroutine[Any, Any, dict[str, list[str]]]]


def find(settings: Settings) -> Result:
    """Each question in both catalogs, in turn."""

    def place(folder: Path) -> str:
        return url("sqlite", folder, "process")

    async def nothing(folder: Path) -> None:
        pass

    return find_in(
        "find",
        settings,
        Catalogs(place=settings.folder, filling=place, url=place, filled=nothing, plans=plans),
    )


def find_in(name: str, settings: Settings, catalogs: Catalogs[P]) -> Result:
    """Each question in both catalogs, in turn, wherever they are."""
    sizes = settings.sizes
    title = f"Find in {sizes.many:,} sessions beside {sizes.few:,}"
    result = Result(name=name, title=title)
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        opened: list[tuple[int, P, Store]] = []
        for sessions in (sizes.few, sizes.many):
            place = stack.enter_context(catalogs.place())
            settings.step(f"building {sessions:,} sessions")
            start = time.perf_counter()
            runner.run(build(catalogs.filling(place), sessions))
            runner.run(catalogs.filled(place))
            took = time.perf_counter() - start
            result.notes.append(f"{sessions:,} sessions built in {took:.1f} s")
            opened.append((sessions, place, runner.run(_open(catalogs.url(place)))))
        try:
            asked = [(sessions, store) for sessions, _, store in opened]
            for question, ask in ASKS.items():
                _compare(result, settings, runner, question, ask=ask, catalogs=asked)
        finally:
            for _, _, store in opened:
                runner.run(store.aclose())
        few, many = (runner.run(catalogs.plans(place, sessions)) for sessions, place, _ in opened)
    _compare_plans(result, few, many)
    return result


def _compare_plans(result: Result, few: dict[str, list[str]], many: dict[str, list[str]]) -> None:
    for name in ASKS:
        same = "same" if few[name] == many[name] else f"NOT the same, {' | '.join(few[name])}"
        result.notes.append(f"plan, {name}: {same}: {' | '.join(many[name])}")
    differing = [name for name in ASKS if few[name] != many[name]]
    result.bars.append(
        Bar(
            name="queries whose plan differs",
            way="most",
            bar=0.0,
            values=[float(len(differing))],
            unit="",
        )
    )


async def _open(place: str) -> Store:
    return await holdfast.connect(place)


def _compare(
    result: Result,
    settings: Settings,
    runner: asyncio.Runner,
    name: str,
    *,
    ask: Ask,
    catalogs: list[tuple[int, Store]],
) -> None:
    items: list[int] = []

    async def times(store: Store, sessions: int) -> float:
        taken = []
        for _ in range(settings.sizes.queries):
            start = time.perf_counter()
            found = await ask(store, sessions)
            taken.append(time.perf_counter() - start)
            items.append(found)
        return statistics.median(taken) * 1e6

    def contestant(store: Store, sessions: int) -> Callable[[], float]:
        def run() -> float:
            with steady():
                return runner.run(times(store, sessions))

        return run

    names = [f"{name}, {sessions:,}" for sessions, _ in catalogs]
    runs = {
        full: contestant(store, sessions)
        for full, (sessions, store) in zip(names, catalogs, strict=True)
    }
    values, absent = race(runs, rounds=settings.rounds, step=settings.step)
    for full in names:
        result.figures.append(
            Figure(name=full, unit="µs", values=values.get(full, []), absent=absent.get(full, ""))
        )
    grown = [] if absent else ratios(values[names[1]], values[names[0]])
    if not absent and len(set(items)) > 1:
        result.notes.append(f"{name}: answers differ in size, {sorted(set(items))} items")
    title, why = f"{name}, many ÷ few", "; ".join(absent.values())
    result.bars.append(Bar(name=title, way="most", bar=2.0, values=grown, absent=why))
