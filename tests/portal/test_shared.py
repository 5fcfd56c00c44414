"""Stores that are opened once per process: who opens, who closes, forks and the end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import (
    InvalidValue,
    NewEvent,
    Store,
    StoreUnavailable,
    Vault,
    key,
    shared_store,
    sync,
)
from holdfast.portal import process_portal
from holdfast.stores import Connecting, shared
from holdfast.stores.memory import MemoryStore

KEY = key("s")
CREATED = [NewEvent.of("session.created", {}, id="first")]


class Counted(MemoryStore):
    closed = 0

    async def aclose(self) -> None:
        self.closed += 1


class Opener:
    """Opens stores in memory, and fails as often as it is told."""

    def __init__(self) -> None:
        self.opened: list[Counted] = []
        self.failures = 0

    async def open(self) -> Store:
        await asyncio.sleep(0.01)
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable(problem="nobody is there")
        self.opened.append(Counted())
        return self.opened[-1]


@pytest.fixture
async def opener(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Opener]:
    opener = Opener()
    monkeypatch.setattr(shared, "connect", lambda url, vault: Connecting(opener.open))
    yield opener
    assert not shared._open_stores.get(process_portal())


async def test_all_handles_of_a_url_share_one_store(opener: Opener) -> None:
    handles = [shared_store("test:") for _ in range(20)]
    assert opener.opened == []
    await asyncio.gather(
        *(handle.append(KEY, CREATED, create=True) for handle in handles[:10]),
        *(asyncio.to_thread(asyncio.run, handle.connect()) for handle in handles[10:15]),
        *(asyncio.to_thread(sync.Store(handle).claims, KEY.scope) for handle in handles[15:]),
    )
    assert len(opener.opened) == 1
    assert {await handle.row(KEY) is None for handle in handles} == {False}
    for handle in handles[1:]:
        await handle.aclose()
        await handle.aclose()
    assert opener.opened[0].closed == 0
    await handles[0].aclose()
    assert opener.opened[0].closed == 1


async def test_a_closed_handle_is_closed_and_the_next_one_opens_again(opener: Opener) -> None:
    first = await shared_store("test:")
    await first.aclose()
    for work in (first.row(KEY), first.connect(), anext(first.read(KEY))):
        with pytest.raises(StoreUnavailable, match="closed"):
            await work
    async with shared_store("test:") as second:
        await second.row(KEY)
    assert [store.closed for store in opener.opened] == [1, 1]


async def test_a_handle_that_is_closed_before_its_use_opens_nothing(opener: Opener) -> None:
    await shared_store("test:").aclose()
    assert opener.opened == []


async def test_a_failed_attempt_is_repeated_by_the_next_call(opener: Opener) -> None:
    opener.failures = 1
    store = shared_store("test:")
    with pytest.raises(StoreUnavailable, match="nobody"):
        await store.row(KEY)
    assert await store.row(KEY) is None
    await store.aclose()


async def test_a_cancelled_opening_is_still_closed_with_its_handle(opener: Opener) -> None:
    store = shared_store("test:")
    opening = asyncio.create_task(store.connect())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await store.aclose()
    assert {opened.closed for opened in opener.opened} <= {1}


async def test_other_urls_and_vaults_are_other_stores(opener: Opener) -> None:
    vault = Vault([Vault.new_key("first")])
    handles = [
        await shared_store("test:"),
        await shared_store("test:b"),
        await shared_store("test:", vault=vault),
        await shared_store("test:", vault=vault),
    ]
    assert len(opener.opened) == 3
    for handle in handles:
        await handle.aclose()


async def test_a_store_without_await_is_the_shared_one(opener: Opener) -> None:
    def plain() -> None:
        with sync.Store("test:") as store:
            store.append(KEY, CREATED, create=True)
            assert [event.seq for event in store.read(KEY)] == [1]
            assert store.info().kind == "memory"
            assert "append" in dir(store)
            with pytest.raises(AttributeError):
                _ = store.nothing
        store.close()

    async with shared_store("test:") as handle:
        await asyncio.to_thread(plain)
        assert await handle.row(KEY) is not None
    assert [store.closed for store in opener.opened] == [1]


def test_a_url_of_no_store_is_refused_at_once() -> None:
    with pytest.raises(InvalidValue):
        shared_store("nowhere:x")


async def test_it_says_what_it_is_and_no_password() -> None:
    store = shared_store("postgresql://ann:s3cr3t@host/db")
    assert "s3cr3t" not in repr(store)
    with pytest.raises(StoreUnavailable, match="not open yet"):
        store.info()


# Processes


def ran(code: str, *args: object) -> list[str]:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


FORKED = """
import asyncio, os, sys
from holdfast import NewEvent, StoreError, connect, key, shared_store, sync

async def grown(store):
    await store.append(key("s"), [NewEvent.of("note.made")], create=True)
    return (await store.row(key("s"))).head

store = shared_store(sys.argv[1])
plain = sync.Store(store)
print(asyncio.run(grown(store)), flush=True)
async def opened():
    return await connect("memory:", portal=True)
stale = asyncio.run(opened())
child = os.fork()
if not child:
    print(asyncio.run(grown(store)), plain.row(key("s")).head, flush=True)
    try:
        asyncio.run(stale.row(key("s")))
    except StoreError as error:
        print("forked" in str(error), flush=True)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
print(asyncio.run(grown(store)), flush=True)
asyncio.run(store.aclose())
"""


def test_a_forked_process_opens_its_own(tmp_path: Path) -> None:
    assert ran(FORKED, f"sqlite:{tmp_path}/x.db") == ["1", "2", "2", "True", "3"]


LEFT = """
import asyncio, sys
from holdfast import NewEvent, key, shared_store

store = shared_store(sys.argv[1])
asyncio.run(store.append(key("s"), [NewEvent.of("note.made")], create=True))
print("open")
"""


def test_what_is_open_at_the_end_of_the_process_is_closed(tmp_path: Path) -> None:
    assert ran(LEFT, f"sqlite:{tmp_path}/x.db") == ["open"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.db", "x.db.lock"]  # no WAL
