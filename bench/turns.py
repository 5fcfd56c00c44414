"""Turns per second: one session, 32 at once; SQLite and files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias, TypeVar

import holdfast
from holdfast import Key, NewEvent, Store, Vault

from . import floors, peers
from .before import BEFORE, before
from .entries import turn
from .measure import Figure, Result, race
from .settings import Settings

P = TypeVar("P")

# Seconds for (folder, sessions, turns of each session).
Turns: TypeAlias = Callable[[Path, int, int], float]
# The same, wherever it takes place.
TurnsAt: TypeAlias = Callable[[P, int, int], float]

OURS = "Holdfast"
ENCRYPTED = "Holdfast, encrypted"
SQLITE_FLOOR = "plain sqlite3"
JSONL_FLOOR = "plain JSONL"


def url(scheme: str, folder: Path, durability: str = "machine") -> str:
    """The store of one scheme in a folder."""
    if scheme == "memory":
        return "memory:"
    place = folder / ("ours.db" if scheme == "sqlite" else "ours")
    return f"{scheme}:{place}?durability={durability}"


async def create(store: Store, session: str) -> Key:
    """A new session's log."""
    key = holdfast.key(session)
    await store.append(key, [NewEvent.of("session.created", {"agent": "shop"})], create=True)
    return key


def turns_of(store: Store, key: Key, turns: int) -> peers.Loop:
    """What writes so many turns of a session, one after the other."""

    async def run() -> None:
        for number in range(turns):
            await store.append(key, turn(number).events())

    return run


def ours(scheme: str, vault: Vault | None = None) -> Turns:
    """What times a store of this scheme."""

    def run(folder: Path, sessions: int, turns: int) -> float:
        async def main() -> float:
            async with holdfast.connect(url(scheme, folder), vault=vault) as store:
                keys = [await create(store, f"session-{number}") for number in range(sessions)]
                return await peers.gathered([turns_of(store, key, turns) for key in keys])

        return asyncio.run(main())

    return run


def earlier(checkout: Path) -> Turns:
    """What times the SQLite store of an earlier commit."""
    return lambda folder, sessions, turns: before(checkout, "turns", str(folder), sessions, turns)


def race_turns(
    result: Result,
    settings: Settings,
    sessions: int,
    runs: Mapping[str, tuple[TurnsAt[P], int]],
    place: Callable[[], AbstractContextManager[P]],
    note: Callable[[str, TurnsAt[P]], str],
) -> None:
    """Race `runs`, each with its number of turns per session and in a place of its own, and
    keep turns/s as figures, with what `note` has to say of each that took part."""

    def contestant(run: TurnsAt[P], turns: int) -> Callable[[], float]:
        def go() -> float:
            with place() as here:
                return sessions * turns / run(here, sessions, turns)

        return go

    contestants = {name: contestant(*run) for name, run in runs.items()}
    values, absent = race(contestants, rounds=settings.rounds, step=settings.step)
    for name, (run, turns) in runs.items():
        more = "" if name in absent else note(name, run)
        result.figures.append(
            Figure(
                name=name,
                unit="turns/s",
                values=values.get(name, []),
                note=f"{sessions} × {turns} turns a round{'; ' if more else ''}{more}",
                absent=absent.get(name, ""),
            )
        )


def compete(
    result: Result, settings: Settings, sessions: int, runs: dict[str, tuple[Turns, int]]
) -> None:
    """Race `runs` in folders."""

    def note(name: str, run: Turns) -> str:
        if name not in peers.WRITES:
            return ""
        with settings.folder() as folder:
            run(folder, 1, 1)
            return f"{peers.durability(folder)}; {peers.WRITES[name]}"

    race_turns(result, settings, sessions, runs, settings.folder, note)


def sqlite_one(settings: Settings) -> Result:
    """One session on SQLite, each turn durable on return."""
    result = Result(name="sqlite-one", title="SQLite, one session")
    sizes = settings.sizes
    runs: dict[str, tuple[Turns, int]] = {
        OURS: (ours("sqlite"), sizes.turns),
        SQLITE_FLOOR: (floors.sqlite_turns, sizes.turns),
    }
    if settings.before:
        runs[BEFORE] = (earlier(settings.before), sizes.turns)
    if settings.peers:
        runs[peers.OPENAI] = (peers.openai_turns, sizes.turns)
        runs[peers.LANGGRAPH] = (peers.langgraph_turns, sizes.turns_langgraph)
        runs[peers.ADK_SQLITE] = (peers.adk_sqlite_turns, sizes.turns_adk)
        runs[peers.ADK_DATABASE] = (peers.adk_database_turns, sizes.turns_adk)
    compete(result, settings, 1, runs)
    result.compare(OURS, SQLITE_FLOOR, "least", 0.6)
    if settings.peers:
        result.compare(OURS, peers.OPENAI, "least", 1.1)
    if settings.before:
        result.compare(OURS, BEFORE, "least", 1.0)
    return result


def sqlite_together(settings: Settings) -> Result:
    """32 sessions at once in one process, each turn durable on return."""
    sizes = settings.sizes
    result = Result(name="sqlite-32", title=f"SQLite, {sizes.together} sessions at once")
    floor = f"{SQLITE_FLOOR}, {sizes.together} turns a commit"
    slow = max(1, sizes.turns_adk // sizes.together)
    runs: dict[str, tuple[Turns, int]] = {
        OURS: (ours("sqlite"), sizes.turns_together),
        floor: (floors.sqlite_turns, sizes.turns_together),
    }
    if settings.before:
        runs[BEFORE] = (earlier(settings.before), sizes.turns_together)
    if settings.peers:
        runs[peers.OPENAI] = (peers.openai_turns, sizes.turns_together)
        runs[peers.LANGGRAPH] = (peers.langgraph_turns, sizes.turns_together)
        runs[peers.ADK_SQLITE] = (peers.adk_sqlite_turns, slow)
        runs[peers.ADK_DATABASE] = (peers.adk_database_turns, slow)
    compete(result, settings, sizes.together, runs)
    result.compare(OURS, floor, "least", 0.7)
    if settings.peers:
        result.compare(OURS, peers.OPENAI, "least", 4.5)
    if settings.before:
        result.compare(OURS, BEFORE, "least", 1.0)
    return result


def sqlite_vault(settings: Settings) -> Result:
    """One session on SQLite, encrypted, each turn durable on return."""
    result = Result(name="sqlite-vault", title="SQLite, one session, encrypted")
    turns = settings.sizes.turns
    vault = Vault([Vault.new_key("bench")])
    runs: dict[str, tuple[Turns, int]] = {
        ENCRYPTED: (ours("sqlite", vault), turns),
        OURS: (ours("sqlite"), turns),
    }
    if settings.peers:
        runs[peers.OPENAI_ENCRYPTED] = (peers.openai_encrypted_turns, turns)
    compete(result, settings, 1, runs)
    result.compare(ENCRYPTED, OURS, "least", 0.6)
    return result


def file_one(settings: Settings) -> Result:
    """One session in files, each turn durable on return."""
    result = Result(name="file-one", title="Files, one session")
    turns = settings.sizes.turns
    runs: dict[str, tuple[Turns, int]] = {
        OURS: (ours("file"), turns),
        JSONL_FLOOR: (floors.jsonl_turns, turns),
    }
    compete(result, settings, 1, runs)
    result.compare(OURS, JSONL_FLOOR, "least", 0.5)
    return result
