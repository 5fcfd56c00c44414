"""The index of a file store is removed, replaced and spoiled again and again while several
processes append: nothing that was acknowledged is lost, and nothing is damaged."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import threading
from collections.abc import Callable
from contextlib import ExitStack, aclosing, suppress
from pathlib import Path

from holdfast import Query, SessionNotFound, Store, connect, key
from holdfast.events import Event
from holdfast.values.stream_items import CaughtUp

from ..children import Child
from ..outcome import Outcome, Tick, quiet
from ..places import PLACES, url
from ..world import verified

NAMES = ("index.db", "index.db-wal", "index.db-shm")
EACH = 20  # rounds of one store
Random = random.Random


def index_removed(folder: Path, *, rounds: int, processes: int = 3, tick: Tick = quiet) -> Outcome:
    """Take the index away `rounds` times under `processes` writers, and one who follows. Each
    round goes on until every writer has acknowledged more; after some a new store begins, since
    one takes the longer to rebuild the more it holds."""
    outcome = Outcome()
    for begin in range(0, rounds, EACH):
        tick(begin, rounds)
        place = folder / str(begin)
        place.mkdir()
        asyncio.run(_index_removed(place, min(EACH, rounds - begin), processes, outcome))
        shutil.rmtree(place)
        if outcome.problems:
            break
    return outcome


async def _index_removed(folder: Path, rounds: int, processes: int, outcome: Outcome) -> None:
    place, root = url("file", folder, "process"), folder / PLACES["file"]
    rng = random.Random()
    async with connect(place) as store:
        with ExitStack() as ending:
            writers = [ending.enter_context(_Writer(place, str(n))) for n in range(processes)]
            await asyncio.to_thread(_wait, writers)
            followed = asyncio.create_task(_follow(store, "shared-0", outcome))
            for _ in range(rounds):
                name, take = rng.choice(list(WAYS.items()))
                await asyncio.to_thread(take, root, rng)
                outcome.counts[name] += 1
                if rng.random() < 0.3:
                    async with connect(place) as other:  # a process that opens it just then
                        outcome.counts["read meanwhile"] += len((await other.find(Query())).items)
                await asyncio.to_thread(_wait, writers)
            done = await asyncio.to_thread(_finish, writers, outcome)
        followed.cancel()
        with suppress(asyncio.CancelledError):
            await followed
        await _judge(store, done, outcome, "who had it open")
    async with connect(place) as store:
        await _judge(store, done, outcome, "opened again")
    _remove_all(root, rng)
    async with connect(place) as store:
        await _judge(store, done, outcome, "rebuilt from the logs")


class _Writer:
    """A process that appends, and a thread that hears it."""

    def __init__(self, place: str, name: str) -> None:
        self.child = Child("appender", place, name, str(random.random()), patience=1_800)
        self.done: dict[str, list[str]] = {}
        self.refused: list[str] = []
        self.count = 0
        self.more = threading.Condition()
        self._thread = threading.Thread(target=self._hear, daemon=True)

    def __enter__(self) -> _Writer:
        self.child.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.child.__exit__(None, None, None)
        self._thread.join()

    def _hear(self) -> None:
        for line in self.child.lines():
            with self.more:
                if "ids" in line:
                    self.done.setdefault(line["session"], []).extend(line["ids"])
                    self.count += 1
                elif "refused" in line:
                    self.refused.append(line["refused"])
                self.more.notify_all()
        with self.more:
            self.count = -1  # it ended
            self.more.notify_all()

    def wait_for_more(self) -> None:
        """Until a few more appends were acknowledged, or the process has ended."""
        with self.more:
            upto = self.count + 4
            self.more.wait_for(lambda: self.count < 0 or self.count >= upto, timeout=120)

    def finish(self) -> str | None:
        """End the process; what went wrong with it."""
        assert self.child.process.stdin is not None
        self.child.process.stdin.close()
        self._thread.join()
        return None if self.child.process.wait() == 0 else self.child.last_words()


def _wait(writers: list[_Writer]) -> None:
    for writer in writers:
        writer.wait_for_more()


def _finish(writers: list[_Writer], outcome: Outcome) -> dict[str, set[str]]:
    """End all writers; the ids that were acknowledged, by session."""
    done: dict[str, set[str]] = {}
    for writer in writers:
        problem = writer.finish()
        outcome.expect(problem is None, f"a writer ended: {problem}")
        for session, ids in writer.done.items():
            done.setdefault(session, set()).update(ids)
        outcome.counts["appends sent again"] += len(writer.refused)
    outcome.counts["events acknowledged"] += sum(map(len, done.values()))
    return done


async def _follow(store: Store, session: str, outcome: Outcome) -> None:
    """Every event comes once, in order."""
    seq = 0
    async with aclosing(store.follow(key(session))) as events:
        async for event in events:
            if isinstance(event, CaughtUp):
                continue
            if event.seq != seq + 1:
                outcome.problems.append(f"a follower got event {event.seq} after {seq}")
            seq = event.seq
            outcome.counts["followed"] += 1


async def _judge(store: Store, done: dict[str, set[str]], outcome: Outcome, when: str) -> None:
    lost = 0
    for session, ids in done.items():
        events = await _read(store, session)
        found = [event.id for event in events]
        outcome.equal([e.seq for e in events], list(range(1, len(events) + 1)), f"{when}: numbers")
        outcome.expect(len(set(found)) == len(found), f"{when}: {session} has an id twice")
        lost += len(ids - set(found))
    outcome.expect(not lost, f"{when}: {lost} acknowledged events are lost")
    outcome.counts["events lost"] += lost
    rows = await _sessions(store)
    outcome.expect(rows >= set(done), f"{when}: {sorted(set(done) - rows)} are not listed")
    await verified(store, outcome, when)


async def _read(store: Store, session: str) -> list[Event]:
    try:
        return [event async for event in store.read(key(session))]
    except SessionNotFound:
        return []


async def _sessions(store: Store) -> set[str]:
    found: set[str] = set()
    cursor: str | None = None
    while True:
        page = await store.find(Query(), cursor=cursor, limit=1_000)
        found.update(row.session for row in page.items)
        if (cursor := page.cursor) is None:
            return found


# Ways to take it away


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)


def _remove_all(root: Path, rng: Random) -> None:
    for path in root.glob("index.db*"):
        _unlink(path)


def _remove_some(root: Path, rng: Random) -> None:
    for name in rng.sample(NAMES, rng.randint(1, 2)):
        _unlink(root / name)


def _move_away(root: Path, rng: Random) -> None:
    for name in NAMES:
        with suppress(FileNotFoundError):
            os.replace(root / name, root / f"old-{name}")


def _put_back(root: Path, rng: Random) -> None:
    """Put a copy of the database alone in its place, of now or of a while ago."""
    copy = root / "copy.db"
    with suppress(FileNotFoundError):
        if not copy.exists() or rng.random() < 0.5:
            shutil.copyfile(root / "index.db", copy)
        shutil.copyfile(copy, root / "again.db")
        os.replace(root / "again.db", root / "index.db")


def _put_rubbish(root: Path, rng: Random) -> None:
    (root / "rubbish.db").write_bytes(rng.randbytes(10_000))
    os.replace(root / "rubbish.db", root / "index.db")


WAYS: dict[str, Callable[[Path, Random], None]] = {
    "removed": _remove_all,
    "removed in part": _remove_some,
    "moved away": _move_away,
    "replaced by a copy": _put_back,
    "replaced by rubbish": _put_rubbish,
}
