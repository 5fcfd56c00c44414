"""The judges of the simulator over real processes and real servers: workers are killed and frozen,
servers are killed, frozen and cut off, disks fill; then everything is healthy again, all work ends,
and the logs, the effects and what users were told are judged."""

from __future__ import annotations

import asyncio
import math
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from holdfast import NewEvent, Query, Store, StoreUnavailable, connect
from holdfast.events import Event, Key
from holdfast.log import events as ev
from holdfast.log.catalog import Row
from holdfast.testing.samples import read_all
from holdfast.testing.simulation.faults import Strike
from holdfast.testing.simulation.judges import MESSAGES, judge
from holdfast.testing.simulation.outcome import SimulationOutcome as Played
from holdfast.testing.simulation.outcome import Told
from holdfast.testing.simulation.scenario import Scenario, draw
from holdfast.testing.simulation.story import story
from holdfast.testing.simulation.workload import make_agent

from ..crash.outcome import Outcome, Tick, quiet
from .cluster import Users, Workers
from .places import Place, place, signal_pid

TTL = 4.0
SETTLING = 300.0  # seconds that all work gets to end once nothing goes wrong any more
OPERATED = 2.0  # seconds between two looks of the operator
ROUND = 15.0  # seconds that a user waits for the end of a scenario before the next begins
CLOCKS = 2.0  # seconds by which the clock of a log may be ahead: MongoDB's is an estimate
REPEATED = 150  # acknowledged requests that are sent again in the end
SAMPLE = 6  # events of each log that are appended again in the end
ACKNOWLEDGED = ("accepted", "extended", "restored", "deleted", "forked", "again", "copied")
DRIVER = ("Resetting connection with an active", "ConnectionError(")  # of asyncpg, after a cut

T = TypeVar("T")


def real(
    kind: str,
    folder: Path,
    *,
    seconds: float,
    processes: int,
    lanes: int,
    tick: Tick = quiet,
) -> Outcome:
    """`lanes` users each play one scenario after the other, for so long, at this many workers."""
    outcome = Outcome()
    with place(kind, folder) as where, Workers(where.url, folder, processes, TTL) as workers:
        where.pids = workers.pids
        asyncio.run(_Run(where, workers, outcome).run(seconds, lanes, tick))
    return outcome


