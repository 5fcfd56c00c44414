"""What readers may count on while connections are cut and servers are restarted, killed and
switched: each event once and in order, the text of each message byte for byte, and no message
answered twice."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast import CaughtUp, Delta, Event, connect, key
from holdfast.client import Client, Patience, Session
from holdfast.events import MessageCompleted
from holdfast.log.events.defaults import complete
from holdfast.testing.samples import read_all

from ..crash.outcome import Outcome, Tick, quiet
from ..crash.places import url
from .replica import TTL, Replica, story

PATIENCE = 120.0  # seconds that all may take to come to an end, once nothing breaks any more
PATIENT = Patience(connect=2.0, answer=15.0, silence=15.0, total=90.0)


class Heard:
    """What one reader was given, over all its connections."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.texts: dict[str, str] = {}
        self.problems: list[str] = []

    def take(self, item: object) -> None:
        if isinstance(item, Event):
            self.events.append(item)
        elif isinstance(item, Delta):
            so_far = self.texts.get(item.message, "")
            if item.offset != len(so_far):
                self.problems.append(f"text at {item.offset} after {len(so_far)}")
            self.texts[item.message] = so_far + item.text

    def judge(self, name: str, log: list[Event], outcome: Outcome) -> None:
        outcome.problems.extend(f"{name}: {problem}" for problem in self.problems)
        outcome.equal(self.events, [complete(event) for event in log], f"{name}: the events")
        for event in log:
            if event.kind == "message.completed" and event.id in self.texts:
                text = event.payload(MessageCompleted).text
                outcome.equal(self.texts[event.id], text, f"{name}: the text of {event.id}")
                outcome.counts["messages read as they were said"] += 1


async def read(session: Session, heard: Heard) -> None:
    """Follow a session for as long as the test lasts, from its beginning."""
    async for item in session.follow(0):
        heard.take(item)


async def talk(
    session: Session, name: str, going: Callable[[], bool], outcome: Outcome
) -> list[str]:
    """Send messages, one after the other, and see each answered; what was sent."""
    asked: list[str] = []
    while going():
        asked.append(f"{name} asks {len(asked)}.")
        heard, stream = Heard(), session.stream(asked[-1])
        async for item in stream:
            outcome.expect(not isinstance(item, CaughtUp), f"{name}: a mark in a stream")
            heard.take(item)
        outcome.problems.extend(f"{name}: {problem}" for problem in heard.problems)
        ended = (stream.result.status, stream.result.code)
        outcome.equal(ended, ("done", None), f"{name}: how {asked[-1]!r} ended")
        outcome.equal(stream.result.text, story(asked[-1]), f"{name}: the answer")
        said = [heard.texts.get(e.id) for e in heard.events if e.kind == "message.completed"]
        outcome.equal(said, [story(asked[-1])], f"{name}: the answer as it was streamed")
        outcome.counts["messages answered"] += 1
    return asked


def storm(
    kind: str,
    folder: Path,
    *,
    sessions: int,
    cuts: int,
    restarts: int,
    kills: int,
    pause: float = 0.2,
    tick: Tick = quiet,
) -> Outcome:
    """Two servers on one store. Sessions stream on both, while the connections are cut so often,
    and the servers told to end, or killed, and started again."""
    return asyncio.run(_storm(kind, folder, sessions, cuts, restarts, kills, pause, tick))


async def _storm(
    kind: str,
    folder: Path,
    sessions: int,
    cuts: int,
    restarts: int,
    kills: int,
    pause: float,
    tick: Tick,
) -> Outcome:
    outcome = Outcome()
    where = await asyncio.to_thread(url, kind, folder)
    going = True
    async with (
        Replica(where) as one,
        Replica(where) as two,
        Client([one.url, two.url], patience=PATIENT) as client,
        Client([two.url, one.url], patience=PATIENT) as other,
    ):
        names = [f"session-{n}" for n in range(sessions)]
        opened = [await client.get_or_create(name) for name in names]
        heard = {name: (Heard(), Heard()) for name in names}
        readers = [
            asyncio.create_task(read(way.session(name), heard[name][n]))
            for name in names
            for n, way in enumerate((client, other))
        ]
        talkers = [
            asyncio.create_task(talk(session, session.id, lambda: going, outcome))
            for session in opened
        ]
        tasks: list[asyncio.Task[Any]] = [*readers, *talkers]
        await _break(one, two, cuts, restarts, kills, pause, outcome, tick, tasks)
        going = False
        async with asyncio.timeout(PATIENCE):
            asked = await asyncio.gather(*talkers)
            async with connect(where) as store:
                logs = [await read_all(store, key(name)) for name in names]
            await _until(
                lambda: all(_whole(heard[n], log) for n, log in zip(names, logs, strict=True)),
                readers,
            )
        for task in readers:
            task.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    for name, log, sent in zip(names, logs, asked, strict=True):
        _once(name, log, sent, outcome)
        for n, reader in enumerate(heard[name]):
            reader.judge(f"{name}, reader {n}", log, outcome)
    return outcome


