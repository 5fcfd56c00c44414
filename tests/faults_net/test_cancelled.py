"""Background work ends when it is cancelled, although what it waits for raises another error in
place of the cancellation, as a driver's cleanup does when the connection has just been lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from holdfast import (
    Agent,
    Harness,
    HoldfastError,
    LogConfig,
    Sessions,
    StoreUnavailable,
    Sweeper,
    hook,
    key,
)
from holdfast.bundle import import_lock
from holdfast.cancellation import cancellable, ended
from holdfast.cli.output import Output
from holdfast.cli.resume import ResumeWorker
from holdfast.client import Client, Patience
from holdfast.client.reconnecting_feed import Feed
from holdfast.client.transport import Transport
from holdfast.events import Scope
from holdfast.models.scripted import Say, ScriptedModel
from holdfast.server.auth import idempotency as once_module
from holdfast.server.auth.idempotency import IdempotencyStore, KeyedRequest, StoredResponse
from holdfast.stores.memory import MemoryStore
from holdfast.stores.retry import patiently
from holdfast.testing.faults import Fault, FaultyStore
from holdfast.testing.samples import read_all
from tests.server.scene import serving, settings
from tests.server.test_once import ANN

PATIENCE = 30.0  # seconds until something counts as hanging


@dataclass(eq=False, kw_only=True)
class Hides(Fault):
    """Waits there; when it is cancelled, says that the store is away."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)

    async def strike(self) -> None:
        self.reached.set()
        await hiding()


async def hiding() -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise StoreUnavailable(problem="the connection was lost") from None


def agent() -> Agent:
    return Agent("clerk", instructions="Help.")


def harness(store: FaultyStore, served: Agent | None = None, **settings: Any) -> Harness:
    model = ScriptedModel([Say("Good day.")] * 9)
    logs = LogConfig(level="silent")
    return Harness(
        served or agent(), store=store, default_model=model, ttl=0.2, logging=logs, **settings
    )


async def ends(work: Coroutine[Any, Any, None]) -> None:
    """Wait for work that a hidden cancellation may keep from ending."""
    task = asyncio.create_task(work)
    done, _ = await asyncio.wait({task}, timeout=PATIENCE)
    assert done, "it did not end"
    await task


