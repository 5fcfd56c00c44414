"""The server refuses to write: its disk is full, the user lacks a right, it only reads.

The caller gets a typed error, nothing is half-written, and the same call succeeds afterwards.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import NewEvent, Store, StoreError, StoreUnavailable
from holdfast.testing.samples import KEY, SIDE, begin, note, read_all
from tests import servers
from tests.servers import faults

ERRORS = {
    "disk full": (faults.DISK_FULL, faults.NO_DISK_SPACE, StoreUnavailable),
    "no right": (faults.FORBIDDEN, faults.UNAUTHORIZED, StoreError),
    "read only": (faults.READ_ONLY, faults.NOT_PRIMARY, StoreUnavailable),
}
WRITES = ("insert", "update", "findAndModify", "delete", "bulkWrite")


@pytest.fixture
def url(place: servers.Faulty, tmp_path: Path) -> str:
    """That of a store that soon gives up waiting."""
    url = place.url(tmp_path)
    return f"{url}{'&' if '?' in url else '?'}patience=1"


@pytest.fixture
async def store(url: str) -> AsyncGenerator[Store, None]:
    async with holdfast.connect(url) as store:
        yield store


@asynccontextmanager
async def refusing(place: servers.Faulty, url: str, what: str) -> AsyncGenerator[None, None]:
    sqlstate, code, _ = ERRORS[what]
    if place.server.kind == "postgres":
        async with faults.raising(place.server.address, url, sqlstate):
            yield
    else:
        with faults.failing(place.server, *WRITES, errorCode=code):
            yield


async def view(store: Store) -> dict[str, Any]:
    return {
        "events": await read_all(store),
        "row": await store.row(KEY),
        "side": await store.row(SIDE),
        "new": await store.row(holdfast.key("new")),
        "drafts": await store.drafts(KEY),
        "damage": [damage async for damage in store.verify()],
    }


@pytest.mark.parity("user-demand", 42)
@pytest.mark.parametrize("what", ERRORS)
async def test_a_refused_write_is_a_typed_error_and_leaves_nothing(
    what: str, place: servers.Faulty, url: str, store: Store
) -> None:
    await begin(store, count=3)
    labelled = NewEvent.of("label.added", {"label": "red"}, id="red")
    before = await view(store)
    wanted = ERRORS[what][2]
    async with refusing(place, url, what):
        with pytest.raises(StoreError) as told:
            await store.append(KEY, [note(4), labelled])
        assert type(told.value) is wanted
        assert told.value.retryable == (wanted is StoreUnavailable)
        assert told.value.__cause__ is not None
        with pytest.raises(StoreError):
            await store.append(holdfast.key("new"), [note(1)], create=True)
        with pytest.raises(StoreError):
            await store.fork(KEY, SIDE.thread, at=2, first=note("x"))
    assert await view(store) == before
    assert (await store.append(KEY, [note(4), labelled])).seqs == (4, 5)
    await store.append(holdfast.key("new"), [note(1)], create=True)
    await store.fork(KEY, SIDE.thread, at=2, first=note("x"))
    assert [damage async for damage in store.verify()] == []
