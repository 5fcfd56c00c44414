"""The primary of a replica set steps down, or says that it is about to: callers do not notice."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Store
from holdfast.testing.samples import KEY, begin, note, read_all
from tests import servers
from tests.servers import faults


@pytest.fixture(scope="session", params=["mongodb"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_step_down_is_ridden_out(place: servers.Faulty, store: Store) -> None:
    await begin(store)
    down = asyncio.create_task(asyncio.to_thread(faults.step_down, place.server))
    number = 1
    while not down.done() or number < 20:
        number += 1
        assert (await store.append(KEY, [note(number)])).seqs == (number,)
    await down
    assert [event.seq for event in await read_all(store)] == list(range(1, number + 1))


@pytest.mark.parametrize("code", [91, 189, 10107, 11600, 11602])
async def test_words_of_a_server_that_goes_are_ridden_out(
    code: int, place: servers.Faulty, store: Store
) -> None:
    """ShutdownInProgress, PrimarySteppedDown, NotWritablePrimary, Interrupted…"""
    await begin(store)
    commands = ("insert", "update", "findAndModify", "find", "aggregate")
    with faults.failing(place.server, *commands, times=2, errorCode=code):
        assert (await store.append(KEY, [note(2)])).seqs == (2,)
        assert [event.seq for event in await read_all(store)] == [1, 2]
