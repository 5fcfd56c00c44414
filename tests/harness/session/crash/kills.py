"""Kill the process of a session at any of its writes: the next one shows the same, and all that is
left to do is done."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ....crash.outcome import Outcome, Tick, quiet
from ....crash.places import url
from ...crash.nursery import Nursery
from ...crash.scene import Effects

MODULE = "tests.harness.session.crash.nursery"
AT_ONCE = 6  # most of the time they wait for a lease to lapse
ENOUGH = 5  # problems: then the rest is left out
PATIENCE = 90.0  # seconds that one round may take
DONE = ["pay-1", "pay-3", "work"]


class Point(NamedTuple):
    """Where the process dies."""

    call: int
    after: bool

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} write {self.call}"


def kills(
    kind: str,
    folder: Path,
    *,
    count: int | None = None,
    sides: Sequence[bool] = (True, False),
    tick: Tick = quiet,
) -> Outcome:
    """Die after every write of the session and before it, or at `count` places spread over all."""
    outcome = Outcome()
    with Nursery(folder, module=MODULE) as nursery:
        asyncio.run(_kills(_Round(kind, folder, nursery), outcome, count, sides, tick))
    return outcome


class _Round:
    def __init__(self, kind: str, folder: Path, nursery: Nursery) -> None:
        self.url, self.folder, self.nursery = url(kind, folder), folder, nursery

    def effects(self, tenant: str) -> Effects:
        return Effects(self.folder / f"{tenant}.effects")

    def seen(self, tenant: str) -> Path:
        return self.folder / f"{tenant}.seen"

    async def live(self, tenant: str, **told: Any) -> dict[str, Any]:
        """A process that does what is left; what it leaves behind."""
        child = self.nursery.bear(
            url=self.url,
            tenant=tenant,
            effects=str(self.folder / f"{tenant}.effects"),
            seen=str(self.seen(tenant)),
            **told,
        )
        async with asyncio.timeout(PATIENCE):
            await child.died()
        return child.words


async def _kills(
    round: _Round, outcome: Outcome, count: int | None, sides: Sequence[bool], tick: Tick
) -> None:
    whole = await round.live("whole")
    if "end" not in whole:
        outcome.problems.append(f"unharmed: {whole}")
        return
    outcome.equal(_done(round, "whole"), DONE, "unharmed: effects")
    calls = range(1, whole["writes"] + 1)
    points = [Point(call, after) for call in calls for after in sides]
    if count is not None and count < len(points):
        points = [points[int(n * len(points) / count)] for n in range(count)]
    gate, done = asyncio.Semaphore(AT_ONCE), 0

    async def one(number: int, point: Point) -> None:
        nonlocal done
        async with gate:
            if len(outcome.problems) <= ENOUGH:
                await _killed(round, outcome, f"t{number}", point, whole["end"])
        done += 1
        tick(done, len(points))

    await asyncio.gather(*(one(number, point) for number, point in enumerate(points)))


async def _killed(
    round: _Round, outcome: Outcome, tenant: str, point: Point, end: dict[str, Any]
) -> None:
    left = await round.live(tenant, call=point.call, after=point.after)
    if left:
        outcome.counts["places not reached"] += 1
        outcome.expect("failed" not in left, f"{point}: {left}")
    else:
        outcome.counts["kills"] += 1
    after = await round.live(tenant)
    if "end" not in after:
        outcome.problems.append(f"{point}: the next process left {after}")
        return
    if round.seen(tenant).exists():
        outcome.counts["views"] += 1
        before = msgspec.json.decode(round.seen(tenant).read_bytes())
        for part, was in before.items():
            outcome.equal(after["found"][part], was, f"{point}: {part} after the restart")
    for part, wanted in end.items():
        outcome.equal(after["end"][part], wanted, f"{point}: {part} in the end")
    outcome.equal(_done(round, tenant), DONE, f"{point}: effects")


def _done(round: _Round, tenant: str) -> list[str]:
    return sorted(effect.tool for effect in round.effects(tenant).all())
