"""The stores, engines, keys and limits behind the routes, opened when first needed and closed in
order. This module does not depend on HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Iterator
from importlib.metadata import version

from ..cancellation import cancellable, ended
from ..errors import HarnessClosed, HoldfastError, UnknownEngine
from ..harness import Agent
from ..log.catalog import Row
from ..values.options import RunLimits
from .auth.audit import Audit
from .auth.authentication import Authenticator
from .auth.idempotency import IdempotencyStore
from .auth.keys import ApiKeys
from .auth.limits import ConcurrencyLimiter, RateLimiter
from .engines import Engine, HoldfastEngine, Serving, serving
from .past_displays import PastDisplays
from .placement.locator import SessionLocator
from .placement.removals import Removals
from .placement.write_check import WriteCheck
from .run_choices import Choices
from .settings import Settings
from .streams.backpressure import OpenStreams
from .streams.list_changes import ListChanges
from .streams.outbox import Outbox
from .uploads.agents import UploadedAgents
from .webhook_delivery import WebhookDelivery

LOGGER = logging.getLogger("holdfast.server")
LOOK = 5.0  # seconds between two searches for runs of uploaded agents
GUESSES = 8  # concurrent lookups of unknown keys from one address
SWEEP = 3_600.0  # seconds between two removals of old responses and work folders


class Service:
    """The objects that all routes share. None of them has state that must survive a restart."""

    def __init__(self, settings: Settings) -> None:
        settings.check()
        self.settings, self.limits = settings, settings.limits
        self.engines: dict[str, Engine] = dict(settings.engine())
        for engine in self.engines.values():
            if settings.models is not None and isinstance(engine, HoldfastEngine):
                engine.offer(settings.models)
        self._registry = settings.registry()
        unsure = settings.limits.unsure_seconds
        self.places = SessionLocator(self._registry, settings.default, unsure=unsure)
        self.writing = WriteCheck(self.places.store)
        self.outbox = Outbox(self.limits)
        self.streams = OpenStreams(naming=self.places.naming, outbox=self.outbox)
        self.removals = Removals()
        self.past = PastDisplays()
        self.audit = Audit(settings.audit, settings.redactor)
        limits = self.limits
        self.rate = RateLimiter(limits.rate, limits.burst, "requests per second")
        self.gates = {
            "request": ConcurrencyLimiter(limits.concurrent, "concurrent requests"),
            "stream": ConcurrencyLimiter(limits.streams, "concurrent streams"),
            "all": ConcurrencyLimiter(limits.requests, "concurrent requests of all callers"),
            "guess": ConcurrencyLimiter(
                min(GUESSES, limits.concurrent), "concurrent lookups of unknown keys"
            ),
        }
        self.authentication = Authenticator(
            None if isinstance(settings.auth, str) else settings.auth,
            limits,
            self.places.store,
            self.gates["guess"],
            self._serve_new,
        )
        self._once: IdempotencyStore | None = None
        self._opening = asyncio.Lock()
        self._serving: set[str] = set()
        self._elsewhere: set[tuple[str, str]] = set()  # tenants and stores that are not served yet
        self._sweeping: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()
        allowed, deliver = [*settings.webhook_networks], settings.webhooks
        self.webhook_delivery = WebhookDelivery(allowed, settings.redactor, deliver=deliver)
        self.uploads = UploadedAgents(
            self.engines, settings.by_name(), settings.tools, settings.harden
        )
        self.loaders = self.uploads.names
        self._taking: asyncio.Task[None] | None = None
        self.version = version("holdfast")
        self.leaving = asyncio.Event()
        self.list_changes = ListChanges(self.places, self.leaving)
        self.waits: set[asyncio.Timeout] = set()
        self._ended = False

    # Opening and closing

    async def start(self) -> None:
        """Open the default store, and resume unfinished runs of all tenants."""
        store = await self.places.store()
        tenants = {*self.settings.tenants}
        if isinstance(self.settings.auth, str):  # API keys
            tenants |= {*await ApiKeys(store).tenants()}
        for tenant in sorted(tenants):
            await self.serve(tenant)
        self.webhook_delivery.start(store)
        if self._sweeping is None:
            self._sweeping = asyncio.create_task(self._sweep(), name="sweep")
        if self._taking is None and (self.loaders or len(self.places.order) > 1):
            self._taking = asyncio.create_task(self._take_up(), name="adopt")

    async def serve(self, tenant: str) -> None:
        """Resume unfinished runs of a tenant, now and periodically."""
        if tenant in self._serving or self.closed:
            return
        self._serving.add(tenant)
        try:
            await self._serve_in(tenant, self.places.default)
        except BaseException:
            self._serving.discard(tenant)
            raise
        self._elsewhere |= {(tenant, kind) for kind in self.places.order[1:]}

    async def _serve_in(self, tenant: str, kind: str) -> None:
        place = await self.places.place(tenant, kind)
        for engine in self.engines.values():
            await engine.serve(place)

    async def aclose(self, grace: float | None = None) -> None:
        """End the streams, hand over the runs, and close. Calling it twice is allowed."""
        if self._ended:
            return
        self._ended = True
        self.leave()
        for task in (self._sweeping, self._taking):
            if task is not None:
                await ended(task)
        await self.webhook_delivery.aclose()
        await self.writing.aclose()
        await asyncio.gather(*self._background, return_exceptions=True)
        grace = self.settings.grace if grace is None else grace
        await asyncio.gather(*(engine.aclose(grace) for engine in self.engines.values()))
        await self.audit.aclose()
        await self._registry.aclose()
        await self.places.lookups.aclose()
        await self.places.lists.aclose()

    @property
    def closed(self) -> bool:
        """Whether the server is shutting down."""
        return self.leaving.is_set()

    def leave(self) -> None:
        """Start to shut down: reject new requests, and end the requests that are waiting."""
        self.leaving.set()
        self.streams.close()
        self._registry.give_up()
        for patience in self.waits:
            if not patience.expired():
                patience.reschedule(0.0)

    @contextlib.contextmanager
    def waiting(self, patience: asyncio.Timeout) -> Iterator[None]:
        """Context manager that ends a wait, by its timeout, when the server shuts down."""
        self.waits.add(patience)
        if self.closed:
            patience.reschedule(0.0)
        try:
            yield
        finally:
            self.waits.discard(patience)

    def check_open(self) -> None:
        """Raise `HarnessClosed` while the server is shutting down."""
        if self.closed:
            raise HarnessClosed(what="the server")

    def _serve_new(self, tenant: str) -> None:
        """Start resuming unfinished runs of a new tenant, in the background."""
        if tenant not in self._serving and len(self._serving) < self.limits.tenants:
            task = asyncio.create_task(self._serve_later(tenant))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def _serve_later(self, tenant: str) -> None:
        try:
            await self.serve(tenant)
        except Exception as error:  # the next request tries again
            why = getattr(error, "code", type(error).__name__)
            LOGGER.warning("cannot search for unfinished runs of a tenant: %s", why)

    async def once(self) -> IdempotencyStore:
        """Return the store of responses to requests with an idempotency key."""
        if self._once is None:
            store = await self.places.store()
            self._once = IdempotencyStore(store, waiting=self.waiting, check=self.check_open)
        return self._once

    # Engines

    def engine(self, name: str | None) -> tuple[str, Engine]:
        """Return an engine by its name; None means the first engine. Raises `UnknownEngine`."""
        if name is None:
            name = next(iter(self.engines))
        if name not in self.engines:
            raise UnknownEngine(engine=name, available=sorted(self.engines))
        return name, self.engines[name]

    def choices(self, engine: Engine | None, agent: str | None) -> Choices | None:
        """Return the models and limits that clients may choose for the runs of an agent; `agent` is
        None for a new upload. If no engine serves the agent, only the models of the settings are
        offered. Returns None if the engine does not restrict choices."""
        if engine is None:
            unserved = Agent(agent or "agent", instructions="Help.")
            return Choices(unserved, self.settings.models or (), RunLimits())
        choices = getattr(engine, "choices", None)
        return None if choices is None else choices(agent)

    def serves(self, row: Row) -> Serving:
        """Return the engine that runs a session. Raises `UnknownAgent`."""
        return serving(self.engines, row.agent, row.tenant)

    async def _take_up(self) -> None:
        while True:
            for tenant, kind in sorted(self._elsewhere):
                try:
                    with cancellable():
                        await self._serve_in(tenant, kind)
                    self._elsewhere.discard((tenant, kind))
                except HoldfastError as error:  # retried
                    LOGGER.warning(
                        "cannot search for unfinished runs in the %s store: %s", kind, error.code
                    )
            for tenant, kind in itertools.product(sorted(self._serving), self.places.order):
                try:
                    with cancellable():
                        if self.loaders and (tenant, kind) not in self._elsewhere:
                            await self.uploads.take_up(await self.places.place(tenant, kind))
                except HoldfastError as error:
                    LOGGER.warning("cannot resume runs of uploaded agents: %s", error.code)
            await asyncio.sleep(LOOK)

    async def _sweep(self) -> None:
        while True:
            asked = set() if self._once is None else self._once.tenants
            for tenant in sorted(self._serving | asked):
                try:
                    with cancellable():
                        await (await self.once()).sweep(tenant)
                        await self.uploads.tidy(await self.places.place(tenant))
                except HoldfastError as error:
                    LOGGER.warning(
                        "cannot delete expired responses of idempotency keys: %s", error.code
                    )
            await self._tidy_folders()
            await asyncio.sleep(SWEEP)

    async def _tidy_folders(self) -> None:
        for name, engine in self.engines.items():
            try:
                if (tidy := getattr(engine, "tidy", None)) is not None:
                    await tidy()
            except HoldfastError as error:
                LOGGER.warning(
                    "cannot delete the work folders of deleted sessions of engine %s: %s",
                    name,
                    error.code,
                )
