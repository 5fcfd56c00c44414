"""The class `Worker`, which drives the sessions of several tenants in one process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, Self

from ..cancellation import cancellable, ended
from ..errors import HarnessClosed, InvalidValue
from ..log.codec import LIMITS, check_name
from ..stores import connect
from ..stores.port import Store
from ..webhooks import Deliverer, networks
from .agents.agent import Agent
from .agents.config import RECOVERING
from .agents.sources import ToolSource, gather, release
from .agents.subagents import family
from .host import GRACE, IDLE, Harness, TenantHarness, sessions_of
from .live.inputs import check_seconds
from .workers.signals import ENDS, ending, on_shutdown
from .workers.slots import Slots

POLL = 1.0  # seconds between two searches for due sessions
RESERVED = "~"  # tenants with this prefix belong to the server


class Worker:
    """Drives the sessions of several tenants in one process: a `Harness` for each of them, with
    the same agent, store and settings.

        async with Worker(agent, tenants=["acme", "globex"], store=URL) as worker:
            await worker.run()

    `tenants` are names, or "all" for every tenant with due sessions in the store. Each `poll`
    seconds, the worker asks the store once which tenants have due sessions, however many tenants
    there are. `parallel_recovery` limits the sessions that it drives at a time, over all tenants;
    `tenant_limit` limits those of one tenant, `agent_limit` those of one agent. Tenants take turns,
    and within a tenant its users, so that nobody waits for all due sessions of another.
    Sessions that were idle for `idle` seconds are closed; nothing is lost. With `webhooks`, the
    worker also delivers to the webhook endpoints of its tenants; only those in `webhook_networks`
    may have private addresses. All other settings are those of `Harness`. Any number of workers may
    use one store: a session has one driver at a time.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        tenants: Sequence[str] | Literal["all"],
        store: str | Store = "memory:",
        poll: float = POLL,
        idle: float = IDLE,
        webhooks: bool = False,
        webhook_networks: Sequence[str] = (),
        tenant_limit: int | None = None,
        agent_limit: int | None = None,
        **settings: Any,
    ) -> None:
        self.tenants = _checked(tenants)
        for name, value in (("poll", poll), ("idle", idle)):
            check_seconds(name, value)
            if value <= 0:
                problem, remedy = f"is {value!r}", "pass a number above 0"
                raise InvalidValue(field=name, problem=problem, remedy=remedy)
        if "tenant" in settings:
            remedy = "pass tenants=[...], or use Harness for a single tenant"
            raise InvalidValue(
                field="tenant", problem="is not a setting of a worker", remedy=remedy
            )
        for name, limit in (("tenant_limit", tenant_limit), ("agent_limit", agent_limit)):
            if limit is not None and (type(limit) is not int or limit < 1):
                problem, remedy = f"is {limit!r}", "pass a whole number from 1 on, or None"
                raise InvalidValue(field=name, problem=problem, remedy=remedy)
        self._first = Harness(agent, store=store, **settings)  # reports everything that is invalid
        recovering = settings.get("parallel_recovery", RECOVERING)
        self._slots = Slots(recovering, tenant_limit, agent_limit)
        self.agent, self._source, self._settings = agent, store, settings
        self._poll, self._idle = float(poll), float(idle)
        networks(webhook_networks)  # reports what is invalid
        self._webhooks, self._networks = webhooks, webhook_networks
        self._deliverer: Deliverer | None = None
        self._store: Store | None = None
        self._sources: list[ToolSource] = []
        self._harnesses: dict[str, TenantHarness] = {}
        self._evicted = 0.0  # when idle sessions were closed
        self._looking: asyncio.Task[None] | None = None
        self._filling: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._closed = False

    def __repr__(self) -> str:
        status = "closed" if self._closed else "not started" if self._store is None else "started"
        return f"Worker({self.agent.key!r}, tenants={self.tenants!r}, {status})"

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def start(self) -> Self:
        """Connect to the store, and begin to drive due sessions."""
        async with self._starting:
            if self._closed:
                raise HarnessClosed(what="the worker")
            if self._store is None:
                url = self._source
                store = await connect(url) if isinstance(url, str) else url
                try:
                    self.agent, self._sources = await gather(self.agent)
                except BaseException:
                    if isinstance(url, str):
                        await store.aclose()
                    raise
                self._store = store
                if self._webhooks:
                    self._deliverer = Deliverer(
                        store,
                        tenants=self.tenants,
                        networks=self._networks,
                        redactor=self._first._logs.redactor,
                    ).start()
                if self._settings.get("recovery") != "leave":
                    self._looking = asyncio.create_task(self._look_always(), name="look for work")
                    self._filling = asyncio.create_task(self._fill(), name="fill free slots")
        return self

    async def run(self) -> None:
        """Work until the process is asked to terminate (SIGTERM or SIGINT). Call it in the main
        thread; then leave `async with`, which hands unfinished runs to other workers."""
        await self.start()
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        before = {number: signal.getsignal(number) for number in ENDS}
        for number in ENDS:
            loop.add_signal_handler(number, stop.set)
        try:
            await stop.wait()
        finally:
            for number, known in before.items():
                loop.remove_signal_handler(number)
                if known is not None:
                    signal.signal(number, known)

    async def harness(self, tenant: str) -> Harness:
        """Return the harness of a tenant, started. The worker closes it."""
        if not self._serves(tenant):
            raise InvalidValue(
                field="tenant",
                problem=f"is {tenant!r}, which this worker does not serve",
                remedy=f"use one of {', '.join(self.tenants)}"
                if self.tenants != "all"
                else f"use a name that does not begin with {RESERVED!r}",
            )
        await self.start()
        assert self._store is not None
        if (known := self._harnesses.get(tenant)) is None:
            known = TenantHarness(
                self.agent, **{**self._settings, "store": self._store, "tenant": tenant}
            )
            known.share(self._slots)
            self._harnesses[tenant] = known
        return await known.start()

    async def look(self) -> None:
        """Start drivers for due sessions of all tenants now. This also happens each `poll`
        seconds. If a tenant fails, the others are served, and then the first error is raised."""
        await self.start()
        failures: list[Exception] = []
        due = set(await self._due())
        for tenant in [each for each in self._slots.join(sorted(due)) if each in due]:
            try:
                with cancellable():
                    await sessions_of(await self.harness(tenant)).drivers.look()
            except Exception as error:
                self._slots.settle(tenant, more=False)
                failures.append(error)
        if failures:
            raise failures[0]

    async def _due(self) -> list[str]:
        """Return the tenants that this worker serves and that have due sessions."""
        assert self._store is not None
        due, after, agents = list[str](), "", [*family(self.agent)]
        while True:
            found = await self._store.due_tenants(agents=agents, after=after, limit=LIMITS.page)
            due += filter(self._serves, found)
            if len(found) < LIMITS.page:
                return due
            after = found[-1]

    def end_subscriptions(self) -> None:
        """End the subscriptions of all tenants; see `Harness.end_subscriptions`."""
        for harness in [*self._harnesses.values()]:
            harness.end_subscriptions()

    async def aclose(self, grace: float = GRACE) -> None:
        """Close all harnesses at once: accept no more work, let runs reach a safe point within
        `grace` seconds, and leave unfinished runs to other workers. Calling it twice is safe."""
        async with self._starting:
            if self._closed:
                return
            self._closed = True
        await ended(*(task for task in (self._looking, self._filling) if task is not None))
        if self._deliverer is not None:
            await self._deliverer.aclose()
        harnesses = [self._first, *self._harnesses.values()]
        closing = [harness.aclose(grace) for harness in harnesses]
        failures = await asyncio.gather(*closing, return_exceptions=True)
        await release(self._sources)
        if self._store is not None and isinstance(self._source, str):
            await self._store.aclose()
        for error in failures:
            if isinstance(error, BaseException):
                raise error

    def _serves(self, tenant: str) -> bool:
        if self.tenants == "all":
            return not tenant.startswith(RESERVED)
        return tenant in self.tenants

    async def _look_always(self) -> None:
        log = self._first._logs.log
        with on_shutdown(self.end_subscriptions, ending()):
            while True:
                for step in (self.look, self._evict):
                    try:
                        with cancellable():
                            await step()
                    except Exception as error:  # log any error, and search again
                        log.warning("look_failed", category="storage", error=error)
                await asyncio.sleep(self._poll)

    async def _fill(self) -> None:
        """Give slots that become free to the tenants that wait for them."""
        while True:
            tenant = await self._slots.next()
            try:
                with cancellable():
                    await sessions_of(await self.harness(tenant)).drivers.sweep()
            except Exception as error:  # the next search finds what is still due
                self._slots.settle(tenant, more=False)
                self._first._logs.log.warning("look_failed", category="storage", error=error)

    async def _evict(self) -> None:
        """Close idle sessions, from time to time."""
        now = asyncio.get_running_loop().time()
        if now - self._evicted > self._idle / 2:
            self._evicted = now
            for harness in [*self._harnesses.values()]:
                await harness.evict(self._idle)


def _checked(tenants: Any) -> Sequence[str] | Literal["all"]:
    if tenants == "all":
        return "all"
    if isinstance(tenants, str) or not isinstance(tenants, Sequence) or not tenants:
        raise InvalidValue(
            field="tenants", problem=f"is {tenants!r}", remedy='pass a list of names, or "all"'
        )
    for name in tenants:
        check_name("tenants", name)
    return tuple(dict.fromkeys(tenants))