def ends_in_a_thread(main: Coroutine[Any, Any, None]) -> None:
    """Run a program whose event loop cancels each task once, and then waits for all of them."""
    thread = threading.Thread(target=asyncio.run, args=(main,), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "the program did not end"


# The mechanism


async def test_a_task_that_hides_its_cancellation_is_ended() -> None:
    async def stubborn() -> None:
        while True:
            try:
                await hiding()
            except HoldfastError:
                await asyncio.sleep(3600)

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await ends(ended(task))
    assert task.cancelled()


async def test_a_loop_that_goes_on_after_errors_ends_with_one_cancellation() -> None:
    async def swallowing() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    async def loop(work: Any) -> None:
        while True:
            try:
                with cancellable():
                    await work()
            except HoldfastError:
                pass
            await asyncio.sleep(3600)

    for work in (hiding, swallowing):
        task = asyncio.create_task(loop(work))
        await asyncio.sleep(0)
        task.cancel()
        assert await asyncio.wait({task}, timeout=PATIENCE) == ({task}, set())
        assert task.cancelled()


async def test_other_errors_and_earlier_cancellations_are_no_cancellation() -> None:
    async def cleaning_up() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            with cancellable():
                await asyncio.sleep(0)
            with pytest.raises(StoreUnavailable), cancellable():
                raise StoreUnavailable(problem="away") from None
            raise

    task = asyncio.create_task(cleaning_up())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


async def test_who_is_cancelled_does_not_try_again() -> None:
    tries = 0

    async def attempt() -> None:
        nonlocal tries
        tries += 1
        await hiding()

    task = asyncio.create_task(patiently(attempt, lambda error: True, patience=3600))
    await asyncio.sleep(0)
    task.cancel()
    assert await asyncio.wait({task}, timeout=PATIENCE) == ({task}, set())
    assert (task.cancelled(), tries) == (True, 1)


# Those who use it


async def test_a_sweeper_ends() -> None:
    fault = Hides(method="find")
    sweeper = Sweeper(Sessions(FaultyStore(MemoryStore(), [fault])))
    sweeper.start()
    await fault.reached.wait()
    await ends(sweeper.aclose())


@pytest.mark.parametrize("method", ["runnable", "follow"])
def test_a_program_ends_that_does_not_close_its_harness(method: str) -> None:
    async def main() -> None:
        fault = Hides(method=method, call=2 if method == "runnable" else 1)
        one = await harness(FaultyStore(MemoryStore(), [fault])).start()
        await one.get_or_create("s")
        await fault.reached.wait()

    ends_in_a_thread(main())


def test_a_driver_goes_no_further_when_a_hook_hides_its_cancellation() -> None:
    inner = MemoryStore()

    async def main() -> None:
        reached = asyncio.Event()

        @hook("message.received")
        async def hides(context: Any, event: Any) -> None:
            reached.set()
            await hiding()

        served = Agent("clerk", instructions="Help.", hooks=[hides])
        one = await harness(FaultyStore(inner), served).start()
        await (await one.get_or_create("s")).post("Hello")
        await reached.wait()

    ends_in_a_thread(main())
    kinds = [event.kind for event in asyncio.run(read_all(inner, key("s")))]
    assert kinds == ["session.created", "message.received"]


async def test_a_harness_closes_while_a_renewal_hides_its_cancellation() -> None:
    fault, go = Hides(method="renew"), asyncio.Event()
    store = FaultyStore(MemoryStore(), [fault])

    @hook("run.started")
    async def waits(context: Any, event: Any) -> None:
        await go.wait()

    one = await harness(store, Agent("clerk", instructions="Help.", hooks=[waits])).start()
    await (await one.get_or_create("s")).post("Hello")
    await fault.reached.wait()
    go.set()
    await ends(one.aclose())


async def test_a_server_closes_while_it_sweeps() -> None:
    fault = Hides(method="find")
    store = FaultyStore(MemoryStore(), [fault])

    async def main() -> None:
        async with serving(settings({"main": lambda options: store}, tenants=["acme"])):
            await fault.reached.wait()

    await ends(main())


async def test_a_request_with_a_key_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(once_module, "TTL", 0.03)
    fault = Hides(method="renew")

    async def work(record: str, again: bool) -> StoredResponse:
        await fault.reached.wait()
        return StoredResponse(hash="h", status=200)

    async def main() -> None:
        store = FaultyStore(MemoryStore(), [fault])
        assert (
            await IdempotencyStore(store).do(ANN, KeyedRequest(key="k", hash="h"), work)
        ).status == 200

    await ends(main())


async def test_an_import_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_lock, "TTL", 0.03)
    fault = Hides(method="renew")

    async def main() -> None:
        async with import_lock.locked_import(
            FaultyStore(MemoryStore(), [fault]), Scope("main", "s")
        ):
            await fault.reached.wait()

    await ends(main())


async def test_a_worker_of_the_command_line_ends() -> None:
    fault = Hides(method="runnable", call=2)
    store = FaultyStore(MemoryStore(), [fault])

    async def main() -> None:
        one = harness(store, recovery="leave")
        await one.start()
        served = ResumeWorker(one, store, Output(json=True), [])
        running = asyncio.create_task(served.run(forever=True))
        await fault.reached.wait()
        served._stopped.set_result(0)
        assert await running == 0
        await one.aclose()

    await ends(main())


class Unreachable(httpx.AsyncBaseTransport):
    """A way to a server on which a cancelled request looks like a connection that was lost."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.requests = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.reached.set()
        self.requests += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise httpx.ReadError("the connection was lost") from None
        raise AssertionError("unreachable")


async def request(http: httpx.AsyncClient) -> None:
    await Client("http://server.test", "key", http=http).get_or_create("s")


async def stream(http: httpx.AsyncClient) -> None:
    transport = Transport(["http://server.test"], "key", patience=Patience(), http=http)
    async for _ in Feed(transport, "/events", ("s", "main"), {}, None).parts():
        pass


@pytest.mark.parametrize("ask", [request, stream])
async def test_what_a_client_was_told_to_stop_is_not_sent_again(ask: Any) -> None:
    transport = Unreachable()
    async with httpx.AsyncClient(transport=transport) as http:
        asking = asyncio.create_task(ask(http))
        await transport.reached.wait()
        asking.cancel()
        assert await asyncio.wait({asking}, timeout=PATIENCE) == ({asking}, set())
    assert (asking.cancelled(), transport.requests) == (True, 1)
