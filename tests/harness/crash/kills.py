"""Kill the driver before and after every write of a run; another process goes on, people answer
from outside, and in the end nothing is lost, doubled or half there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import Event, Store, connect
from holdfast.log.state import fold
from holdfast.testing.samples import read_all

from ...crash.outcome import Outcome, Tick, quiet
from ...crash.places import url
from .nursery import Child, Nursery
from .person import Person, judge
from .scene import Effects, place

TTL = 0.5  # seconds: what the next driver waits for, if the last one died
LOOK = 0.02
PATIENCE = 40.0  # seconds that one round may take
ENOUGH = 5  # problems: then the rest is left out
AT_ONCE = 6  # most of the time they wait for a lease to lapse
WRITES = ("append", "acquire", "release", "renew", "put_draft")


class Point(NamedTuple):
    """Where the driver dies; with `again`, the next one dies as well, at its so-manieth append."""

    method: str
    call: int
    after: bool
    again: int = 0

    def __str__(self) -> str:
        text = f"{'after' if self.after else 'before'} {self.method} {self.call}"
        return f"{text}, then {self.again}" if self.again else text


def kills(
    kind: str,
    folder: Path,
    *,
    methods: Sequence[str] = ("append",),
    count: int | None = None,
    twice: int = 0,
    delay: float = 0.0,
    tick: Tick = quiet,
) -> Outcome:
    """Die at every call of these methods, or at `count` of them spread over the run; and at
    `twice` pairs of places by chance. `counts` say how often people had to be asked what
    happened."""
    outcome = Outcome()
    with Nursery(folder) as nursery:
        asyncio.run(
            _kills(_Stage(kind, folder, nursery, outcome, delay), methods, count, twice, tick)
        )
    return outcome


class _Stage:
    def __init__(
        self, kind: str, folder: Path, nursery: Nursery, outcome: Outcome, delay: float
    ) -> None:
        self.url, self.folder, self.nursery = url(kind, folder), folder, nursery
        self.outcome, self.delay = outcome, delay

    def bear(self, tenant: str, **told: Any) -> Child:
        effects = str(self.folder / f"{tenant}.effects")
        return self.nursery.bear(
            url=self.url, tenant=tenant, effects=effects, ttl=TTL, delay=self.delay, **told
        )


async def _kills(
    stage: _Stage, methods: Sequence[str], count: int | None, twice: int, tick: Tick
) -> None:
    outcome = stage.outcome
    async with connect(stage.url) as store:
        calls = await _unharmed(stage, store)
        points = [
            Point(method, n, after)
            for method in methods
            for n in range(1, calls.get(method, 0) + 1)
            for after in (False, True)
        ]
        if count is not None and count < len(points):
            step = len(points) / count
            points = [points[int(n * step)] for n in range(count)]
        for number in range(twice):
            by_chance = random.Random(number)
            first = Point("append", by_chance.randint(3, calls["append"]), by_chance.random() < 0.5)
            points.append(first._replace(again=by_chance.randint(1, 8)))
        outcome.expect(points, "there is nothing to kill")
        gate = asyncio.Semaphore(AT_ONCE)
        done = 0

        async def one(number: int, point: Point) -> None:
            nonlocal done
            async with gate:
                if len(outcome.problems) > ENOUGH:
                    return
                try:
                    async with asyncio.timeout(PATIENCE):
                        await _killed(stage, store, f"t{number}", point)
                except TimeoutError:
                    kinds = [event.kind for event in await _log(store, f"t{number}")]
                    outcome.problems.append(f"{point}: not over after {PATIENCE:g} s: {kinds}")
            done += 1
            tick(done, len(points))

        await asyncio.gather(*(one(number, point) for number, point in enumerate(points)))


async def _unharmed(stage: _Stage, store: Store) -> dict[str, int]:
    """How often each method is called when nobody dies."""
    child = stage.bear("whole")
    person = Person(store, "whole", Effects(stage.folder / "whole.effects"))
    async with asyncio.timeout(PATIENCE):
        await person.answer(lambda: child.alive)
        await child.died()
    judge(stage.outcome, "unharmed", await read_all(store, place("whole")), person)
    stage.outcome.equal(person.asked, 0, "unharmed: questions what happened")
    calls: dict[str, int] = child.words.get("calls", {})
    stage.outcome.expect(calls, f"unharmed: {child.words}")
    return calls


async def _killed(stage: _Stage, store: Store, tenant: str, point: Point) -> None:
    outcome, at = stage.outcome, place(tenant)
    person = Person(store, tenant, Effects(stage.folder / f"{tenant}.effects"))
    child = stage.bear(tenant, method=point.method, call=point.call, after=point.after)
    await person.answer(lambda: child.alive)
    await child.died()
    if child.words:
        outcome.counts["places not reached"] += 1
        outcome.expect("failed" not in child.words, f"{point}: {child.words}")
    else:
        outcome.counts["kills"] += 1
    left = await _log(store, tenant)
    lost = {id for id, call in fold(left).calls.items() if call.status == "started"}
    unsafe = {id for id in lost if not fold(left).calls[id].repeat}
    if point.again:
        child = stage.bear(tenant, method="append", call=point.again, after=point.after)
        await person.answer(lambda: child.alive)
        await child.died()
        outcome.counts["second kills"] += not child.words
    sent = any(event.kind == "message.received" for event in left)
    child = stage.bear(tenant, send=not sent)
    await person.answer(lambda: child.alive)
    await child.died()
    outcome.equal(child.words.get("run"), "done", f"{point}: the next process left {child.words}")
    events = await read_all(store, at)
    judge(outcome, str(point), events, person)
    outcome.counts["calls lost"] += len(lost)
    outcome.counts["unknown"] += person.asked
    if not point.again:
        outcome.equal(
            person.asked,
            len(unsafe & _begun(events, len(left))),
            f"{point}: questions what happened",
        )
    elif person.asked > 2:
        outcome.problems.append(f"{point}: {person.asked} questions what happened")
    if person.asked and not point.again:
        outcome.counts[f"unknown {point}"] += person.asked


def _begun(events: list[Event], left: int) -> set[str]:
    """The calls that were begun and not over when the next process came. What the first had
    written and was not told of may have been found only then."""
    more = takewhile(lambda event: event.kind != "run.resumed", events[left:])
    before = [*events[:left], *more]
    return {id for id, call in fold(before).calls.items() if call.status == "started"}


async def _log(store: Store, tenant: str) -> list[Event]:
    if await store.row(place(tenant)) is None:
        return []
    return await read_all(store, place(tenant))