class _Run:
    def __init__(self, where: Place, workers: Workers, outcome: Outcome) -> None:
        self._where, self._workers, self._outcome = where, workers, outcome
        self._users = Users(workers)
        self._seed = time.time_ns() // 1_000_000 % 1_000_000_000
        self._random = Random(self._seed)
        self._closing = False  # no scenario begins any more
        self._over = False  # no fault strikes any more

    async def run(self, seconds: float, lanes: int, tick: Tick) -> None:
        begun = time.monotonic()
        async with (
            _background(self._workers.supervise(), self._users.operate(OPERATED)),
            connect(self._where.url) as store,
        ):
            async with _background(self._strike(), self._strike_workers(), gently=self._stop):
                playing = [asyncio.create_task(self._lane(n)) for n in range(lanes)]
                while time.monotonic() < begun + seconds:
                    tick(int(time.monotonic() - begun), int(seconds))
                    await asyncio.sleep(1.0)
                self._closing = True
                await asyncio.gather(*playing)
            struck = time.monotonic() - begun
            await asyncio.to_thread(self._where.wait_until_healthy)
            rows = await self._settled(store)
            await self._judge(store, rows)
        self._count(struck)

    # Users and faults

    async def _lane(self, number: int) -> None:
        """Play scenarios one after the other, each in sessions of its own."""
        played = 0
        while not (self._closing and played):
            seed = f"{self._seed}-{number}-{played}"
            drawn = draw(seed, "plain" if played % 3 == 0 else "full")
            name = f"{number}x{played}"
            steps = [
                replace(step, session=f"{name}{step.session}", tag=f"{name}{step.tag}")
                for step in drawn.steps
            ]
            await self._users.play(steps, ROUND)
            self._outcome.counts["scenarios"] += 1
            played += 1

    async def _strike(self) -> None:
        """Strike the store, one fault at a time."""
        while not self._over:
            await asyncio.to_thread(self._where.last, 0.5, 4.0)
            if not self._over:
                await asyncio.to_thread(self._where.random.choice(self._where.faults))

    async def _strike_workers(self) -> None:
        """Kill workers, and freeze them, also for longer than their leases last."""
        while not self._over:
            await self._pause(1.0, 8.0)
            pid = self._random.choice(self._workers.pids() or [0])
            if not pid or self._over:
                continue
            if self._random.random() < 0.6:
                self._where.struck("worker kills", at=pid)
                signal_pid(pid, signal.SIGKILL)
            else:
                self._where.struck("worker freezes", at=pid)
                signal_pid(pid, signal.SIGSTOP)
                await self._pause(0.5, 2 * TTL)
                signal_pid(pid, signal.SIGCONT)

    async def _pause(self, least: float, most: float) -> None:
        end = time.monotonic() + self._random.uniform(least, most)
        while time.monotonic() < end and not self._over:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    def _stop(self) -> None:
        self._over = True
        self._where.over.set()

    # The end

    async def _settled(self, store: Store) -> list[Row]:
        """The rows of all logs, when all work has ended and all users have their answers."""
        end = time.monotonic() + SETTLING
        while True:
            rows = await _again(lambda: _rows(store))
            unfinished = [row for row in rows if _open(row)]
            if not unfinished and not self._users.busy:
                return rows
            if time.monotonic() > end:
                names = [f"{r.session}/{r.thread} {r.run} due={r.due}" for r in unfinished]
                waiting = [*self._users.busy.values()]
                self._outcome.problems.append(
                    f"not settled after {SETTLING:g} s: {names[:5]}, users wait: {waiting[:5]}"
                )
                return rows
            await asyncio.sleep(1.0)

    async def _judge(self, store: Store, rows: list[Row]) -> None:
        users, ledger = self._users, self._workers.ledger
        logs = {row.key: await _again(lambda row=row: _log(store, row)) for row in rows}  # type: ignore[misc]
        drafts = {row.key: [d.message for d in await store.drafts(row.key)] for row in rows}
        deleted = ledger.texts("deleted")
        unfinished = _unfinished_copies(users)
        judged = {key: log for key, log in logs.items() if key.session not in unfinished}
        played = Played(
            scenario=Scenario(seed=str(self._seed), ttl=TTL, steps=tuple(users.steps)),
            logs=judged,
            rows={row.key: row for row in rows},
            effects=[replace(effect, at=effect.at + CLOCKS) for effect in ledger.effects()],
            told=[told for told in users.told if told.session not in unfinished],
            readings=users.readings,
            faults=self._where.counts,
            checks=Counter(),
            problems=[],
            deleted=deleted,
            strikes=[Strike(0.0, math.inf, "server_clock")],  # times are not judged
            texts={},
            drafts={key: found for key, found in drafts.items() if found},
            tools=[tool for version in (1, 2) for tool in make_agent(version).tools],
            seconds=0.0,
            calls=users.requests,
        )
        problems = self._outcome.problems
        problems += judge(played)
        for text in ledger.texts("complaint"):
            if any(words in text for words in DRIVER):
                self._outcome.counts["complaints of the driver"] += 1
            else:
                problems.append(f"complaint: {text}")
        problems += [f"damage: {damage}" async for damage in store.verify()]
        problems += await self._known_ids(store, logs)
        await self._repeat(deleted)
        problems += [*users.problems, *self._workers.problems]
        self._tally(played)
        if problems:
            problems.append(f"the story is in {self._keep(played)}")

    def _keep(self, played: Played) -> Path:
        """Write down what happened in the sessions that problems are about."""
        text = "\n".join(self._outcome.problems)

        def named(session: str) -> bool:
            return session in text

        steps = tuple(step for step in self._users.steps if named(step.session))
        about = replace(
            played,
            scenario=replace(played.scenario, steps=steps),
            logs={key: log for key, log in played.logs.items() if named(key.session)},
            effects=[effect for effect in played.effects if named(effect.session)],
            told=[told for told in played.told if named(told.session)],
            problems=self._outcome.problems,
        )
        faults = [f"{at:9.3f}  {what}" for at, what in self._where.story]
        path = Path(tempfile.gettempdir()) / f"holdfast-real-{self._seed}.txt"
        path.write_text("\n".join([story(about), "", "Faults", *faults]))
        return path

    async def _known_ids(self, store: Store, logs: dict[Key, list[Event]]) -> list[str]:
        """What comes of it when events that a log has are appended again."""
        found = []
        for key, log in logs.items():
            for event in self._random.sample(log, min(SAMPLE, len(log))):
                self._outcome.counts["events appended again"] += 1
                new = NewEvent(kind=event.kind, data=event.data, id=event.id)
                made = await store.append(key, [new])
                if made.seqs != (event.seq,) or made.fresh:
                    found.append(f"{key}: event {event.seq} appended again is {made.seqs}")
        return found

    async def _repeat(self, deleted: list[str]) -> None:
        """Send acknowledged messages with a key again."""
        steps = {step.tag: step for step in self._users.steps}
        gone = {name.partition("/")[0] for name in deleted}
        gone |= {step.session for step in self._users.steps if step.action == "restore"}
        told = [
            each
            for each in self._users.told
            if each.action in MESSAGES
            and (each.seq or each.status in ("done", "failed", "aborted"))
            and each.session not in gone
            and steps[each.tag].keyed
        ]
        for each in self._random.sample(told, min(REPEATED, len(told))):
            self._outcome.counts["messages sent again"] += 1
            await self._users.again(each, steps[each.tag])

    def _tally(self, played: Played) -> None:
        counts, found = self._outcome.counts, tally(played)
        counts["events"] = played.events
        counts["effects"] = len(played.effects)
        counts["requests"] = self._users.requests
        counts["given up"] = sum(told.status == "lost" for told in played.told)
        counts["acknowledged operations"] = found.acknowledged
        counts["lost"], counts["doubled"] = len(found.lost), len(found.doubled)
        self._outcome.problems += [f"lost: {what}" for what in found.lost]
        self._outcome.problems += [f"doubled: {what}" for what in found.doubled]

    def _count(self, struck: float) -> None:
        counts = self._outcome.counts
        counts["minutes"] = round(struck / 60)
        counts.update(self._where.counts)
        counts.update(self._workers.counts)


