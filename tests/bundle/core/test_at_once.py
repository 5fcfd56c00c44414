"""Imports of one bundle at the same time: one makes the session whole, and none takes away what
another has made."""

from __future__ import annotations

import asyncio
import random
import subprocess
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from holdfast import Event, LeaseHeld, SessionExists, Store, connect, key
from holdfast.bundle import Bundle, Imported, export_bundle, import_bundle, import_lock
from holdfast.stores.memory import MemoryStore
from tests import forks
from tests.copy.scene import SHOP, content, events_of, rows_of, said, shop, waiting

from .importer import Full
from .scene import KINDS

SEEDS = {"memory": 24, "sqlite": 4}  # and one of any other store


class Shuffled:
    """A store whose calls come in another order for each seed."""

    def __init__(self, store: Store, seed: int) -> None:
        self._store, self._random = store, random.Random(seed)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name in ("read", "follow", "verify", "info"):
            return method

        async def later(*args: Any, **how: Any) -> Any:
            for _ in range(self._random.randrange(6)):
                await asyncio.sleep(0)
            return await method(*args, **how)

        return later


@pytest.fixture
async def made() -> Bundle:
    source = MemoryStore()
    await shop(source)
    return await export_bundle((source, SHOP), "local", purpose="move")


@pytest.fixture
async def whole(made: Bundle) -> dict[str, Any]:
    """What one import of it comes to."""
    store = MemoryStore()
    await import_bundle(store, made)
    return await content(store)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_lock, "RETRY_AFTER", 0.001)


@pytest.mark.parametrize("kind", KINDS)
async def test_one_that_fails_takes_nothing_from_the_others(
    kind: str, made: Bundle, whole: dict[str, Any], tmp_path: Path
) -> None:
    for seed in range(SEEDS.get(kind, 1)):
        place = tmp_path / str(seed)
        place.mkdir()
        async with connect(KINDS[kind](place)) as store:
            target: Any = Shuffled(store, seed)
            ended = await asyncio.gather(
                import_bundle(target, made, progress=Full(1 + (seed + 4) % 14)),
                import_bundle(target, made),
                import_bundle(target, made),
                return_exceptions=True,
            )
            first, *others = ended
            assert isinstance(first, OSError | Imported), ended
            assert all(isinstance(one, Imported) for one in others), ended
            fresh = [one for one in ended if isinstance(one, Imported) and one.fresh]
            assert len(fresh) == 1, ended
            assert await content(store) == whole


async def test_of_two_bundles_for_one_id_one_wins_whole(
    made: Bundle, whole: dict[str, Any]
) -> None:
    other = MemoryStore()
    await waiting(other, SHOP.session)
    second = await export_bundle((other, SHOP), "local", purpose="move")
    alone = MemoryStore()
    await import_bundle(alone, second)
    for seed in range(12):
        store = MemoryStore()
        target: Any = Shuffled(store, seed)
        ended = await asyncio.gather(
            import_bundle(target, made), import_bundle(target, second), return_exceptions=True
        )
        lost = [isinstance(one, SessionExists) for one in ended]
        assert sorted(lost) == [False, True], ended
        assert await content(store) == (await content(alone) if lost[0] else whole)


@pytest.mark.parametrize("events", [0, 3, 9])
async def test_two_processes_make_one_session(
    events: int, made: Bundle, whole: dict[str, Any], tmp_path: Path
) -> None:
    url, file = f"sqlite:{tmp_path}/store.db", tmp_path / "a.json"
    file.write_bytes(made.to_json())
    said = await asyncio.to_thread(_race, url, file, [events, 0])
    assert said.count("fresh True") == 1, said
    if said[0] != "the disk is full":
        assert sorted(said) == ["fresh False", "fresh True"]
    async with connect(url) as store:
        assert await content(store) == whole


