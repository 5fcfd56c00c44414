"""A simulated database server, and the connection of each process to it.

The server is a memory store whose clock shows the true time. A request and its reply each take a
time that the seed determines, and each can be lost. The server executes a request as soon as it
arrives. Other processes learn of changes from notices, which arrive late and out of order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from random import Random
from types import AsyncGeneratorType
from typing import Any, Protocol

from msgspec.structs import replace

from ... import environment
from ...environment import Environment
from ...errors import StoreUnavailable
from ...log.events import Event, Key, Scope
from ...stores.memory import MemoryStore
from ...stores.notify import Wakes, follow
from ...stores.port import Lease
from ...stores.rules import Extension, LeaseState
from ...stores.wrapped import WrappedStore
from ...values.stream_items import CaughtUp
from .faults import ActiveFaults
from .loop import EPOCH, ProcessLoop, Scheduler
from .watch import Watch

TRIP = (0.0001, 0.002)  # seconds that a request or a reply takes
NOTICE = (0.001, 0.04)  # seconds until other processes learn of a change
GIVE_UP = 0.5  # seconds after which a request without a reply fails


class StoreClient(Protocol):
    """The fields of a client process that the server and the network use."""

    name: str
    place: int
    loop: ProcessLoop
    wakes: Wakes

    @property
    def dead(self) -> bool: ...


class ServerEnvironment(Environment):
    """The environment of the server. Its clock shows the true time, unless it was set back."""

    def __init__(self, scheduler: Scheduler, random: Random) -> None:
        super().__init__(random)
        self._scheduler = scheduler
        self.skew = 0.0  # seconds by which its clock was set back

    def time_ns(self) -> int:
        return int((EPOCH + self._scheduler.now + self.skew) * 1e9)

    def token_bytes(self, count: int) -> bytes:
        return self.random.randbytes(count)


class Notices(Wakes):
    """Notifies processes of changes in the store: the process that made a change with the reply,
    the others later.
    """

    def __init__(self, scheduler: Scheduler, random: Random, faults: ActiveFaults) -> None:
        super().__init__()
        self._scheduler, self._random, self._faults = scheduler, random, faults
        self.clients: Sequence[StoreClient] = ()
        self.caller: StoreClient | None = None
        self.own: list[Callable[[], None]] = []  # notices that the caller gets with its reply

    def tell(self, key: Key, done: Extension | None) -> None:
        for client in self.clients:
            if client is self.caller:
                self.own.append(lambda to=client: to.wakes.tell(key, done))  # type: ignore[misc]
            else:
                self._send(client, key, done.row.head if done is not None else None)

    def wake(self, key: Key, head: int | None = None) -> None:
        for client in self.clients:
            self._send(client, key, head)

    def _send(self, client: StoreClient, key: Key, head: int | None) -> None:
        if not client.dead and key in client.wakes.followed():
            delay = self._random.uniform(*NOTICE) + self._faults.notice_delay()
            self._scheduler.after(delay, lambda: client.wakes.wake(key, head))


class SimulatedServer(MemoryStore):
    """The database that all processes share."""

    lease_with_append = True  # whether its clients may take and release leases with appends

    def __init__(self, scheduler: Scheduler, random: Random, notices: Notices) -> None:
        self._environment = ServerEnvironment(scheduler, random)
        super().__init__(clock=lambda: self._environment.time_ns() // 1_000_000)
        self._wakes = self.notices = notices
        self.watch = Watch()

    def set_back(self, seconds: float) -> None:
        """Shift the clock of the server by this many seconds."""
        self._environment.skew += seconds

    async def _hide(
        self, target: Scope | Key, fence: Lease | None, expected: int | None
    ) -> tuple[Counter[str], list[str]]:
        before = {*self._logs}
        removed = await super()._hide(target, fence, expected)
        self.watch.deleted(before - self._logs.keys())
        return removed

    def carry_out(
        self, client: StoreClient, method: str, args: Any, options: dict[str, Any]
    ) -> Any:
        """Execute one call in the server's environment. Return its result, or raise its
        exception."""
        self.notices.caller, self.notices.own = client, []
        log = None
        if method in ("append", "acquire", "release"):
            log = self._logs.get(args[0].key if method == "release" else args[0])
        before = log.lease if log is not None else LeaseState()
        with environment.use(self._environment):
            result = _result(getattr(self, method)(*args, **options))
        if method == "append" and result.fresh:
            key, events = args
            if options.get("acquire") is not None:
                self.watch.acquired(client.name, result.lease, before, self._clock())
                before = self._logs[key].lease
            fence = options.get("fence") or options.get("release") or result.lease
            self.watch.appended(client.name, key, events, fence, before)
        elif method == "put_draft":
            self.watch.streamed(*args)
        elif method == "acquire":
            self.watch.acquired(client.name, result, before, self._clock())
        elif method == "release":
            self.watch.released(client.name, args[0], before)
        return result


def _result(answer: Any) -> Any:
    """Return the result of a coroutine, or the items of an async generator. Neither may wait for
    I/O or for a timer."""
    if isinstance(answer, AsyncGeneratorType):
        items = []
        while True:
            try:
                items.append(_result(answer.__anext__()))
            except StopAsyncIteration:
                return items
    if not hasattr(answer, "send"):
        return answer
    try:
        while True:
            answer.send(None)
    except StopIteration as done:
        return done.value


class Network:
    """The network between the processes and the server, with delays, losses and outages."""

    def __init__(
        self, scheduler: Scheduler, random: Random, faults: ActiveFaults, server: SimulatedServer
    ) -> None:
        self._scheduler, self._random = scheduler, random
        self._faults, self._server = faults, server
        self.calls = 0
        self.crash: Callable[[Any], None] = lambda client: None  # called after a fatal write

    async def request(
        self, client: StoreClient, method: str, args: Any, options: dict[str, Any]
    ) -> Any:
        """Send one call of a process to the server, and return the result. The call continues if
        the caller is cancelled."""
        self.calls += 1
        reply = client.loop.create_future()
        loss = self._faults.loss(client.place, method)

        def fail() -> None:
            if not reply.done() and not client.dead:
                problem = "the connection to the simulated store was lost"
                reply.set_exception(StoreUnavailable(problem=problem))

        def arrive() -> None:
            if self._faults.unavailable(client.place):
                self._scheduler.after(self._trip(), fail)
                return
            value, error = None, None
            try:
                value = self._server.carry_out(client, method, args, options)
            except Exception as raised:
                error = raised
            own = self._server.notices.own
            if loss == "process":
                self.crash(client)
                return
            if loss == "reply":
                for tell in own:  # the caller is notified later, like the other processes
                    self._scheduler.after(self._random.uniform(*NOTICE), tell)
                self._scheduler.after(GIVE_UP, fail)
            else:
                self._scheduler.after(self._trip(), lambda: deliver(value, error, own))

        def deliver(value: Any, error: Exception | None, own: list[Callable[[], None]]) -> None:
            if client.dead:
                return
            for tell in own:
                tell()
            if error is not None and not reply.done():
                reply.set_exception(error)
            elif not reply.done():
                reply.set_result(value)

        if loss == "request":
            self._scheduler.after(GIVE_UP, fail)
        else:
            self._scheduler.after(self._trip(), arrive)
        return await reply

    def _trip(self) -> float:
        return self._random.uniform(*TRIP) + self._faults.slowness()


class Connection(WrappedStore):
    """The store object of one process: sends each call over the simulated network to the server."""

    def __init__(self, network: Network, server: SimulatedServer, client: StoreClient) -> None:
        super().__init__(server)
        self._network, self._client = network, client
        self._info = replace(server.info(), lease_with_append=server.lease_with_append)

    def _pass_on(self, method: str, *args: Any, **options: Any) -> Any:
        if method == "info":
            return self._info
        special: dict[str, Callable[..., Any]] = {
            "follow": self._follow,
            "read": self._read,
            "verify": self._verify,
            "restore": self._restore,
            "aclose": self._close,
        }
        if method in special:
            return special[method](*args, **options)
        return self._network.request(self._client, method, args, options)

    async def _read(self, *args: Any, **options: Any) -> AsyncGenerator[Any, None]:
        for item in await self._network.request(self._client, "read", args, options):
            yield item

    async def _verify(self, *args: Any, **options: Any) -> AsyncGenerator[Any, None]:
        for item in await self._network.request(self._client, "verify", args, options):
            yield item

    async def _restore(self, key: Key, events: AsyncIterable[Event], **options: Any) -> None:
        kept = [event async for event in events]

        async def again() -> AsyncGenerator[Event, None]:
            for event in kept:
                yield event

        await self._network.request(self._client, "restore", (key, again()), options)

    def _follow(
        self, key: Key, *, after: int = 0, log: str | None = None
    ) -> AsyncGenerator[Event | CaughtUp, None]:
        return follow(self, self._client.wakes, key, after, log)

    async def _close(self) -> None:
        self._client.wakes.wake_all()
