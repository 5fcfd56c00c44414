"""An adapter on a URL: opened when needed, once, and closed by itself alone."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast import HoldfastError, InvalidValue, Store, StoreUnavailable, WrongLoop, connect
from holdfast.adapters.claude import ClaudeSessionStore
from holdfast.portal import process_portal
from holdfast.stores import Connecting, shared
from holdfast.stores.memory import MemoryStore
from tests import forks

from .words import entry, key

parity = pytest.mark.parity


TWICE = """
import asyncio, sys
from holdfast.adapters.claude import ClaudeSessionStore

sessions = ClaudeSessionStore(sys.argv[1])
at = {"project_key": "p", "session_id": "s"}

async def turn(n):
    await sessions.append(at, [{"type": "user", "uuid": f"u{n}"}])
    print(len(await sessions.load(at)), flush=True)

for n in range(2):
    asyncio.run(turn(n))
asyncio.run(sessions.close())
"""


class Counted(MemoryStore):
    """A store that counts how often it is closed."""

    closed = 0

    async def aclose(self) -> None:
        self.closed += 1


class Door:
    """Opens stores slowly, on the event loop of the process, and fails as often as it is told."""

    def __init__(self) -> None:
        self.opened: list[Counted] = []
        self.tries = 0
        self.failures = 0
        self.go = threading.Event()
        self.go.set()
        self.reached = threading.Event()

    async def open(self) -> Store:
        self.tries += 1
        self.reached.set()
        await asyncio.to_thread(self.go.wait)
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable(problem="nobody is there")
        self.opened.append(Counted())
        return self.opened[-1]


@pytest.fixture
async def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    door = Door()
    monkeypatch.setattr(shared, "connect", lambda url, vault: Connecting(door.open))
    return door


@parity("computeragent", 28)
async def test_nothing_is_opened_before_the_first_use_and_then_once(door: Door) -> None:
    door.go.clear()
    sessions = ClaudeSessionStore("test:")
    assert door.tries == 0
    loads = [asyncio.create_task(sessions.load(key())) for _ in range(10)]
    await asyncio.to_thread(door.reached.wait)
    door.go.set()
    assert await asyncio.gather(*loads) == [None] * 10
    assert door.tries == 1
    await sessions.append(key(), [entry("a")])
    await sessions.connect()
    assert door.tries == 1
    await sessions.close()


@parity("computeragent", 28)
async def test_a_store_is_made_at_the_first_use(shared_url: str, tmp_path: Path) -> None:
    sessions = ClaudeSessionStore(shared_url)
    if shared_url.startswith(("sqlite", "file")):
        assert os.listdir(tmp_path) == []
    assert await sessions.load(key()) is None
    await sessions.append(key(), [entry("a")])
    await sessions.close()
    async with connect(shared_url) as store:
        assert await ClaudeSessionStore(store).load(key()) == [entry("a")]


@parity("computeragent", 29)
async def test_connect_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "not-a-database").write_text("this is text, and more than a header of text" * 9)
    wrong = [f"sqlite:{tmp_path}/missing/x.db", f"sqlite:{tmp_path}/not-a-database"]
    for url in wrong:
        sessions = ClaudeSessionStore(url)
        with pytest.raises(HoldfastError):
            await sessions.connect()
        with pytest.raises(HoldfastError):
            async with sessions:
                pass
        await sessions.close()


@parity("computeragent", 29)
@pytest.mark.parametrize("url", ["", "nothing", "nowhere:x"])
def test_a_url_of_no_store_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidValue):
        ClaudeSessionStore(url)


@pytest.mark.parametrize("store", [None, 5, b"memory:", Path("x.db"), connect("memory:")])
def test_object_that_is_no_store_is_refused_at_once(store: Any) -> None:
    name = type(store).__name__
    with pytest.raises(InvalidValue, match=f"store is {name}: pass the URL of a store"):
        ClaudeSessionStore(store)


@parity("computeragent", 30)
async def test_a_failed_attempt_can_be_repeated(door: Door) -> None:
    door.failures = 2
    sessions = ClaudeSessionStore("test:")
    with pytest.raises(StoreUnavailable):
        await sessions.connect()
    with pytest.raises(StoreUnavailable):
        await sessions.load(key())
    assert await sessions.load(key()) is None
    assert door.tries == 3
    await sessions.close()


async def test_a_failed_attempt_fails_all_who_waited_and_nobody_later(door: Door) -> None:
    door.failures = 1
    door.go.clear()
    sessions = ClaudeSessionStore("test:")
    loads = [asyncio.create_task(sessions.load(key())) for _ in range(5)]
    await asyncio.to_thread(door.reached.wait)
    await process_portal().run(asyncio.sleep, 0)  # behind the loads
    door.go.set()
    answers = await asyncio.gather(*loads, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 5
    assert door.tries == 1
    assert await sessions.load(key()) is None
    await sessions.close()


@parity("computeragent", 31)
async def test_close_is_done_once_however_often_it_is_called(door: Door) -> None:
    sessions = ClaudeSessionStore("test:")
    await sessions.close()
    await sessions.connect()
    await sessions.close()
    await sessions.close()
    assert [store.closed for store in door.opened] == [1]
    assert await sessions.load(key()) is None
    await asyncio.gather(sessions.close(), sessions.close())
    assert [store.closed for store in door.opened] == [1, 1]


async def test_a_store_that_opens_while_it_is_closed_is_closed(door: Door) -> None:
    door.go.clear()
    sessions = ClaudeSessionStore("test:")
    loading = asyncio.create_task(sessions.load(key()))
    await asyncio.to_thread(door.reached.wait)
    closing = asyncio.create_task(sessions.close())
    await asyncio.sleep(0)
    door.go.set()
    await closing
    with pytest.raises(StoreUnavailable):
        await loading
    assert [store.closed for store in door.opened] == [1]


async def test_an_attempt_that_fails_while_it_is_closed_leaves_nothing(door: Door) -> None:
    door.go.clear()
    door.failures = 1
    sessions = ClaudeSessionStore("test:")
    loading = asyncio.create_task(sessions.load(key()))
    await asyncio.to_thread(door.reached.wait)
    closing = asyncio.create_task(sessions.close())
    await asyncio.sleep(0)
    door.go.set()
    await closing
    with pytest.raises(StoreUnavailable):
        await loading
    assert door.opened == []


async def test_a_caller_that_gives_up_leaves_the_others_their_store(door: Door) -> None:
    door.go.clear()
    sessions = ClaudeSessionStore("test:")
    first, second = (asyncio.create_task(sessions.load(key())) for _ in range(2))
    await asyncio.to_thread(door.reached.wait)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    door.go.set()
    assert await second is None
    await sessions.close()
    assert [store.closed for store in door.opened] == [1]


async def test_a_store_that_was_passed_in_stays_its_owners() -> None:
    store = Counted()
    async with ClaudeSessionStore(store) as sessions:
        await sessions.append(key(), [entry("a")])
    await sessions.close()
    assert store.closed == 0
    assert await sessions.load(key()) == [entry("a")]


def test_it_goes_on_in_another_event_loop_after_the_first_ended(shared_url: str) -> None:
    words = ("-c", TWICE, shared_url)
    needs = ("holdfast.adapters.claude",)
    done = forks.run(*words, needs=needs, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split()) == (0, ["1", "2"]), done.stderr


async def test_several_event_loops_may_use_it_at_a_time() -> None:
    sessions = ClaudeSessionStore("memory:")
    await sessions.append(key(), [entry("a")])
    await asyncio.to_thread(asyncio.run, sessions.append(key(), [entry("b")]))
    assert await asyncio.to_thread(asyncio.run, sessions.load(key())) == [entry("a"), entry("b")]
    await asyncio.to_thread(asyncio.run, sessions.close())


async def test_a_store_of_one_event_loop_is_refused_on_another_with_the_remedy(
    tmp_path: Path,
) -> None:
    async with connect(f"sqlite:{tmp_path}/x.db") as store:
        sessions = ClaudeSessionStore(store)
        with pytest.raises(WrongLoop, match="portal=True"):
            await asyncio.to_thread(asyncio.run, sessions.load(key()))


async def test_it_says_what_it_is_on_and_no_password() -> None:
    sessions = ClaudeSessionStore("postgresql://ann:s3cr3t@host/db?password=s3cr3t")
    assert repr(sessions) == "ClaudeSessionStore(postgresql:…, tenant='main')"
    sessions = ClaudeSessionStore("memory:", tenant="t")
    assert repr(sessions) == "ClaudeSessionStore(memory:…, tenant='t')"
    async with sessions:
        assert repr(sessions).startswith("ClaudeSessionStore(memory ")
    assert "memory " in repr(ClaudeSessionStore(MemoryStore()))
