"""MongoDB refuses each command of an append in turn: no transaction puts back what the ones
before it did, and still it is all or nothing."""

from __future__ import annotations

import pytest

from holdfast import Store, StoreUnavailable
from holdfast.testing.samples import KEY, note, read_all
from tests import servers
from tests.servers import faults

from .test_refusals import WRITES

MOST = 4  # commands of an append that may pass before one is refused
ROUNDS, BATCH = 40, 30


@pytest.fixture(scope="session", params=["mongodb", "standalone"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_an_append_refused_half_way_is_all_or_nothing(
    place: servers.Faulty, store: Store
) -> None:
    await store.append(KEY, [note("first")], create=True)
    refused = 0
    size = 1
    for number in range(ROUNDS):
        batch = [note(f"{number}-{n}") for n in range(BATCH)]
        with faults.failing(
            place.server, *WRITES, skip=number % MOST, errorCode=faults.NO_DISK_SPACE
        ):
            try:
                await store.append(KEY, batch)
            except StoreUnavailable:
                refused += 1
        assert len(await read_all(store)) in (size, size + BATCH)
        done = await store.append(KEY, batch)
        assert done.seqs == tuple(range(size + 1, size + BATCH + 1))
        size += BATCH
        assert [event.seq for event in await read_all(store)] == list(range(1, size + 1))
        assert [damage async for damage in store.verify()] == []
    assert refused >= ROUNDS / MOST