def _race(url: str, file: Path, full: list[int]) -> list[str]:
    """What each process says that imports the file, all at once."""
    words = ("-m", "tests.bundle.core.importer", url, str(file))
    with ExitStack() as ends:
        processes = [
            ends.enter_context(
                forks.popen(
                    *(*words, str(events)),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for events in full
        ]
        for process in processes:
            ends.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        return [process.communicate(timeout=60)[0].strip() for process in processes]


# Taking back


class Meddled(MemoryStore):
    """A store in which something happens when the third thread is to be restored."""

    def __init__(self, meddle: Callable[[Store], Any]) -> None:
        super().__init__()
        self.left, self._meddle = 4, meddle  # the first is the place

    async def restore(self, key: Any, events: Any, *, parent: Any = None) -> None:
        self.left -= 1
        if self.left == 0:
            await self._meddle(self)
            raise OSError("the disk is full")
        await super().restore(key, events, parent=parent)


async def test_what_somebody_went_on_with_is_not_taken_back(made: Bundle) -> None:
    async def go_on(store: Store) -> None:
        await store.append(key(SHOP.session), [said("I am here already")])

    target = Meddled(go_on)
    with pytest.raises(OSError, match="full"):
        await import_bundle(target, made)
    there = await rows_of(target)
    assert len(there) == 2
    assert (await events_of(target, key(SHOP.session)))[-1].json() == {"text": "I am here already"}
    assert (await import_bundle(target, made)).fresh  # the same call finishes it
    assert len(await rows_of(target)) == 5
    assert len(await target.blobs(SHOP)) == 3


async def test_what_somebody_drives_is_not_taken_back(made: Bundle) -> None:
    async def drive(store: Store) -> None:
        await store.acquire(key(SHOP.session), "a driver")

    target = Meddled(drive)
    with pytest.raises(OSError, match="full"):
        await import_bundle(target, made)
    assert "main" in await rows_of(target)
    with pytest.raises(LeaseHeld):
        await target.acquire(key(SHOP.session), "another")


async def test_an_import_whose_turn_was_taken_over_takes_nothing_back(
    made: Bundle, whole: dict[str, Any]
) -> None:
    """As when its process stood still for longer than a turn lasts."""
    others: list[Imported] = []

    async def take_over(store: Store) -> None:
        place = import_lock.lock_key(SHOP)
        await store.release(await store.acquire(place, "another", steal="it stood still"))
        others.append(await import_bundle(store, made))

    target = Meddled(take_over)
    with pytest.raises(OSError, match="full"):
        await import_bundle(target, made)
    assert others[0].fresh
    assert await content(target) == whole


async def test_names_that_the_id_had_before_stay(made: Bundle) -> None:
    async def nothing(store: Store) -> None: ...

    target = Meddled(nothing)
    await target.claim("main", "reserved", SHOP)
    with pytest.raises(OSError, match="full"):
        await import_bundle(target, made)
    assert await target.claims(SHOP) == ["reserved"]
    assert await rows_of(target) == {}


async def test_one_that_is_cancelled_leaves_nothing_to_the_next(
    made: Bundle, whole: dict[str, Any]
) -> None:
    reached, never = asyncio.Event(), asyncio.Event()

    async def stay(store: Store) -> None:
        reached.set()
        await never.wait()

    target = Meddled(stay)
    going = asyncio.create_task(import_bundle(target, made))
    await reached.wait()
    waits = asyncio.create_task(import_bundle(target, made))
    going.cancel()
    assert (await waits).fresh
    assert going.cancelled()
    assert await content(target) == whole


async def test_a_turn_whose_process_died_ends_by_itself(
    made: Bundle, whole: dict[str, Any]
) -> None:
    target, gone = MemoryStore(), MemoryStore()
    await import_bundle(target, made)
    await target.delete(key(SHOP.session, "deeper"))  # it had not got so far
    async with import_lock.locked_import(gone, SHOP):
        place = [event async for event in gone.read(import_lock.lock_key(SHOP))]
    await target.restore(import_lock.lock_key(SHOP), _each(place))
    await target.acquire(import_lock.lock_key(SHOP), "one that died", ttl=0.05)
    assert (await import_bundle(target, made)).fresh
    assert await content(target) == whole


async def _each(events: list[Event]) -> AsyncGenerator[Event, None]:
    for event in events:
        yield event


async def test_who_waits_too_long_is_told(made: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_lock, "LONGEST_WAIT", 0)
    target = MemoryStore()
    async with import_lock.locked_import(target, SHOP):
        with pytest.raises(LeaseHeld):
            await import_bundle(target, made)
    assert (await import_bundle(target, made)).fresh
