"""The server itself: its stores, engines, keys and limits, opened when first needed and closed
in order. It knows no HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from ..cancellation import cancellable, ended
from ..errors import HarnessClosed, HoldfastError, RateLimited, UnknownAgent, UnknownEngine
from ..harness.agents.agent import Agent
from ..log.catalog import Row
from ..values.options import RunLimits
from .auth.audit import Audit
from .auth.callers import RESERVED, AuthHandler, Caller, Credentials, Known
from .auth.idempotency import Once
from .auth.keys import KeyAuth, Keys, split
from .auth.limits import BUCKETS, Gate, Rate
from .engines import Engine, HoldfastEngine
from .placement.locator import Places
from .placement.removals import Removals
from .placement.write_check import Writing
from .run_choices import Choices
from .settings import Settings
from .streams.backpressure import Streams
from .streams.outbox import Outbox
from .uploads.agent_adoption import Adopting, serving
from .uploads.agents import Loading

LOGGER = logging.getLogger("holdfast.server")
LOOK = 5.0  # seconds between two looks for runs of agents that others loaded
GUESSES = 8  # unknown keys of one address that are looked up at a time
SWEEP = 3_600.0  # seconds between two looks for old answers and work folders of deleted sessions


class Service:
    """All that the routes share. Nothing in it outlives the process, and nothing has to."""

    def __init__(self, settings: Settings) -> None:
        settings.check()
        self.settings, self.limits = settings, settings.limits
        self.engines: dict[str, Engine] = dict(settings.engine())
        for engine in self.engines.values():
            if settings.models is not None and isinstance(engine, HoldfastEngine):
                engine.offer(settings.models)
        self._registry = settings.registry()
        unsure = settings.limits.unsure_seconds
        self.places = Places(self._registry, settings.default, unsure=unsure)
        self.writing = Writing(self.places.store)
        self.outbox = Outbox(self.limits)
        self.streams = Streams(naming=self.places.naming, outbox=self.outbox)
        self.removals = Removals()
        self.audit = Audit(settings.audit, settings.redactor)
        limits = self.limits
        self.rate = Rate(limits.rate, limits.burst, "requests a second")
        self.refusals = Rate(limits.refusals, limits.refusals * 10, "refused logins a second")
        self.guesses = Rate(limits.refusals * 10, limits.refusals * 20, "unknown keys a second")
        self.gates = {
            "request": Gate(limits.concurrent, "requests at a time"),
            "stream": Gate(limits.streams, "streams at a time"),
            "all": Gate(limits.requests, "requests at a time, of all"),
            "guess": Gate(min(GUESSES, limits.concurrent), "unknown keys at a time"),
        }
        self.known = Known(BUCKETS)
        self._auth = settings.auth if not isinstance(settings.auth, str) else None
        self._once: Once | None = None
        self._opening = asyncio.Lock()
        self._serving: set[str] = set()
        self._elsewhere: set[tuple[str, str]] = set()  # tenants and kinds where that is to begin
        self._sweeping: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()
        self.loading = Loading(settings.by_name(), settings.tools, settings.harden)
        self.loaders = self.loading.names
        self.adopting = Adopting(self.engines, self.loading)
        self._taking: asyncio.Task[None] | None = None
        self.version = version("holdfast")
        self.leaving = asyncio.Event()
        self.waits: set[asyncio.Timeout] = set()
        self._ended = False

    # Opening and closing

    async def start(self) -> None:
        """Open what is needed, and take up what was left undone, for all tenants there are."""
        store = await self.places.store()
        tenants = {*self.settings.tenants}
        if self._auth is None:
            tenants |= {*await Keys(store).tenants()}
        for tenant in sorted(tenants):
            await self.serve(tenant)
        if self._sweeping is None:
            self._sweeping = asyncio.create_task(self._sweep(), name="sweep")
        if self._taking is None and (self.loaders or len(self.places.order) > 1):
            self._taking = asyncio.create_task(self._take_up(), name="adopt")

    async def serve(self, tenant: str) -> None:
        """Look for work of a tenant from now on."""
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
        """End the streams, hand over the runs, and close. Twice is fine."""
        if self._ended:
            return
        self._ended = True
        self.leave()
        for task in (self._sweeping, self._taking):
            if task is not None:
                await ended(task)
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
        """Whether the server goes away."""
        return self.leaving.is_set()

    def leave(self) -> None:
        """Take no more requests, and let those end that wait for something."""
        self.leaving.set()
        self.streams.close()
        self._registry.give_up()
        for patience in self.waits:
            if not patience.expired():
                patience.reschedule(0.0)

    @contextlib.contextmanager
    def waiting(self, patience: asyncio.Timeout) -> Iterator[None]:
        """Wait for something, but not when the server goes away."""
        self.waits.add(patience)
        if self.closed:
            patience.reschedule(0.0)
        try:
            yield
        finally:
            self.waits.discard(patience)

    def check_open(self) -> None:
        """Refuse to begin anything while the server goes away."""
        if self.closed:
            raise HarnessClosed(what="the server")

    # Who asks

    @contextlib.contextmanager
    def doubting(self, shown: Credentials, address: str) -> Iterator[None]:
        """Look at what is shown, or not where the address has guessed too often (`RateLimited`).
        That keeps nobody out who was known before, and no key: those are too long to be guessed,
        and so they are looked up in any case, only so many at a time."""
        with contextlib.ExitStack() as inside:
            try:
                if shown not in self.known:
                    self.refusals.check(address)
            except RateLimited:
                keys = self._auth is None or isinstance(self._auth, KeyAuth)
                if not keys or split(shown.bearer() or "") is None:
                    raise
                self.guesses.take(address)
                inside.enter_context(self.gates["guess"].through(address))
            yield

    async def authenticate(self, shown: Credentials) -> Caller | None:
        """Whoever asks, if the server knows them."""
        self.check_open()
        known = await (await self._handler()).authenticate(shown)
        if known is not None and known.tenant.startswith(RESERVED):
            LOGGER.warning("a caller of a tenant that is the server's own was refused")
            return None
        if known is not None:
            self.known.add(shown)
        new = known is not None and known.tenant not in self._serving
        if known is not None and new and len(self._serving) < self.limits.tenants:
            task = asyncio.create_task(self._serve_later(known.tenant))
            self._background.add(task)
            task.add_done_callback(self._background.discard)
        return known

    async def still(self, shown: Credentials, caller: Caller) -> bool:
        """Whether this is the same caller as before, with no fewer scopes. Where that cannot be
        told, it is."""
        try:
            known = await self.authenticate(shown)
        except Exception as error:  # a handler of the program's own may raise anything
            LOGGER.warning("whether a reader may go on cannot be told: %s", type(error).__name__)
            return True
        return known is not None and (
            (known.tenant, known.principal) == (caller.tenant, caller.principal)
            and known.scopes >= caller.scopes
        )

    async def _serve_later(self, tenant: str) -> None:
        try:
            await self.serve(tenant)
        except Exception as error:  # the next request tries again
            why = getattr(error, "code", type(error).__name__)
            LOGGER.warning("no work of a tenant is looked for: %s", why)

    async def _handler(self) -> AuthHandler:
        if self._auth is None:
            self._auth = KeyAuth(Keys(await self.places.store()))
        return self._auth

    async def once(self) -> Once:
        """Where answers to requests with a key are kept."""
        if self._once is None:
            store = await self.places.store()
            self._once = Once(store, waiting=self.waiting, check=self.check_open)
        return self._once

    # Engines

    def engine(self, name: str | None) -> tuple[str, Engine]:
        """An engine by its name; None is the first (`UnknownEngine`)."""
        if name is None:
            name = next(iter(self.engines))
        if name not in self.engines:
            raise UnknownEngine(engine=name, available=sorted(self.engines))
        return name, self.engines[name]

    def choices(self, engine: Engine | None, agent: str | None) -> Choices | None:
        """What clients may choose for runs of an agent, None being one that a client brings. Where
        nothing here serves it, nothing is offered but what the settings list; an engine that is
        no harness decides for itself (None)."""
        if engine is None:
            unserved = Agent(agent or "agent", instructions="Help.")
            return Choices(unserved, self.settings.models or (), RunLimits())
        choices = getattr(engine, "choices", None)
        return None if choices is None else choices(agent)

    def serves(self, row: Row) -> tuple[str, Engine, str]:
        """The engine that drives a session, its name, and the agent's key (`UnknownAgent`)."""
        name, engine, agent = serving(self.engines, row.agent)
        brought: Any = engine if agent in getattr(engine, "adopted", ()) else None
        if brought is not None and not brought.has_adopted(agent, row.tenant):
            raise UnknownAgent(agent=agent, available=engine.agents)
        return name, engine, agent

    async def _take_up(self) -> None:
        while True:
            for tenant, kind in sorted(self._elsewhere):
                try:
                    with cancellable():
                        await self._serve_in(tenant, kind)
                    self._elsewhere.discard((tenant, kind))
                except HoldfastError as error:  # tried again
                    LOGGER.warning("no work is looked for in the %s store: %s", kind, error.code)
            for tenant, kind in itertools.product(sorted(self._serving), self.places.order):
                try:
                    with cancellable():
                        if self.loaders and (tenant, kind) not in self._elsewhere:
                            await self.adopting.take_up(await self.places.place(tenant, kind))
                except HoldfastError as error:
                    LOGGER.warning("runs of loaded agents are not taken up: %s", error.code)
            await asyncio.sleep(LOOK)

    async def _sweep(self) -> None:
        while True:
            asked = set() if self._once is None else self._once.tenants
            for tenant in sorted(self._serving | asked):
                try:
                    with cancellable():
                        await (await self.once()).sweep(tenant)
                        await self.adopting.tidy(await self.places.place(tenant))
                except HoldfastError as error:
                    LOGGER.warning("old answers are not swept: %s", error.code)
            await self._tidy_folders()
            await asyncio.sleep(SWEEP)

    async def _tidy_folders(self) -> None:
        for name, engine in self.engines.items():
            try:
                if (tidy := getattr(engine, "tidy", None)) is not None:
                    await tidy()
            except HoldfastError as error:
                LOGGER.warning("work folders of %s are not swept: %s", name, error.code)
