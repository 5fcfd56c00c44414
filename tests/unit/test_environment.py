"""The environment: what a program replaces to control time and ids."""

from __future__ import annotations

import asyncio
from random import Random

from holdfast import environment
from holdfast.environment import Environment, new_id, wall_clock
from holdfast.events import NewEvent


class Frozen(Environment):
    def time_ns(self) -> int:
        return 1_700_000_000_123_000_000


def test_ids_and_times_come_from_the_environment_in_use() -> None:
    made = []
    for _ in range(2):
        with environment.use(Frozen(Random(7))):
            assert wall_clock() == 1_700_000_000_123
            made.append((new_id(), NewEvent.of("app.note").id))
    assert made[0] == made[1]
    assert wall_clock() > 1_700_000_000_123


async def test_tasks_inherit_the_environment_and_others_are_not_affected() -> None:
    async def now() -> int:
        return wall_clock()

    with environment.use(Frozen()):
        inside = asyncio.create_task(now())
    outside = asyncio.create_task(now())
    assert await inside == 1_700_000_000_123
    assert await outside > 1_700_000_000_123


def test_ids_rise_with_time() -> None:
    ids = [new_id() for _ in range(1_000)]
    assert len(set(ids)) == 1_000
    assert ids[0][:13] <= ids[-1][:13]
