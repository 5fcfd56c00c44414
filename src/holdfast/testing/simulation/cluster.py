"""A simulated cluster: processes with their own clocks, and the database server that they share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from random import Random
from typing import Any, TypeVar

from ... import environment
from ...environment import Environment
from ...stores.memory import MemoryStore
from ...stores.notify import Wakes
from .effects import EffectLedger
from .faults import ActiveFaults
from .loop import EPOCH, ProcessLoop, Scheduler, new_loop
from .store import Connection, Network, Notices, SimulatedServer

T = TypeVar("T")


class Disconnected(Exception):
    """Raised if the process that received a request is not running, or crashed before it
    replied.
    """


class ProcessEnvironment(Environment):
    """The environment of a simulated process. Its clock is off by the `skew` of the process (in
    seconds) and runs at the `rate` of the process."""

    def __init__(self, process: SimulatedProcess, random: Random) -> None:
        super().__init__(random)
        self.process = process

    def time_ns(self) -> int:
        process = self.process
        now = process.cluster.scheduler.now
        return int((EPOCH + now * process.rate + process.skew) * 1e9)

    def token_bytes(self, count: int) -> bytes:
        return self.random.randbytes(count)

    def process_name(self) -> str:
        return self.process.name

    def start_thread(self, work: Callable[[], None], name: str) -> None:
        self.process.loop.call_soon(work)


class SimulatedProcess:
    """One process of the cluster, from its start to its crash or end."""

    def __init__(self, cluster: Cluster, place: int, life: int, *, rate: float = 1.0) -> None:
        self.cluster, self.place = cluster, place
        self.name = f"p{place}.{life}"
        self.rate, self.skew = rate, 0.0
        self.loop = new_loop(cluster.scheduler, self.name)
        self.environment = ProcessEnvironment(self, Random(f"{cluster.seed} {self.name}"))  # noqa: S311
        self.wakes = Wakes()
        self.store = Connection(cluster.network, cluster.server, self)
        self.server: Any = None  # the harness that runs in this process
        self._asked: dict[asyncio.Future[Any], None] = {}

    @property
    def dead(self) -> bool:
        return self.loop.dead

    def spawn(self, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Start a task in this process."""
        context = copy_context()
        context.run(environment._current.set, self.environment)
        return self.loop.create_task(work, name=name, context=context)

    def crash(self) -> None:
        """Stop the process immediately: none of its code runs any more, and pending requests
        fail."""
        self.loop.kill()
        asked, self._asked = self._asked, {}
        for future in asked:
            delay = self.cluster.random.uniform(0.001, 0.2)
            self.cluster.scheduler.after(delay, lambda lost=future: _fail(lost))  # type: ignore[misc]

    async def ask(self, caller: ProcessLoop, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work` in this process on behalf of another process or a user, and return the result.
        Raises `Disconnected` if the process crashes.
        """
        reply: asyncio.Future[T] = caller.create_future()
        if self.dead:
            raise Disconnected(self.name)
        self._asked[reply] = None

        async def serve() -> None:
            try:
                value = await work()
            except Exception as error:
                self._reply(reply, error)
            else:
                self._reply(reply, None, value)

        self.cluster.scheduler.after(
            self.cluster.random.uniform(0.0005, 0.003), lambda: self._begin(serve)
        )
        return await reply

    def _begin(self, serve: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if not self.dead:
            self.spawn(serve())

    def _reply(self, reply: asyncio.Future[T], error: Exception | None, value: Any = None) -> None:
        def deliver() -> None:
            self._asked.pop(reply, None)
            if reply.done():
                return
            if error is None:
                reply.set_result(value)
            else:
                reply.set_exception(error)

        self.cluster.scheduler.after(self.cluster.random.uniform(0.0005, 0.003), deliver)


def _fail(reply: asyncio.Future[Any]) -> None:
    if not reply.done():
        reply.set_exception(Disconnected("the process crashed"))


class Cluster:
    """The simulated cluster: the virtual time, the database server, and one process for each place.
    A process that crashed is replaced by a new process at the same place.
    """

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self.random = Random(f"{seed} network")  # noqa: S311 - a schedule, not a secret
        self.scheduler = Scheduler()
        self.faults = ActiveFaults(self.scheduler, self.random)
        self.effects = EffectLedger(self.scheduler)
        self.notices = Notices(self.scheduler, self.random, self.faults)
        self.server = SimulatedServer(self.scheduler, Random(f"{seed} server"), self.notices)  # noqa: S311
        self.network = Network(self.scheduler, self.random, self.faults, self.server)
        self.archive = MemoryStore()  # a second store, as the target of copies
        self.network.crash = self._lost
        self.places: list[SimulatedProcess] = []
        self.gone: list[SimulatedProcess] = []
        self.crashed: Callable[..., None] = self.end  # called when a process crashes itself
        self.died: set[str] = set()  # tool calls that have already crashed a process
        self.prompts = 0  # number of model calls

    def _lost(self, process: SimulatedProcess) -> None:
        self.crashed(process, "lost_process")

    def start(self, place: int, *, rate: float = 1.0, skew: float = 0.0) -> SimulatedProcess:
        """Start a process at a place. It replaces the previous process of that place."""
        life = sum(process.place == place for process in self.gone)
        process = SimulatedProcess(self, place, life, rate=rate)
        process.skew = skew
        if place == len(self.places):
            self.places.append(process)
        else:
            self.places[place] = process
        self.notices.clients = self.living()
        return process

    def end(self, process: SimulatedProcess) -> None:
        """Stop a process that crashed or was shut down, and remove it from the running
        processes.
        """
        process.crash()
        self.gone.append(process)
        self.notices.clients = self.living()

    def living(self) -> list[SimulatedProcess]:
        return [process for process in self.places if not process.dead]

    def bury(self) -> None:
        """Discard the unfinished tasks of all processes."""
        for process in (*self.gone, *self.places):
            process.loop.bury()