def _whole(heard: tuple[Heard, Heard], log: list[Event]) -> bool:
    return all(each.events and each.events[-1].seq >= log[-1].seq for each in heard)


async def _until(true: Callable[[], bool], tasks: list[asyncio.Task[None]]) -> None:
    while not true():
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(0.05)


def _once(name: str, log: list[Event], sent: list[str], outcome: Outcome) -> None:
    """No message was lost, taken twice, or answered twice."""
    received = [event.json()["text"] for event in log if event.kind == "message.received"]
    outcome.equal(received, sent, f"{name}: the messages in the log")
    started = [n for e in log if e.kind == "run.started" for n in e.json()["inputs"]]
    outcome.equal(len(started), len({*started}), f"{name}: runs begun twice")
    outcome.equal(len(started), len(sent), f"{name}: runs")


async def _break(
    one: Replica,
    two: Replica,
    cuts: int,
    restarts: int,
    kills: int,
    pause: float,
    outcome: Outcome,
    tick: Tick,
    tasks: list[asyncio.Task[Any]],
) -> None:
    """Do all of it, in an order that chance gives; never to both servers at once."""
    chance = random.Random(1)
    todo = ["cut"] * cuts + ["restart"] * restarts + ["kill"] * kills
    chance.shuffle(todo)
    for number, do in enumerate(todo):
        tick(number, len(todo))
        replica = chance.choice((one, two))
        await asyncio.sleep(chance.uniform(0.0, 2 * pause))
        if do == "cut":
            how = chance.choice(("reset", "close"))
            ended = await asyncio.to_thread(replica.wire.cut, how)  # type: ignore[arg-type]
            outcome.counts["connections cut"] += ended
        elif do == "restart":
            await replica.stop()
            await replica.start()
        else:
            await asyncio.to_thread(replica.kill)
            await replica.start()
        outcome.counts[f"{do}s"] += 1
        for task in tasks:
            if task.done():
                await task


def takeovers(
    kind: str, folder: Path, *, rounds: int, sessions: int, tick: Tick = quiet
) -> Outcome:
    """Kill the server that drives, while others stream too: the other one takes over, whoever
    reads sees a pause and nothing else, and each message is answered once. The figures say how
    long nothing came; a lease lasts `TTL` seconds, and is looked for every half of that."""
    return asyncio.run(_takeovers(kind, folder, rounds, sessions, tick))


async def _takeovers(kind: str, folder: Path, rounds: int, sessions: int, tick: Tick) -> Outcome:
    outcome, pauses = Outcome(), list[float]()
    where = await asyncio.to_thread(url, kind, folder)
    async with (
        Replica(where) as one,
        Replica(where) as two,
        Client([one.url, two.url], patience=PATIENT) as first,
        Client([two.url, one.url], patience=PATIENT) as second,
    ):
        for number in range(rounds):
            tick(number, rounds)
            driver, way = ((one, first), (two, second))[number % 2]
            names = [f"round-{number}-{n}" for n in range(sessions)]
            opened = [await way.get_or_create(name) for name in names]
            async with asyncio.timeout(PATIENCE):
                spoke = [asyncio.Event() for _ in opened]
                told = [
                    asyncio.create_task(_pause(session, event, outcome))
                    for session, event in zip(opened, spoke, strict=True)
                ]
                await asyncio.gather(*(event.wait() for event in spoke))
                await asyncio.to_thread(driver.kill)
                pauses.extend(await asyncio.gather(*told))
            await driver.start()
            way._transport._at = 0
            outcome.counts["kills"] += 1
        async with connect(where) as store:
            for number in range(rounds):
                for n in range(sessions):
                    name = f"round-{number}-{n}"
                    log = await read_all(store, key(name))
                    _once(name, log, [f"{name}."], outcome)
                    resumed = [event.kind for event in log].count("run.resumed")
                    outcome.counts["runs taken over"] += resumed > 0
    outcome.measured("nothing came", pauses, limit=2 * TTL + 2.0)
    return outcome


async def _pause(session: Session, spoke: asyncio.Event, outcome: Outcome) -> float:
    """See a message answered; the longest time in which nothing came."""
    stream = session.stream(f"{session.id}.")
    heard, last, longest = Heard(), time.monotonic(), 0.0
    async for item in stream:
        heard.take(item)
        if isinstance(item, Delta):
            spoke.set()
        now = time.monotonic()
        last, longest = now, max(longest, now - last)
    outcome.problems.extend(f"{session.id}: {problem}" for problem in heard.problems)
    outcome.equal(stream.result.text, story(f"{session.id}."), f"{session.id}: the answer")
    return longest