class Tally(NamedTuple):
    """How many operations were acknowledged, and which were lost or done twice."""

    acknowledged: int
    lost: list[str]
    doubled: list[str]


def tally(played: Played) -> Tally:
    """Count messages, decisions and effects, apart from what the judges say of them."""
    gone = {name.partition("/")[0] for name in played.deleted}
    keyed = {(step.session, step.tag) for step in played.scenario.steps if step.keyed}
    messages: Counter[tuple[str, str]] = Counter()
    decided: Counter[tuple[str, str]] = Counter()
    repeats: Counter[str] = Counter()  # calls that a person let run again
    for key, log in played.payloads.items():
        for _, payload in log:
            if isinstance(payload, ev.MessageReceived) and key.thread == "main":
                messages[key.session, payload.metadata.get("tag", "")] += 1
            elif isinstance(payload, ev.PendingSettled):
                decided[key.session, payload.id] += 1
                call, unknown, _ = payload.id.partition("@")
                repeats[call] += bool(unknown) and payload.outcome == "approved"
    acknowledged = [told for told in played.told if _acknowledged(told)]
    lost = [
        f"{told}"
        for told in acknowledged
        if told.session not in gone and not _there(told, messages, decided)
    ]
    effects = Counter(effect.call for effect in played.effects if not effect.repeatable)
    doubled = [f"call {call}" for call, times in effects.items() if times > 1 + repeats[call]]
    doubled += [f"message {at}" for at, times in messages.items() if times > 1 and at in keyed]
    return Tally(len(acknowledged), lost, doubled)


def _unfinished_copies(users: Users) -> set[str]:
    """Copies of sessions in which nobody went on: they rest, with the messages that waited."""
    made = {told.tag for told in users.told if told.status.startswith("copied")}
    return {
        f"{step.session}-{step.tag}"
        for step in users.steps
        if step.action == "copy" and step.tag not in made
    }


def _acknowledged(told: Told) -> bool:
    return bool(told.seq or told.run or told.item) or told.status.split()[0] in ACKNOWLEDGED


def _there(
    told: Told, messages: Counter[tuple[str, str]], decided: Counter[tuple[str, str]]
) -> bool:
    """Whether what a user was told is in the log."""
    if told.action in MESSAGES:
        return not (told.seq or told.run) or messages[told.session, told.tag] > 0
    return told.status != "decided" or decided[told.session, told.item] > 0


def _open(row: Row) -> bool:
    return row.run in ("running", "waiting") or row.due is not None or bool(row.pending)


async def _rows(store: Store) -> list[Row]:
    """The rows of all threads of all sessions."""
    sessions = await _pages(store, Query(newest_first=False))
    return [
        thread
        for row in sessions
        for thread in await _pages(store, Query(session=row.session, newest_first=False))
    ]


async def _pages(store: Store, query: Query) -> list[Row]:
    found: dict[Key, Row] = {}
    cursor = None
    while True:
        page = await store.find(query, cursor=cursor, limit=100)
        found.update({row.key: row for row in page.items})
        cursor = page.cursor
        if cursor is None:
            return [*found.values()]


async def _log(store: Store, row: Row) -> list[Event]:
    """The events of a log, without those that a fork shares with its origin."""
    return await read_all(store, row.key, after=row.parent.at if row.parent else 0)


async def _again(work: Callable[[], Awaitable[T]]) -> T:
    """The result of reads, which are repeated while the store is unavailable."""
    for _ in range(60):
        try:
            return await work()
        except StoreUnavailable:
            await asyncio.sleep(1.0)
    return await work()


@asynccontextmanager
async def _background(
    *work: Awaitable[None], gently: Callable[[], None] | None = None
) -> AsyncGenerator[None, None]:
    """Run coroutines beside the block. In the end they are cancelled, or told `gently` to end; one
    that fails ends the block with its error."""
    owner = asyncio.current_task()
    assert owner is not None
    tasks = [asyncio.ensure_future(each) for each in work]
    failed: list[BaseException] = []

    def done(task: asyncio.Future[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            failed.append(error)
            owner.cancel()

    for task in tasks:
        task.add_done_callback(done)
    try:
        yield
    except asyncio.CancelledError:
        if failed:
            raise failed[0] from None
        raise
    finally:
        for task in tasks:
            if gently is None:
                task.cancel()
        if gently is not None:
            gently()
        await asyncio.gather(*tasks, return_exceptions=True)
